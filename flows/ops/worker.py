"""`slmsearch ops worker`: a worker of the pool that ends in order; compose, systemd and Kubernetes start it.

Prefect's own worker kills its flow runs when it is terminated, and they show as running for ever. This worker takes no more flow runs, and
cancels those it has first. States are then correct, and another worker can go on from their checkpoints and take the scheduled runs.

A worker takes every scheduled flow run that it finds. It must not take those shards of an evaluation that another machine could play
meanwhile, so in a pool of processes a second worker looks after their queue, with a limit.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import httpx
import psutil

from flows.runtime.pool import POOL
from flows.runtime.process_environment import prefect_home
from flows.runtime.servers import WORKER, Say, close_service, last_line, start_service
from slmsearch.config import PathsConfig, TrackingConfig, TrainConfig
from slmsearch.errors import ServiceError
from slmsearch.foreign import cause_of
from slmsearch.processes.child import ChildProcess
from slmsearch.processes.signals import stopping_by_signal
from tasks.owners import RUN_VARIABLE, process_of

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

DRAIN_SECONDS = 60.0
"""Time limit for running flow runs to end; less than compose's `stop_grace_period` and systemd's `TimeoutStopSec`."""
LEFT_SECONDS = 20.0
"""Time limit for a terminated flow run without a worker to save a checkpoint."""
REPORT_SECONDS = 5.0
"""Time limit for the worker to report each flow run whose process has ended."""
SETTLE_SECONDS = 2.0
"""Time limit for the flow runs that a closed worker had begun to take to get their process."""
TERMINATED = "its worker was terminated"
RECONCILE_SECONDS = 60.0
"""Time between two checks for runs that show as running and are not."""
SILENCE_SECONDS = 90.0
"""Time since its last report after which a worker counts as dead."""
SHARD_QUEUE = "shards"
"""Work queue of the deployment `evaluate-shard`."""
SHARDS = "-shards"
"""Suffix of the name of the worker of that queue."""


def worker_name() -> str:
    """Return the name of this machine's worker if the user gave none."""
    return f"worker-{socket.gethostname()}"


def serve_worker(paths: PathsConfig, tracking: TrackingConfig, train: TrainConfig, name: str, limit: int, say: Say) -> None:
    """Start a worker and keep it until Ctrl-C or SIGTERM; then cancel its flow runs, wait for them, and end.

    Args:
        paths, tracking: name the directory of logs and the store whose states are corrected.
        train: has the number of devices.
        name: name of the worker in its pool.
        limit: flow runs at a time, 0 for any number; shards of evaluations do not count.
        say: receives lines for a person.

    Raises:
        ServiceError: the pool does not exist, or the worker ended by itself.
    """
    plans = _plan(name, limit, train)
    stop = threading.Event()
    correct = partial(reconcile_and_say, paths, tracking, frozenset(plans), say)
    with ExitStack() as stack:
        stack.enter_context(stopping_by_signal(stop))
        threading.Thread(target=_keep_states_true, args=(correct, stop), daemon=True).start()
        workers = []
        for each, options in plans.items():
            workers.append(_start(each, options, paths))
            stack.callback(workers[-1].stop, first=signal.SIGINT)
        say(f"worker {name} of pool {POOL} at {os.environ.get('PREFECT_API_URL')}; its log is {workers[0].log}")
        while not stop.wait(1.0):
            for worker in workers:
                if not worker.is_alive:
                    end = f"ended by itself (exit code {worker.process.returncode}): {last_line(worker.log)}"
                    raise ServiceError(f"{worker.name} {end}")
        say("stopping: its flow runs are cancelled ...")
        for worker in workers:
            close_service(worker)
        drain([worker.process.pid for worker in workers], DRAIN_SECONDS, say)


def _keep_states_true(correct: Callable[[], None], stop: threading.Event) -> None:
    """Correct the states now and then periodically, until stopped."""
    correct()
    while not stop.wait(RECONCILE_SECONDS):
        correct()


def reconcile_and_say(paths: PathsConfig, tracking: TrackingConfig, workers: Collection[str], say: Say) -> None:
    """Correct the states and print what was wrong; the next round asks a tracker again that does not answer."""
    from prefect.exceptions import PrefectException

    from flows.reconcile import reconcile_here

    try:
        for item in reconcile_here(paths, tracking, workers):
            say(item.describe())
    except (httpx.HTTPError, PrefectException, ServiceError) as error:  # a run may be deleted between two questions about it
        say(f"states cannot be compared now: {cause_of(error)}")


def _plan(name: str, limit: int, train: TrainConfig) -> dict[str, list[str]]:
    """Return the workers to start and their options: name -> options."""
    from flows.runtime.device import device_names

    bounded = ["--limit", str(limit)] if limit else []
    with _pool_client() as client:
        if client.read_work_pool(POOL).type != "process":  # what is started elsewhere needs no device here
            return {name: bounded}
    devices = len(device_names(train))
    return {name: ["--work-queue", "default", *bounded], f"{name}{SHARDS}": ["--work-queue", SHARD_QUEUE, "--limit", str(devices)]}


