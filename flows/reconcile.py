"""The flow `reconcile`: correct the states of both trackers; nightly, and on request."""

from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.logging import get_run_logger

from flows.runtime.automations import watch_heartbeats
from flows.runtime.pool import POOL
from flows.runtime.worker_secrets import ALL_BUT_TRACKING, settle
from flows.stages.pipeline import DEFAULTS, own_flow_run
from slmsearch.config import PathsConfig, RunConfig, TrackingConfig
from tasks.reconcile import reconcile as end_what_is_over
from tasks.tracking import open_run_registry

if TYPE_CHECKING:
    from tasks.reconcile import Fixed


@flow(name="reconcile", persist_result=True, result_serializer="json")
def reconcile(config: RunConfig = DEFAULTS) -> dict[str, object]:
    """End what shows as running and is not, in Prefect and in MLflow, and report it.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    config = settle(config, ALL_BUT_TRACKING)
    own_flow_run()
    fixed = reconcile_here(config.paths, config.tracking)
    for item in fixed:
        get_run_logger().warning("%s", item.describe())
    return {"fixed": [asdict(item) for item in fixed]}


def reconcile_here(paths: PathsConfig, tracking: TrackingConfig, workers: Collection[str] = ()) -> "list[Fixed]":
    """Reconcile with this process' Prefect API and make sure that heartbeats are watched; `workers` are those that the caller runs here."""
    with get_client(sync_client=True) as client:
        watch_heartbeats(client)
        return end_what_is_over(open_run_registry(paths, tracking), paths.training, client, POOL, workers)
