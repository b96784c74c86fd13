"""Demonstrations and episodes as token ids with labels, in the layout of a rollout."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.playable import Limits, Playable
from slmsearch.episodes.sampler import Message

IGNORED = -100
"""Label of tokens that carry no loss."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A demonstration as ids, with labels: equal to the ids where its author wrote, `IGNORED` elsewhere."""

    ids: list[int]
    labels: list[int]
    prompt_tokens: int
    """Number of ids of the opening messages."""
    new: bool = False
    """See `Demonstration.new`."""

    @property
    def completion_tokens(self) -> int:
        """Count the tokens after the prompt, which `searcher.max_episode_tokens` limits."""
        return len(self.ids) - self.prompt_tokens

    @property
    def longest_turn(self) -> int:
        """Count the tokens of the longest turn, which `searcher.max_turn_tokens` limits."""
        longest = run = 0
        for label in self.labels:
            run = run + 1 if label != IGNORED else 0
            longest = max(longest, run)
        return longest


def encode_turns(prompt: Sequence[Message], turns: Sequence[tuple[Message, str]], renderer: ChatRenderer) -> Encoded:
    """Encode an episode exactly as the rollout lays it out.

    Args:
        prompt: the opening messages.
        turns: messages of the policy and the results that answer them; an empty result ends the episode.
        renderer: encodes.
    """
    ids = list(renderer.encode_prompt(prompt))
    prompt_tokens, labels = len(ids), [IGNORED] * len(ids)
    for message, result in turns:
        sampled = [*renderer.message_ids(message), renderer.end_id]
        ids += sampled
        labels += sampled
        if result:
            context = renderer.encode_result(result)
            ids += context
            labels += [IGNORED] * len(context)
    return Encoded(ids, labels, prompt_tokens)


def encode_demonstration(demonstration: Demonstration, renderer: ChatRenderer, environment: Playable) -> Encoded:
    """Encode a demonstration under the prompt that training by reward, evaluation and serving use."""
    prompt = demonstration.prompt or environment.opening(demonstration.question)
    turns = [(environment.message(text), result) for text, result in demonstration.turns]
    return replace(encode_turns(prompt, turns, renderer), new=demonstration.new)


def encode_episode(episode: Episode, end_id: int) -> Encoded:
    """Take the ids of a played episode as they are; labels where the policy wrote.

    Where a stop text ended a turn, the end-of-turn token behind it is a label, too: a server that knows no stop texts needs it.
    """
    ids: list[int] = []
    labels: list[int] = []
    closed = False
    for turn in episode.turns:
        context = turn.context_ids[closed:]
        closed = bool(turn.sampled_ids) and turn.sampled_ids[-1] != end_id and not turn.told
        sampled = [*turn.sampled_ids, end_id] if closed else list(turn.sampled_ids)
        ids += [*context, *sampled]
        labels += [IGNORED] * len(context) + sampled
    prompt_tokens = len(episode.prompt_ids)
    return Encoded([*episode.prompt_ids, *ids], [IGNORED] * prompt_tokens + labels, prompt_tokens)


def fits(encoded: Encoded, limits: Limits) -> bool:
    """Return whether an example may be learnt: whether a policy could have written it, where examples have no limit of their own."""
    if limits.max_example_tokens is not None:
        return len(encoded.ids) <= limits.max_example_tokens
    return encoded.longest_turn <= limits.max_turn_tokens and encoded.completion_tokens <= limits.max_episode_tokens
