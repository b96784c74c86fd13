"""The flow `validate`: check pages and questions."""

from typing import Any

from prefect import flow

from flows.stages.pipeline import DEFAULTS, open_pipeline
from flows.stages.stages import validated_data
from slmsearch.config import RunConfig


@flow(name="validate", persist_result=True, result_serializer="json")
def validate(config: RunConfig = DEFAULTS) -> dict[str, Any]:
    """Check pages and questions; fail on critical findings."""
    with open_pipeline("validate", config) as run:
        return {"ok": True, "data_digest": validated_data(run), **run.ids}
