"""The forecast of a training, before it: the start plays held-out questions, and what they say is shown and recorded."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger

from flows.stages.artifacts import show_forecast
from flows.stages.pipeline import Pipeline
from flows.stages.stages import evaluate_once
from slmsearch.errors import CorpusError, NotWorthItError
from slmsearch.evaluate.forecast import UPDATE_FACTOR, Training, forecast, measure_start, name_gains, read_runs
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


def forecast_training(run: Pipeline, data: Data) -> dict[str, Any] | None:
    """Forecast what GRPO will bring to the run's policy; None without measured trainings, held-out questions, or for a short training.

    Raises:
        NotWorthItError: it is not worth its time, and `forecast.if_worth_it` is set.
    """
    config, wanted = run.config, run.config.forecast
    played = config.changed({"evaluate.split": HELD_OUT, "evaluate.limit": 0, "evaluate.views": ("whole",), "evaluate.shots": 0})
    runs = read_runs(config.paths.data_dir)
    if not runs and not wanted.questions:
        return None
    try:
        available = len(questions_of(data.digest, config.paths, played.evaluate))
        trained = len(questions_of(data.digest, config.paths, played.changed({"evaluate.split": config.train.split}).evaluate))
    except CorpusError:
        return None
    train = config.train
    updates = train.steps or max(1, round(min(trained, train.limit or trained) * train.epochs / train.questions_per_step))
    episodes = updates * train.questions_per_step * train.group_size
    asked = wanted.questions or int(COST * UPDATE_FACTOR * episodes / (wanted.samples + 1))
    if min(asked, available) < FEWEST:
        get_run_logger().info("no forecast: a training of %d episodes is too short for one, or too few questions are held out", episodes)
        return None
    shape: ModelShape = in_child("slmsearch.training.memory:measure_shape", config)
    training = Training(updates, train.questions_per_step, train.group_size, train.learning_rate, shape.parameters)
    spec = PolicySpec(UNTRAINED, config.policy)

    def play(samples: int, name: str) -> Evaluated:
        settings = played.changed({"evaluate.limit": asked, "evaluate.samples": samples})
        return evaluate_once(replace(run, config=settings), data, spec, f"forecast-{name}")

    greedy, sampled = play(1, "greedy"), play(wanted.samples, "sampled")
    rows = [load_rows(config.paths.evals / one["key"]) for one in (greedy, sampled)]
    start = measure_start(rows[0], rows[1], wanted.samples)
    seconds = UPDATE_FACTOR * episodes * sampled["seconds"] / sampled["n"]
    if not runs:  # with what came of it, the run may become one of them
        run.tracker.record_json(run.run_id, {"start": asdict(start), "training": asdict(training)}, FILE)
        return None
    found = forecast(start, training, seconds, runs)
    told = found.to_dict()
    with run.stage("forecast"):
        run.tracker.record_json(run.run_id, told, FILE)
        run.tracker.record_metrics(run.run_id, name_gains(told))
        show_forecast(found.describe())
    get_run_logger().info("%s", found.describe())
    if wanted.if_worth_it and not found.worth_it:
        raise NotWorthItError(f"not trained: {found.describe()}; leave --if-worth-it out to train all the same")
    return told
