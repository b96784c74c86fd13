"""`slmsearch up`: run Prefect, MLflow, pool, limits, deployments and a worker, and stop them cleanly together.

It restarts services that end by themselves, and corrects the states of the flow runs they took with them (`tasks/reconcile.py`).
The stock `prefect` command finds the server, and its password, through a `prefect.toml` in the current folder, which exists as long as the
server runs and which its user alone can read.
"""

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.ops.deploying import deploy_flows
from flows.runtime.api import (
    UpRecord,
    find_up,
    make_password,
    page_path,
    password_path,
    record_files,
    start_prefect_server,
    use_api,
    write_record,
)
from flows.runtime.pool import POOL, prepare_pool
from flows.runtime.process_environment import prefect_home
from flows.runtime.servers import HOST, WORKER, Say, Supervised, close_service, start_service, wait_until_ready
from slmsearch.artifacts.files import replace_text
from slmsearch.config import PathsConfig, RunConfig, TrackingConfig
from slmsearch.errors import ServiceError
from slmsearch.http_client import answers
from slmsearch.processes.child import ChildProcess
from slmsearch.processes.ports import require_free_port, reserve_port
from slmsearch.processes.signals import stopping_by_signal

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

POINTER = "prefect.toml"
POINTER_MARK = "# Written by `slmsearch up`, removed when it ends."
MLFLOW = "tasks.tracking.server"
"""Command of MLflow's server, which makes its store whole or not at all."""
WORKER_SECONDS = 90.0
"""Time limit for a worker to report to the pool."""
CANCEL_SECONDS = 25.0
"""Time limit for running flow runs to end in order when everything stops."""
WATCH_SECONDS = 2.0
RECONCILE_SECONDS = 15.0
"""Time between two checks for runs that show as running and are not."""


def serve(config: RunConfig, base: Path, port: int, mlflow_port: int, say: Say) -> None:
    """Start everything, print the addresses, and keep it running until Ctrl-C or SIGTERM.

    Raises:
        ServiceError: a port is in use, a service does not start, or one ends by itself again and again.
    """
    from flows.ops.worker import reconcile_and_say

    if (up := find_up(config.paths)) is not None:
        raise ServiceError(f"`slmsearch up` runs already (process {up.pid}, {up.ui}); stop it first")
    require_free_port(mlflow_port, "--mlflow-port")
    stop = threading.Event()
    record = UpRecord(os.getpid(), f"http://{HOST}:{port}/api", f"http://{HOST}:{port}", f"http://{HOST}:{mlflow_port}")
    password = make_password()

    def correct() -> None:
        reconcile_and_say(config.paths, config.tracking, [_worker_name()], lambda text: say(f"{time.strftime('%H:%M:%S')} {text}"))

    with ExitStack() as stack:
        stack.enter_context(stopping_by_signal(stop))
        stack.enter_context(reserve_port(port, "--port"))
        services = _start_servers(config.paths, port, mlflow_port, password, stack, stop, say)
        use_api(record.api, password)
        prepare_pool(config.train)
        services.append(_start_worker(config.paths, config.tracking, stack, say))  # it needs as long to start as the rest to be deployed
        deploy_flows(config, base, say)
        for service in services:
            service.ready()
        stack.enter_context(_announced(config.paths, record, password, say))
        correct()
        _wait_for_worker(stop)
        say(_welcome(config.paths, record))
        _watch(correct, services, stop, say)
        say("stopping ...")


def _start_servers(
    paths: PathsConfig, port: int, mlflow_port: int, password: str, stack: ExitStack, stop: threading.Event, say: Say
) -> list[Supervised]:
    say(f"starting Prefect on port {port} and MLflow on port {mlflow_port}; logs are in {prefect_home(paths) / 'logs'}")
    server = Supervised(
        lambda: start_prefect_server(paths, port, password, with_ui=True),
        lambda service: wait_until_ready(service, f"http://{HOST}:{port}/api/health", stop),
    )
    stack.callback(server.stop)
    mlflow = Supervised(
        lambda: _start_mlflow(paths, mlflow_port), lambda service: wait_until_ready(service, f"http://{HOST}:{mlflow_port}/health", stop)
    )
    stack.callback(mlflow.stop)
    server.ready()
    return [server, mlflow]


def _start_mlflow(paths: PathsConfig, port: int) -> ChildProcess:
    mlruns = Path(paths.mlruns_dir)
    mlruns.mkdir(parents=True, exist_ok=True)
    arguments = [MLFLOW, "--backend-store-uri", f"sqlite:///{mlruns}/mlflow.db", "--host", HOST, "--port", str(port)]
    arguments += ["--default-artifact-root", str(mlruns / "artifacts"), "--workers", "1", "--no-serve-artifacts"]
    return start_service("the MLflow server", arguments, prefect_home(paths) / "logs" / "mlflow.log")


