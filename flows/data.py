"""The flows that prepare data: `validate` checks pages and questions, `reindex` also builds an index version and makes it current."""

from prefect import flow

from flows.stages.pipeline import DEFAULTS, open_pipeline
from flows.stages.stages import prepare_data, validate_data
from slmsearch.config import RunConfig


@flow(name="validate", persist_result=True, result_serializer="json")
def validate(config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Check pages and questions; fail on critical findings.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    with open_pipeline("validate", config) as run:
        return {"ok": True, "data_digest": validate_data(run), **run.ids}


@flow(name="reindex", persist_result=True, result_serializer="json")
def reindex(config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Build the index version of the configured corpus and make it the current one.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    with open_pipeline("reindex", config) as run:
        data = prepare_data(run)
        return {"data_digest": data.digest, "index_key": data.index_key, **run.ids}
