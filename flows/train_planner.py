"""The flow `train-planner`: `train-and-eval` with the planner as its environment."""

from typing import Any

from prefect import flow

from flows.stages.pipeline import DEFAULTS
from flows.train_and_eval import train_compared
from slmsearch.config import RunConfig


@flow(name="train-planner", persist_result=True, result_serializer="json")
def train_planner(config: RunConfig = DEFAULTS) -> dict[str, Any]:
    """Train a planner for a frozen worker, and say, with statistics, whether it got better and whether it is promoted."""
    return train_compared("train-planner", config.model_copy(update={"environment": "planner"}))
