"""The untrained policy with worked examples beside the one without: which of them training is compared with, and what leaves it out."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from flows.stages.pipeline import Pipeline
from flows.stages.summary import BesideSearch
from flows.train import SHOTS, play_few_shot
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError, ContextError, SlmSearchError
from tasks.corpus_data import Data
from tasks.evaluate import Compared


def compared(before: float, after: float) -> Compared:
    difference = {"mean": after - before, "low": after - before - 0.1, "high": after - before + 0.1, "p": 0.01}
    return {
        "n": 40,
        "metric": "answer/typed_match",
        "before": before,
        "after": after,
        "difference": difference,
        "decision": "promote",
        "reason": "",
    }


def beside(without: float, shown: float | None) -> BesideSearch:
    gain, few_shot_gain = compared(without, 0.9), None if shown is None else compared(shown, 0.9)
    nothing = cast("Any", None)
    return BesideSearch(nothing, nothing, nothing, nothing, gain, nothing, few_shot_gain)


def test_training_is_compared_with_the_better_untrained_policy() -> None:
    better = beside(0.0, 0.4)
    assert better.fair_gain is better.few_shot_gain
    assert better.describe() == (
        "Untrained, with worked examples (0.000 without), answer/typed_match is 0.400 on 40 of these questions, trained 0.900: "
        "+0.500 [+0.400, +0.600], p 0.0100."
    )
    for worse in (beside(0.4, 0.1), beside(0.4, 0.4), beside(0.4, None)):
        assert worse.fair_gain is worse.gain
    assert beside(0.4, 0.1).describe().startswith("Untrained, without worked examples, answer/typed_match is 0.400")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr("flows.train.get_run_logger", lambda: logging.getLogger("few-shot"))
    return Pipeline(RunConfig().changed({"evaluate.batch_size": 32}), "key", cast("Any", None), "run", 0.0)


def evaluation(answer: Callable[[RunConfig], Any]) -> Callable[..., Any]:
    return lambda run, *_: answer(run.config)


def test_examples_take_their_room_from_the_batch(run: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.train.evaluate_policy", evaluation(lambda config: config.evaluate))
    found: Any = play_few_shot(run, run.config.policy, Data("digest"))
    assert (found.shots, found.batch_size) == (SHOTS, 10)
    assert run.config.evaluate.shots == 0


@pytest.mark.parametrize(("budget_s", "asked"), [(0.0, 136), (3600.0, 50)])
def test_within_a_limited_time_few_questions_are_asked(budget_s: float, asked: int, run: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.train.evaluate_policy", evaluation(lambda config: config.evaluate))
    limited = {"learn.budget_s": budget_s, "evaluate.limit": 136, "decision.min_questions": 50}
    found: Any = play_few_shot(replace(run, config=run.config.changed(limited)), run.config.policy, Data("digest"))
    assert found.limit == asked


@pytest.mark.parametrize("error", [ConfigError("there are none"), ContextError("it is too short")])
def test_a_run_goes_on_without_examples_that_cannot_be_shown(
    error: SlmSearchError, run: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(config: RunConfig) -> Any:
        raise error

    monkeypatch.setattr("flows.train.evaluate_policy", evaluation(refuse))
    with caplog.at_level(logging.WARNING):
        assert play_few_shot(run, run.config.policy, Data("digest")) is None
    assert caplog.messages == [f"the untrained policy is not evaluated with {SHOTS} worked examples: {error}"]
