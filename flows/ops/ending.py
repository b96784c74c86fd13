"""How flow runs end when the worker that runs them is stopped, or has gone."""

import time
from contextlib import suppress

import httpx
import psutil
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType, WorkPoolFilter, WorkPoolFilterName
from prefect.client.schemas.objects import StateType
from prefect.states import Cancelling

from flows.ops.pool import POOL
from flows.reconcile import reconcile_here
from slmsearch.config import RunConfig
from slmsearch.errors import ServiceError
from tasks.owners import process_of
from tasks.reconcile import live_flow_runs
from tasks.tracking import OWNER

CANCEL_SECONDS = 25.0
"""Time running flow runs get to end in order when everything is stopped."""
LEFT_SECONDS = 20.0
"""Time a flow run that no worker looks after gets to save a checkpoint when it is terminated."""


def cancel_flow_runs() -> None:
    """Cancel what runs on the pool and wait for it to end, so that its states are true."""
    live = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING, StateType.CANCELLING])
    runs = FlowRunFilter(state=FlowRunFilterState(type=live))
    pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL]))
    deadline = time.monotonic() + CANCEL_SECONDS
    with suppress(httpx.HTTPError), get_client(sync_client=True) as client:  # without a server, `end_left_flow_runs` is what can be done
        for run in client.read_flow_runs(flow_run_filter=runs, work_pool_filter=pool):
            client.set_flow_run_state(run.id, Cancelling(message="`slmsearch up` was stopped"))
        while time.monotonic() < deadline and client.read_flow_runs(flow_run_filter=runs, work_pool_filter=pool):
            time.sleep(0.5)


def end_left_flow_runs(config: RunConfig) -> None:
    """End the processes of flow runs of the pool that their worker has left behind on this machine, and say so in both trackers."""
    with suppress(httpx.HTTPError, ServiceError), get_client(sync_client=True) as client:
        found = [process_of(str(run.labels.get(OWNER, ""))) for run in live_flow_runs(client, POOL) if run.work_pool_name == POOL]
        left = [process for process in found if process is not None]
        for process in left:
            _signal(process, kill=False)
        for process in psutil.wait_procs(left, timeout=LEFT_SECONDS)[1]:
            _signal(process, kill=True)
        reconcile_here(config)


def _signal(process: psutil.Process, kill: bool) -> None:
    with suppress(psutil.Error):
        process.kill() if kill else process.terminate()
