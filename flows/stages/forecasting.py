"""The forecast of a training, before it: the start plays held-out questions, and what they say is shown and recorded."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from prefect import get_run_logger

from flows.stages.artifacts import escape, show_forecast
from flows.stages.pipeline import Pipeline
from flows.stages.stages import evaluate_once
from slmsearch.environments.registry import environment_of
from slmsearch.episodes.teaching import select_questions
from slmsearch.errors import ConfigError, CorpusError, NotWorthItError
from slmsearch.evaluate.compare import BINARY_METRICS
from slmsearch.evaluate.forecast import (
    UPDATE_FACTOR,
    Forecast,
    MeasuredRun,
    NoForecastError,
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
FILE = "forecast.json"
HELD_OUT = {"evaluate.split": "validation", "evaluate.limit": 0, "evaluate.views": ("whole",), "evaluate.shots": 0}
"""Settings with which the held-out questions are played."""


def forecast_training(run: Pipeline, data: Data, required: bool = False) -> dict[str, object] | None:
    """Forecast what GRPO will bring to the run's policy; None, with a line that says why, where that cannot be told.

    Where no trainings were measured here it is silent, unless a forecast is asked for, also by `forecast.questions`: then those that are
    shipped are taken.

    Args:
        run: the run, with the start as its policy.
        data: what it trains on.
        required: raise where it cannot be told; `forecast.if_worth_it` sets that, too.

    Raises:
        NotWorthItError: the training is not worth its time, and `forecast.if_worth_it` is set.
        NoForecastError: there is no forecast.
    """
    only_if, asked = run.config.forecast.if_worth_it, run.config.forecast.questions
    if not (required or only_if or asked or read_runs(run.config.paths.data_dir)):
        return None  # nobody asked, and nothing was measured: no line in every run
    try:
        found = _play(run, data, _plan(run, data, required or only_if))
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
        run.tracker.record_step(run.run_id, 0, name_gains(told))  # of a resumed run the last forecast counts
        show_forecast(found.describe())
        run.describe(escape(found.describe()))
    get_run_logger().info("%s", found.describe())
    if only_if and not found.worth_it:
        raise NotWorthItError(f"not trained: {found.describe()}; leave --if-worth-it out to train all the same")
    return told


def require_forecast(run: Pipeline, data: Data) -> None:
    """Check before anything is played or trained that a training which depends on its forecast can have one.

    Raises:
        NoForecastError: it cannot.
        ConfigError: the run has a time limit.
    """
    if not run.config.forecast.if_worth_it:
        return
    if run.config.learn.budget_s:
        raise ConfigError("forecast.if_worth_it: a time limit is planned to the last minute, without a forecast; set learn.budget_s to 0")
    try:
        _plan(run, data, True)
    except NoForecastError as error:
        raise NoForecastError(f"no forecast: {error}; leave --if-worth-it out to train without one") from error


@dataclass(frozen=True)
class _Plan:
    """A forecast that is to be made."""

    runs: tuple[MeasuredRun, ...]
    """Measured trainings that it stands on; none: only the start is measured."""
    training: Training
    questions: int
    """Number of questions that the start plays."""


def _plan(run: Pipeline, data: Data, required: bool) -> _Plan:
    config, wanted, train = run.config, run.config.forecast, run.config.train
    name = environment_of(config).name
    measured = read_runs(config.paths.data_dir, bool(required or wanted.questions))
    runs = tuple(one for one in measured if one.training.environment == name)
    if not runs and (required or not wanted.questions):
        raise NoForecastError(f"no trainings of the {name} were measured")
    if config.decision.metric not in BINARY_METRICS:
        raise NoForecastError(f"decision.metric is {config.decision.metric}, and only right and wrong answers are forecast")
    if runs and (known := runs[0].start.samples) != wanted.samples:
        if required:
            raise NoForecastError(f"forecast.samples is {wanted.samples}, and the trainings were measured with {known}: set it to that")
        runs = ()
    played = config.changed(HELD_OUT)
    try:
        available = len(questions_of(data.digest, config.paths, played.evaluate))
        training_questions = questions_of(data.digest, config.paths, played.changed({"evaluate.split": train.split}).evaluate)
    except CorpusError as error:
        raise NoForecastError(str(error)) from error
    updates: int = in_child("slmsearch.training.grpo_settings:num_steps", train, len(select_questions(training_questions, train.limit)))
    episodes = updates * train.questions_per_step * train.group_size
    asked = wanted.questions or int(COST * UPDATE_FACTOR * episodes / (wanted.samples + 1))
    if min(asked, available) < FEWEST:
        told = f"{available} questions are held out" if asked >= FEWEST else f"forecast.questions is {asked}"
        if not wanted.questions and asked < FEWEST:
            told = f"a twelfth of a training of {episodes} episodes holds {asked} questions; set forecast.questions"
        raise NoForecastError(f"{told}, and it needs {FEWEST}")
    shape: ModelShape = in_child("slmsearch.training.memory:measure_shape", config)
    training = Training(updates, train.questions_per_step, train.group_size, train.learning_rate, shape.parameters, name)
    if runs and wanted.if_worth_it and (other := find_other_settings(training, runs)):
        raise NoForecastError(f"no training like this one was measured ({', '.join(other)})")
    return _Plan(runs, training, asked)


def _play(run: Pipeline, data: Data, plan: _Plan) -> Forecast:
    config, samples = run.config, run.config.forecast.samples

    def play(samples: int, stage: str) -> Evaluated:
        settings = config.changed({**HELD_OUT, "evaluate.limit": plan.questions, "evaluate.samples": samples})
        return evaluate_once(replace(run, config=settings), data, PolicySpec(UNTRAINED, config.policy), f"forecast-{stage}")

    greedy, sampled = play(1, "greedy"), play(samples, "sampled")
    rows = [load_rows(config.paths.evals / one["key"]) for one in (greedy, sampled)]
    start = measure_start(rows[0], rows[1], samples, config.decision.metric)
    if not plan.runs:  # with what came of it, the run may become one of them
        run.tracker.record_json(run.run_id, {"start": asdict(start), "training": asdict(plan.training)}, FILE)
        raise NoForecastError("no trainings like this were measured here; the start is recorded")
    return forecast(start, plan.training, UPDATE_FACTOR * plan.training.episodes * sampled["seconds"] / sampled["n"], plan.runs)
