"""The flow `reindex`: validate, build an index version, make it the current one."""

from typing import Any

from prefect import flow

from flows.stages.pipeline import DEFAULTS, open_pipeline
from flows.stages.stages import playing_data
from slmsearch.config import RunConfig


@flow(name="reindex", persist_result=True, result_serializer="json")
def reindex(config: RunConfig = DEFAULTS) -> dict[str, Any]:
    """Build the index version of the configured corpus and make it the current one."""
    with open_pipeline("reindex", config) as run:
        data = playing_data(run)
        return {"data_digest": data.digest, "index_key": data.index_key, **run.ids}
