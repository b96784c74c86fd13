"""Streams of encoded episodes that supervised training learns from."""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from slmsearch.config import SftConfig
from slmsearch.environments.environment import Environment
from slmsearch.episodes.chat_renderer import ChatRenderer, require_context
from slmsearch.errors import TrainingError
from slmsearch.training.encoding import Encoded, encode_demonstration, fits

OLD_PER_NEW = 3
"""Episodes that the model already plays right, for each one that it never did: at 1:1 it forgot more, and twenty corrections among
thousands of others were not learnt (docs/log.md)."""


def demonstrated(renderer: ChatRenderer, environment: Environment, settings: SftConfig) -> Iterator[Encoded]:
    """Encode the environment's demonstrations of generated questions, without end; longer ones than the limits are left out.

    Raises:
        TrainingError: none of the first ones fits.
    """
    limits, fitting = environment.limits, 0
    for number, demonstration in enumerate(environment.teaching(environment.config).demonstrations(settings)):
        encoded = encode_demonstration(demonstration, renderer, environment)
        if fits(encoded, limits):
            fitting += 1
            yield encoded
        elif not fitting and number + 1 >= settings.episodes_per_world:
            raise TrainingError(
                f"all of the first {number + 1} demonstrations are too long, or a turn of each is: raise {' or '.join(limits.settings)}; "
                f"the last has {encoded.completion_tokens} tokens (limit {limits.max_episode_tokens}), "
                f"its longest turn {encoded.longest_turn} (limit {limits.max_turn_tokens})"
            )


def repeated(episodes: Sequence[Encoded], seed: int) -> Iterator[Encoded]:
    """Repeat the same episodes endlessly, in another order each time; where some are new, one follows `OLD_PER_NEW` others."""
    new, old = ([encoded for encoded in episodes if encoded.new is wanted] for wanted in (True, False))
    if not (new and old):
        return _shuffled(episodes, seed)
    return in_turn([*[_shuffled(old, seed)] * OLD_PER_NEW, _shuffled(new, seed)])


def _shuffled(episodes: Sequence[Encoded], seed: int) -> Iterator[Encoded]:
    chance = random.Random(f"episodes {seed}")
    while True:
        yield from chance.sample(episodes, len(episodes))


def in_turn(streams: Sequence[Iterator[Encoded]]) -> Iterator[Encoded]:
    """Take an episode of each endless stream in turn."""
    while True:
        yield from map(next, streams)


def within_context(model: Any, episodes: Iterable[Encoded]) -> Iterator[Encoded]:
    """Pass on episodes that fit into the model's context.

    Raises:
        ModelError: one is longer.
    """
    for encoded in episodes:
        remedy = "lower searcher.max_episode_tokens (planner.sft.max_tokens)"
        require_context(model, len(encoded.ids), "a demonstration with its prompt", remedy)
        yield encoded
