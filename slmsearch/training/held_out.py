"""Held-out questions played during supervised training: greedily, and several times at temperature 1.

The greedy score says what the weights answer, pass@k what reinforcement learning could still teach them: it can only raise the share of
answers that are sampled at all.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from transformers import TrainerCallback

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import load_questions
from slmsearch.environments.registry import environment_of, open_environment
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.sampler import Sampling
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training.trainer_samplers import merged

CORRECT, PASS_AT_K = "held_out/correct", "held_out/pass_at_k"
QUESTIONS, SCORINGS = 32, 4
"""Number of questions, and of scorings of a training: at each quarter of its updates."""
Score = Callable[[Any], dict[str, float]]
"""Function that scores a model; returns its metrics by name."""


def make_score(config: RunConfig, renderer: ChatRenderer, digest: str | None = None) -> Score | None:
    """Return a function that plays held-out questions with a model; None unless `evaluate.samples` asks for several episodes of each.

    Args:
        config: run; its corpus and index are opened.
        renderer: renderer with the model's tokenizer.
        digest: corpus of the run; None builds or looks up the configured one.

    Returns:
        Function whose result holds `held_out/correct` and `held_out/pass_at_k`, shares of `QUESTIONS` questions of the validation split.
    """
    settings = config.evaluate
    if settings.samples == 1:
        return None
    digest = digest or environment_of(config).data(config).build(config.paths.corpora)
    environment, found = open_environment(config, digest), load_questions(config.paths.corpora, digest).get("validation", [])
    asked = found[:: max(1, len(found) // QUESTIONS)][:QUESTIONS]

    def play(sampler: TorchSampler, questions: Sequence[Question], temperature: float) -> list[bool]:
        right = list[bool]()
        for start in range(0, len(questions), settings.batch_size):
            batch = questions[start : start + settings.batch_size]
            sampling = Sampling(temperature, settings.seed + start, environment.limits.max_turn_tokens)
            episodes = environment.complete(batch, environment.play(batch, sampler, sampling))
            right += [bool(row.correct) for row in environment.grade(batch, episodes)]
        return right

    def score(model: Any) -> dict[str, float]:
        sampler, k = TorchSampler(model, renderer.tokenizer, renderer.tool_role, renderer), settings.samples
        if environment.base_user is not None:  # a worker that is the base is the model as it is now
            environment.base_user.sample_with(lambda: nullcontext(sampler))
        greedy = play(sampler, asked, 0.0)
        drawn = play(sampler, [question for question in asked for _ in range(k)], 1.0)
        passed = [any(drawn[start : start + k]) for start in range(0, len(drawn), k)]
        return {CORRECT: sum(greedy) / len(asked), PASS_AT_K: sum(passed) / len(asked)}

    return score if asked else None


class HeldOutScores(TrainerCallback):
    """A callback that scores the model at each quarter of the updates and passes the figures on."""

    def __init__(self, score: Score, on_log: Callable[[int, dict[str, float]], None], autocast: Callable[[], Any]) -> None:
        """Bind the functions; `autocast` makes the context in which the trainer computes."""
        self._score, self._on_log, self._autocast = score, on_log, autocast

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Score the model where a quarter ends."""
        if state.global_step in {math.ceil(quarter * state.max_steps / SCORINGS) for quarter in range(1, SCORINGS + 1)}:
            with torch.no_grad(), self._autocast(), merged(model.eval()) as plain:
                self._on_log(state.global_step, self._score(plain))
