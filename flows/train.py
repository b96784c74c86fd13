"""The flow `train`: validate, index, train with GRPO, register the adapter. Nothing is compared and nothing promoted."""

from typing import Any

from prefect import flow

from flows.pipeline import DEFAULTS, open_pipeline
from flows.preflight import check_models
from flows.stages import current_index, trained_adapter, validated_corpus
from slmsearch.config import RunConfig


@flow(name="train", persist_result=True, result_serializer="json")
def train(config: RunConfig = DEFAULTS) -> dict[str, Any]:
    """Train an adapter with GRPO, or go on where a killed run stopped."""
    with open_pipeline("train", config, check_models) as run:
        data = current_index(run, validated_corpus(run))
        return {**trained_adapter(run, data), **run.ids}
