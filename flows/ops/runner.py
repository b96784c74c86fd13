"""Run a flow here, or hand it to the worker that `slmsearch up` started and follow it."""

import importlib
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import httpx

from flows.runtime.api import prefect_api
from flows.runtime.flow_errors import as_error
from flows.runtime.process_environment import be_terse
from flows.runtime.servers import Say
from flows.runtime.worker_secrets import submitted
from flows.stages.preflight import preflight
from slmsearch.config import RunConfig
from slmsearch.errors import ServiceError
from slmsearch.foreign import cause_of

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State

FLOWS = {
    "train-and-eval": "flows.train:train_and_eval",
    "train-planner": "flows.train:train_planner",
    "learn": "flows.learn:learn",
    "evaluate": "flows.evaluate:evaluate",
    "nightly": "flows.nightly:nightly",
    "reindex": "flows.data:reindex",
    "refresh": "flows.refresh:refresh",
    "validate": "flows.data:validate",
    "housekeeping": "flows.housekeeping:housekeeping",
    "reconcile": "flows.reconcile:reconcile",
    "forecast": "flows.train:forecast",
    "train": "flows.train:train",
}
"""Flow name -> its entrypoint; all but the last are deployed."""
PARTS = {"evaluate-shard": "flows.evaluate_shard:evaluate_shard"}
"""Deployed flows that other flows start."""
LEARNING = ("train", "forecast", "train-and-eval", "train-planner", "learn")
"""Names of flows that need the configured model."""
PROMOTING = ("train-and-eval", "train-planner", "learn")
"""Names of flows that may promote a version."""
POLL_SECONDS = 1.0


def run_flow(name: str, config: RunConfig, say: Say, here: bool = False) -> Mapping[str, Any]:
    """Run a flow, one of `FLOWS`, and return its result; with `here` it runs in this process even if a worker is up.

    Raises:
        SlmSearchError: the error that ended the flow; for a flow run on a worker by its own class, if known.
    """
    preflight(config, name in LEARNING)
    with prefect_api(config.paths) as api, ExitStack() as ends:
        if api.kind == "up" and not here:
            return cast("Mapping[str, Any]", _submit_flow(name, submitted(config), say))
        if config.tracking.approval_s and api.kind == "own" and name in PROMOTING:
            raise ServiceError("nobody can be asked to approve: this run's Prefect server has no pages; start `slmsearch up` beside it")
        from flows.reconcile import reconcile_here

        module, _, function = FLOWS[name].partition(":")
        flow = getattr(importlib.import_module(module), function)
        be_terse(without_pages=api.kind == "own")
        if api.kind == "own":
            say("Running here with a Prefect server of its own; `slmsearch up` keeps one running, with its pages.")
            for item in reconcile_here(config.paths, config.tracking):  # runs that were killed together with a server of their own
                if item.kind == "flow run":
                    say(item.describe())
            ends.callback(_send_waiting)
        return cast("Mapping[str, Any]", flow(config))


def _send_waiting() -> None:
    """Send what waits in Prefect's background threads while its server still runs."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=10)
    EventsWorker.drain_all(timeout=10)


def _submit_flow(name: str, settings: dict[str, object], say: Say) -> Any:
    """Start a run of a deployed flow and follow it to its end."""
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment

    flow_run = cast("FlowRun", run_deployment(f"{name}/{name}", parameters={"config": settings}, timeout=0))
    say(f"Flow run {flow_run.name}; stop it with: prefect flow-run cancel {flow_run.id}")
    try:
        with get_client(sync_client=True) as client:
            state = _follow(client, flow_run, say)
    except httpx.TransportError as error:
        told = f"Prefect's server went away ({cause_of(error)})"
        raise ServiceError(f"{told} while flow run {flow_run.name} ran: start it again and look at the run there") from error
    if state.is_completed():
        return state.result()
    raise as_error(f"{state.name}: {state.message}")


def _follow(client: "SyncPrefectClient", flow_run: "FlowRun", say: Say) -> "State[Any]":
    """Print the log lines and state changes of a flow run; return its last state."""
    shown, last_state = 0, ""
    while True:
        current = client.read_flow_run(flow_run.id)
        shown += _show_logs(client, current, shown, say)
        state = current.state
        if state is not None and state.name != last_state:
            last_state = str(state.name)
            say(f"{time.strftime('%H:%M:%S')} {current.name}: {last_state}")
        if state is not None and state.is_final():
            _show_logs(client, current, shown, say)
            return state
        time.sleep(POLL_SECONDS)


def _show_logs(client: "SyncPrefectClient", flow_run: "FlowRun", shown: int, say: Say) -> int:
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.client.schemas.sorting import LogSort

    mine = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run.id]))
    logs = client.read_logs(mine, limit=200, offset=shown, sort=LogSort.TIMESTAMP_ASC)
    for log in logs:
        say(f"{log.timestamp.astimezone():%H:%M:%S} {log.message}")
    return len(logs)
