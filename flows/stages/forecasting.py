"""The forecast of a training, before it: the start plays held-out questions, and what they say is shown and recorded."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger

from flows.stages.artifacts import escape, show_forecast
from flows.stages.pipeline import Pipeline
from flows.stages.stages import evaluate_once
from slmsearch.environments.registry import environment_of
from slmsearch.errors import CorpusError, NotWorthItError, TrainingError
from slmsearch.evaluate.forecast import (
    UPDATE_FACTOR,
    Forecast,
    Training,
    find_other_settings,
    forecast,
    measure_start,
    name_gains,
    read_runs,
)
from slmsearch.evaluate.policies import UNTRAINED, PolicySpec
from slmsearch.evaluate.store import load_rows
from tasks.child import in_child
from tasks.corpus_data import Data
from tasks.evaluate import Evaluated, questions_of

if TYPE_CHECKING:
    from slmsearch.training.memory import ModelShape

COST = 1 / 12
"""Share of the time of a training that its forecast may take."""
FEWEST = 24
"""Smallest number of questions that a forecast is made from."""
HELD_OUT, FILE = "validation", "forecast.json"


class NoForecastError(TrainingError):
    """Error of a forecast that cannot be made."""


def forecast_training(run: Pipeline, data: Data, required: bool = False) -> dict[str, Any] | None:
    """Forecast what GRPO will bring to the run's policy; None, with a line that says why, where that cannot be told.

    Where no trainings were measured here it is silent, unless a forecast is asked for: then those that are shipped are taken.

    Args:
        run: the run, with the start as its policy.
        data: what it trains on.
        required: raise where it cannot be told; `forecast.if_worth_it` sets that, too.

    Raises:
        NotWorthItError: the training is not worth its time, and `forecast.if_worth_it` is set.
        NoForecastError: there is no forecast.
    """
    only_if = run.config.forecast.if_worth_it
    if not (required or only_if or run.config.forecast.questions or read_runs(run.config.paths.data_dir)):
        return None  # nobody asked, and nothing was measured: no line in every run
    try:
        found = _forecast(run, data, required or only_if)
        if only_if and found.beyond:
            raise NoForecastError(f"no training like this one was measured ({', '.join(found.beyond)})")
    except NoForecastError as error:
        if required or only_if:
            raise NoForecastError(f"no forecast: {error}{'; leave --if-worth-it out to train without one' if only_if else ''}") from error
        get_run_logger().info("no forecast: %s", error)
        return None
    told = found.to_dict()
    with run.stage("forecast"):
        run.tracker.record_json(run.run_id, told, FILE)
        run.tracker.record_metrics(run.run_id, name_gains(told))
        show_forecast(found.describe())
        run.describe(escape(found.describe()))
    get_run_logger().info("%s", found.describe())
    if only_if and not found.worth_it:
        raise NotWorthItError(f"not trained: {found.describe()}; leave --if-worth-it out to train all the same")
    return told


def _forecast(run: Pipeline, data: Data, shipped: bool) -> Forecast:
    config, wanted, train = run.config, run.config.forecast, run.config.train
    name = environment_of(config).name
    runs = [one for one in read_runs(config.paths.data_dir, shipped) if one.training.environment == name]
    if not runs and not wanted.questions:
        raise NoForecastError(f"no trainings of the {name} were measured")
    played = config.changed({"evaluate.split": HELD_OUT, "evaluate.limit": 0, "evaluate.views": ("whole",), "evaluate.shots": 0})
    try:
        available = len(questions_of(data.digest, config.paths, played.evaluate))
        trained = len(questions_of(data.digest, config.paths, played.changed({"evaluate.split": train.split}).evaluate))
    except CorpusError as error:
        raise NoForecastError(str(error)) from error
    updates = train.steps or max(1, round(min(trained, train.limit or trained) * train.epochs / train.questions_per_step))
    episodes = updates * train.questions_per_step * train.group_size
    asked = wanted.questions or int(COST * UPDATE_FACTOR * episodes / (wanted.samples + 1))
    if min(asked, available) < FEWEST:
        told = f"a twelfth of a training of {episodes} episodes holds {asked} questions, and {available} are held out"
        raise NoForecastError(f"{told}; it needs {FEWEST}: set forecast.questions, or hold out more")
    if runs and (known := runs[0].start.samples) != wanted.samples:  # before anything is played
        raise NoForecastError(f"forecast.samples is {wanted.samples}, and the trainings were measured with {known}: set it to that")
    shape: ModelShape = in_child("slmsearch.training.memory:measure_shape", config)
    training = Training(updates, train.questions_per_step, train.group_size, train.learning_rate, shape.parameters, name)
    if runs and wanted.if_worth_it and (other := find_other_settings(training, runs)):  # before anything is played
        raise NoForecastError(f"no training like this one was measured ({', '.join(other)})")

    def play(samples: int, stage: str) -> Evaluated:
        settings = played.changed({"evaluate.limit": asked, "evaluate.samples": samples})
        return evaluate_once(replace(run, config=settings), data, PolicySpec(UNTRAINED, config.policy), f"forecast-{stage}")

    greedy, sampled = play(1, "greedy"), play(wanted.samples, "sampled")
    rows = [load_rows(config.paths.evals / one["key"]) for one in (greedy, sampled)]
    start = measure_start(rows[0], rows[1], wanted.samples)
    if not runs:  # with what came of it, the run may become one of them
        run.tracker.record_json(run.run_id, {"start": asdict(start), "training": asdict(training)}, FILE)
        raise NoForecastError("no trainings were measured here; the start is recorded")
    return forecast(start, training, UPDATE_FACTOR * episodes * sampled["seconds"] / sampled["n"], runs)
