"""The flow `train`: validate, index, train with GRPO, register the adapter. Nothing is compared and nothing promoted."""

from typing import Any

from prefect import flow

from flows.stages.pipeline import DEFAULTS, open_pipeline
from flows.stages.preflight import check_models
from flows.stages.stages import playing_data, trained_adapter
from slmsearch.config import RunConfig


@flow(name="train", persist_result=True, result_serializer="json")
def train(config: RunConfig = DEFAULTS) -> dict[str, Any]:
    """Train an adapter with GRPO, or go on where a killed run stopped."""
    with open_pipeline("train", config, check_models) as run:
        data = playing_data(run)
        return {**trained_adapter(run, data), **run.ids}