def _start_worker(paths: PathsConfig, tracking: TrackingConfig, stack: ExitStack, say: Say) -> Supervised:
    from flows.ops.worker import drain, end_left_flow_runs

    arguments = [WORKER, "worker", "start", "--pool", POOL, "--type", "process", "--name", _worker_name()]
    worker = Supervised(lambda: start_service("the worker", arguments, prefect_home(paths) / "logs" / "worker.log"))
    # The worker kills its flow runs when it ends, and they would show as running for ever: they are cancelled before.
    stack.callback(end_left_flow_runs, paths, tracking)
    stack.callback(worker.stop, signal.SIGINT)
    stack.callback(lambda: drain([worker.service.pid], CANCEL_SECONDS, say))
    stack.callback(lambda: close_service(worker.service))
    return worker


def _worker_name() -> str:
    return f"up-{os.getpid()}"


def _wait_for_worker(stop: threading.Event) -> None:
    from prefect.client.orchestration import get_client

    deadline = time.monotonic() + WORKER_SECONDS
    with get_client(sync_client=True) as client:
        while not any(worker.name == _worker_name() for worker in client.read_workers_for_work_pool(POOL)):
            if stop.is_set():
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                raise ServiceError(f"no worker reported to the pool {POOL!r} within {WORKER_SECONDS:.0f} s; see its log")
            time.sleep(0.5)


@contextmanager
def _announced(paths: PathsConfig, record: UpRecord, password: str, say: Say) -> Iterator[None]:
    """Write the record by which other commands find the servers, and remove it at the end."""
    write_record(paths, record, password)
    pointer = Path.cwd() / POINTER
    ours = not pointer.exists() or is_dead_pointer(pointer)
    if ours:
        replace_text(pointer, f'{POINTER_MARK}\n[api]\nurl = "{record.api}"\nauth_string = "{password}"\n', private=True)
    else:
        say(f"{pointer} is your own and stays as it is: the stock prefect command takes address and password from it")
    try:
        yield
    finally:
        for path in [*record_files(paths), *([pointer] if ours else [])]:
            path.unlink(missing_ok=True)


def is_dead_pointer(pointer: Path) -> bool:
    """Return whether a `prefect.toml` is one of this project and its server has ended."""
    text = pointer.read_text(encoding="utf-8", errors="replace") if pointer.is_file() else ""
    address = text.partition('url = "')[2].partition('"')[0]
    return text.startswith(POINTER_MARK) and not answers(f"{address}/health")


def _welcome(paths: PathsConfig, record: UpRecord) -> str:
    return "\n".join(
        [
            f"Prefect  {page_path(paths).absolute().as_uri()}",
            f"         opens {record.ui} in a browser, with its password",
            f"MLflow   {record.mlflow}",
            "Run      prefect deployment run train-and-eval/train-and-eval --watch",
            "         (in this folder; elsewhere first:",
            f'          export PREFECT_API_URL={record.api} PREFECT_API_AUTH_STRING="$(cat {shlex.quote(str(password_path(paths)))})")',
            "         slmsearch run train-and-eval",
            "Ctrl-C stops everything.",
        ]
    )


def _watch(correct: Callable[[], None], services: list[Supervised], stop: threading.Event, say: Say) -> None:
    """Restart services that ended, print state changes of flow runs, and correct states, until stopped.

    Raises:
        ServiceError: a service ended by itself again and again.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    states: dict[Any, str] = {}
    due = time.monotonic() + RECONCILE_SECONDS
    # A server that is away must be started again, not waited for.
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}), get_client(sync_client=True) as client:
        while not stop.wait(WATCH_SECONDS):
            is_due = any([service.fix_findings(say) for service in services]) or time.monotonic() > due
            with suppress(httpx.HTTPError):
                is_due = _say_changes(client, states, say) or is_due
            if is_due:
                correct()
                due = time.monotonic() + RECONCILE_SECONDS


def _say_changes(client: "SyncPrefectClient", states: dict[Any, str], say: Say) -> bool:
    """Print state changes of flow runs; return whether one ended otherwise than completed."""
    from prefect.client.schemas.sorting import FlowRunSort

    lost = False
    for run in reversed(client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=20)):
        if run.state is None or run.state.is_scheduled() or states.get(run.id) == run.state.name:
            continue
        if run.id in states or not run.state.is_final():
            say(f"{time.strftime('%H:%M:%S')} {run.name}: {run.state.name}")
            lost = lost or (run.state.is_final() and not run.state.is_completed())
        states[run.id] = str(run.state.name)
    return lost
