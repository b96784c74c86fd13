"""The forecast before a training, in the flows: recorded, shown, able to hold the training, and held to account."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli.session import NEGATIVE, exit_code
from flows.cli.text import render_forecast, render_history, render_summary
from flows.stages import forecasting
from flows.train import forecast, train_and_eval
from slmsearch.config import RunConfig
from slmsearch.errors import NotWorthItError, TrainingError
from slmsearch.evaluate.forecast import MeasuredRun, NoForecastError, Start, Training
from tasks import record
from tasks.forecasts import past_forecasts
from tasks.runs import LATEST, find_run, load_results
from tasks.tracking import open_tracker
from tests.flows.fakes import ChildHere, FakeTraining, make_config, replace_heavy_parts, write_corpus

pytestmark = [pytest.mark.usefixtures("prefect_harness"), pytest.mark.timeout(600)]
SAMPLES = 4


def measured(gain: float, updates: int = 150) -> list[MeasuredRun]:
    """Trainings of four corpora that brought about `gain`, of the start that these tests have."""
    start = Start(0.0, (2, 0, 0, 0, 0))
    return [
        MeasuredRun(
            str(corpus), str(number), start, Training(updates + number, 8, 8, 1e-3, 10**6), 480, 0.2, 0.2 + gain, gain, gain, 0.21, 60.0
        )
        for corpus in range(4)
        for number in range(3)
    ]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    monkeypatch.setattr("flows.stages.summary.leave_reports", lambda *_: None)
    monkeypatch.setattr(record, "TRACED_EPISODES", 0)
    monkeypatch.setattr(forecasting, "FEWEST", 2)
    monkeypatch.setattr(forecasting, "read_runs", lambda *_: measured(0.2))
    monkeypatch.setitem(ChildHere.stand_ins, "slmsearch.training.memory:measure_shape", lambda config: SimpleNamespace(parameters=10**6))
    return replace_heavy_parts(monkeypatch)


@pytest.fixture
def config(isolated_environment: Path, training: FakeTraining, empty_store: Path) -> RunConfig:
    wanted: dict[str, dict[str, Any]] = {"forecast": {"questions": 2, "samples": SAMPLES}, "control": {"enabled": False}}
    return make_config(isolated_environment, write_corpus(isolated_environment / "corpus"), empty_store, **wanted)


def test_a_run_forecasts_before_it_trains_and_is_held_to_account(config: RunConfig) -> None:
    summary = train_and_eval(config)
    told: Any = summary["forecast"]
    assert sum(told["start"]["counts"]) == 2, "held-out questions"
    assert len(told["start"]["counts"]) == SAMPLES + 1
    assert (told["start"]["greedy"], told["headroom"]) == (0.0, 0.0), "the untrained stand-in knows nothing"
    assert told["gain"]["low"] <= told["gain"]["value"] <= told["gain"]["high"]
    assert told["beyond"] == []
    assert json.loads((Path(config.paths.mlruns_dir) / "latest.json").read_text())["forecast"] == told
    tracker = open_tracker(config.paths, config.tracking)
    metrics = tracker.metrics(str(summary["mlflow_run_id"]))
    assert metrics["forecast/gain"] == pytest.approx(told["gain"]["value"])
    assert tracker.read_json(str(summary["mlflow_run_id"]), forecasting.FILE) == told
    assert "forecast" in render_summary(summary, config.paths, config.decision)

    results = load_results(tracker, find_run(tracker, LATEST), config.paths)
    assert "GRPO was expected to bring" in results.reason
    assert not any(name.startswith("forecast") for name in results.evaluations)

    summary = train_and_eval(config)  # all of it is looked up
    found = past_forecasts(config.paths, config.tracking)
    assert [one["run_id"] for one in found["forecasts"]] == [summary["mlflow_run_id"]], "a training counts once"
    one = found["forecasts"][0]
    assert one["outcome"] == pytest.approx(metrics["compare/difference"])
    assert one["inside"] is (one["gain"]["low"] <= one["outcome"] <= one["gain"]["high"])
    assert found["covered_frac"] == float(one["inside"])
    assert "% of 1 outcomes" in render_history(found)


def test_a_training_that_is_not_worth_it_is_held(config: RunConfig, training: FakeTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "read_runs", lambda *_: measured(-0.1))
    with pytest.raises(NotWorthItError, match=r"not trained: GRPO is expected to bring .* leave --if-worth-it out") as held:
        train_and_eval(config.changed({"forecast.if_worth_it": True}))
    assert exit_code(held.value) == NEGATIVE
    assert training.calls == 0
    assert render_history(past_forecasts(config.paths, config.tracking)).startswith("no forecast yet")
    assert train_and_eval(config)["decision"] == "promote", "without it the training goes on"


def test_the_forecast_alone(config: RunConfig, training: FakeTraining) -> None:
    told: Any = forecast(config)
    assert {"gain", "headroom", "sft_continued", "worth_it", "seconds"} <= set(told)
    assert training.calls == 0
    assert "of 2 held-out questions" in render_forecast(told)
    again: Any = forecast(config)
    assert again["gain"] == told["gain"], "the same twice"


def test_a_short_training_is_not_forecast(config: RunConfig, training: FakeTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    short = config.changed({"forecast.questions": 0, "train.steps": 1})
    monkeypatch.setattr(forecasting, "COST", 1 / 1000)
    assert "forecast" not in train_and_eval(short)
    assert training.calls == 1
    with pytest.raises(TrainingError, match=r"a twelfth of a training of 64 episodes holds 0 questions; set forecast\.questions"):
        forecast(short)
    with pytest.raises(TrainingError, match=r"leave --if-worth-it out to train without one"):
        train_and_eval(short.changed({"forecast.if_worth_it": True}))
    assert training.calls == 1, "it was asked to train only if that is worth it"


def test_another_number_of_samples_than_was_measured_stops_no_training(config: RunConfig, training: FakeTraining) -> None:
    other = config.changed({"forecast.samples": SAMPLES + 1})
    assert "forecast" not in train_and_eval(other)
    assert training.calls == 1
    with pytest.raises(TrainingError, match=r"forecast\.samples is 5, and the trainings were measured with 4: set it to that"):
        forecast(other)


def test_without_measured_trainings_the_start_is_recorded_on_request_alone(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "read_runs", lambda *_: ())
    tracker = open_tracker(config.paths, config.tracking)
    asked = train_and_eval(config)
    assert "forecast" not in asked
    assert set(tracker.read_json(str(asked["mlflow_run_id"]), forecasting.FILE) or {}) == {"start", "training"}
    unasked = train_and_eval(config.changed({"forecast.questions": 0}))
    assert tracker.read_json(str(unasked["mlflow_run_id"]), forecasting.FILE) is None
    with pytest.raises(TrainingError, match="no trainings of the searcher were measured"):
        forecast(config)


def test_a_training_like_none_that_was_measured_is_not_held_by_its_forecast(
    config: RunConfig, training: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasting, "read_runs", lambda *_: measured(0.2, updates=5))
    told: Any = train_and_eval(config)["forecast"]
    assert told["beyond"] == ["number of updates"] and told["worth_it"] is None
    assert "no training like this one was measured (number of updates)" in render_forecast(told)
    found = past_forecasts(config.paths, config.tracking)
    assert [one["beyond"] for one in found["forecasts"]] == [True] and found["covered_frac"] is None
    assert "not measured" in render_history(found)
    with pytest.raises(TrainingError, match=r"no training like this one was measured \(number of updates\)"):
        train_and_eval(config.changed({"forecast.if_worth_it": True}))
    with monkeypatch.context() as patched:
        patched.setattr(forecasting, "evaluate_once", None)
        patched.setattr("flows.train.start_from_examples", None)
        with pytest.raises(NoForecastError, match=r"no training like this one was measured \(group size\)"):  # before anything is played
            train_and_eval(config.changed({"forecast.if_worth_it": True, "train.group_size": 4}))
    monkeypatch.setattr(
        forecasting, "read_runs", lambda *_: [replace(run, training=replace(run.training, environment="planner")) for run in measured(0.2)]
    )
    assert "forecast" not in train_and_eval(config), "of another environment"