@contextmanager
def _pool_client() -> "Iterator[SyncPrefectClient]":
    """Yield a client for questions about the pool.

    Raises:
        ServiceError: the pool does not exist, or the API does not answer.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    try:
        with get_client(sync_client=True) as client:
            yield client
    except ObjectNotFound:
        raise ServiceError(f"the work pool {POOL!r} is missing; make it with `slmsearch ops deploy`") from None
    except httpx.HTTPError as error:
        remedy = "start it, or fix PREFECT_API_URL and PREFECT_API_AUTH_STRING"
        raise ServiceError(f"the Prefect API cannot be asked ({cause_of(error)}); {remedy}") from error


def _start(name: str, options: list[str], paths: PathsConfig) -> ChildProcess:
    arguments = [WORKER, "worker", "start", "--pool", POOL, "--name", name, *options]
    return start_service(f"the worker {name}", arguments, prefect_home(paths) / "logs" / f"{name}.log")


def drain(workers: Sequence[int], timeout_s: float, say: Say) -> None:
    """Cancel the flow runs of closed workers, given by process id, and wait for them; name those that do not end in time."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    cancelled: set[UUID] = set()
    settled, deadline = time.monotonic() + SETTLE_SECONDS, time.monotonic() + timeout_s
    try:
        with get_client(sync_client=True) as client:
            while (runs := {run for worker in workers for run in flow_runs_below(worker)}) or time.monotonic() < settled:
                if time.monotonic() > deadline:
                    say(f"not ended within {timeout_s:.0f} s and killed: {', '.join(sorted(map(str, runs)))}")
                    break
                for run in runs - cancelled:
                    client.set_flow_run_state(run, Cancelling(message=TERMINATED))
                    cancelled.add(run)
                time.sleep(0.5)
            for run in cancelled:
                _see_cancelled(client, run, time.monotonic() + REPORT_SECONDS)
    except httpx.HTTPError as error:
        say(f"its flow runs cannot be cancelled and are killed; the next worker says so to Prefect: {cause_of(error)}")


def _see_cancelled(client: "SyncPrefectClient", run: UUID, deadline: float) -> None:
    """Wait until the worker has reported a flow run as ended; report it here if the worker does not.

    Prefect's worker first tells the flow run's process why it is terminated, and waits a second for its answer. On a machine under load the
    process does not read it in time, and reports that it has crashed.
    """
    from prefect.states import Cancelled

    while (state := client.read_flow_run(run).state) is not None and not state.is_final() and time.monotonic() < deadline:
        time.sleep(0.5)
    if state is not None and (state.is_crashed() or not state.is_final()):
        client.set_flow_run_state(run, Cancelled(message=TERMINATED), force=True)


def flow_runs_below(pid: int) -> Iterator[UUID]:
    """Find the flow runs among the descendants of a process."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error, ValueError):
                if found := child.environ().get(RUN_VARIABLE):
                    yield UUID(found)


def end_left_flow_runs(paths: PathsConfig, tracking: TrackingConfig) -> None:
    """End the processes of flow runs that their worker left behind on this machine, and record it in both trackers."""
    from prefect.client.orchestration import get_client

    from flows.reconcile import reconcile_here
    from tasks.reconcile import live_flow_runs
    from tasks.tracking import OWNER

    with suppress(httpx.HTTPError, ServiceError), get_client(sync_client=True) as client:
        found = [process_of(str(run.labels.get(OWNER, ""))) for run in live_flow_runs(client, POOL) if run.work_pool_name == POOL]
        left = [process for process in found if process is not None]
        for process in left:
            with suppress(psutil.Error):
                process.terminate()
        for process in psutil.wait_procs(left, timeout=LEFT_SECONDS)[1]:
            with suppress(psutil.Error):
                process.kill()
        reconcile_here(paths, tracking)


def check_worker(name: str) -> float:
    """Return how many seconds ago a worker of the pool reported.

    Raises:
        ServiceError: the pool or the worker is not known, or its last report is too old.
    """
    from prefect.types._datetime import now

    with _pool_client() as client:
        workers = client.read_workers_for_work_pool(POOL)
    beats = [worker.last_heartbeat_time for worker in workers if worker.name == name and worker.last_heartbeat_time]
    if not beats:
        raise ServiceError(f"no worker {name} has ever reported to pool {POOL!r}; start it with `slmsearch ops worker`")
    silent = float((now("UTC") - max(beats)).total_seconds())
    if silent > SILENCE_SECONDS:
        raise ServiceError(f"worker {name} has been silent for {silent:.0f} s; see its log, start it again")
    return silent
