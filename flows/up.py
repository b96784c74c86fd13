"""`slmsearch up`: Prefect, MLflow, pool, limits, deployments and a worker; stopped cleanly together.

The stock `prefect` command finds the server through a `prefect.toml` in the project root, which lives as long as the server.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.api import UpRecord, find_up, record_path, start_prefect_server, write_record
from flows.runner import POOL
from flows.servers import HOST, Service, answers, last_line, start_service, stop_service, wait_until_ready
from flows.settings import find_project_root, recordable
from flows.surroundings import prefect_home
from slmsearch.config import RunConfig
from slmsearch.errors import ServiceError
from slmsearch.serve.ports import require_free_port

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

PREFECT_FILE = "deployments/prefect.yaml"
POINTER = "prefect.toml"
POINTER_MARK = "# Written by `slmsearch up`, removed when it ends."
WORKER_SECONDS = 90.0
"""Time a worker may take to report to the pool."""
CANCEL_SECONDS = 25.0
"""Time running flow runs get to end in order when everything is stopped."""
WATCH_SECONDS = 2.0

Say = Callable[[str], None]


def serve(config: RunConfig, port: int, mlflow_port: int, say: Say) -> None:
    """Start everything, say where it is, and keep it until Ctrl-C or SIGTERM.

    Raises:
        ServiceError: a port is taken, a service does not start, or one ends by itself.
    """
    if (up := find_up(config)) is not None:
        raise ServiceError(f"`slmsearch up` runs already (process {up.pid}, {up.ui}); stop it first")
    require_free_port(port, "--port")
    require_free_port(mlflow_port, "--mlflow-port")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    record = UpRecord(os.getpid(), f"http://{HOST}:{port}/api", f"http://{HOST}:{port}", f"http://{HOST}:{mlflow_port}")
    with ExitStack() as stack:
        services = _start_servers(config, port, mlflow_port, stack, say)
        os.environ["PREFECT_API_URL"] = record.api
        _deploy(config, say)
        services.append(_start_worker(config, stack))
        stack.enter_context(_announced(config, record))
        _wait_for_worker()
        say(_welcome(record))
        _watch(services, stop, say)
        say("stopping ...")


def _start_servers(config: RunConfig, port: int, mlflow_port: int, stack: ExitStack, say: Say) -> list[Service]:
    say(f"starting Prefect on port {port} and MLflow on port {mlflow_port}; logs are in {prefect_home(config) / 'logs'}")
    server = start_prefect_server(config, port, with_ui=True)
    stack.callback(stop_service, server)
    mlflow = _start_mlflow(config, mlflow_port)
    stack.callback(stop_service, mlflow)
    wait_until_ready(server, f"http://{HOST}:{port}/api/health")
    wait_until_ready(mlflow, f"http://{HOST}:{mlflow_port}/health")
    return [server, mlflow]


def _start_mlflow(config: RunConfig, port: int) -> Service:
    mlruns = Path(config.paths.mlruns_dir)
    mlruns.mkdir(parents=True, exist_ok=True)
    arguments = ["mlflow", "server", "--backend-store-uri", f"sqlite:///{mlruns}/mlflow.db", "--host", HOST, "--port", str(port)]
    arguments += ["--default-artifact-root", str(mlruns / "artifacts"), "--workers", "1"]
    return start_service("the MLflow server", arguments, prefect_home(config) / "logs" / "mlflow.log")


def _start_worker(config: RunConfig, stack: ExitStack) -> Service:
    arguments = ["prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name", _worker_name()]
    worker = start_service("the worker", arguments, prefect_home(config) / "logs" / "worker.log")
    # The worker kills its flow runs when it ends, and they would show as running for ever: they are cancelled before.
    stack.callback(stop_service, worker, first=signal.SIGINT)
    stack.callback(_cancel_runs)
    return worker


def _worker_name() -> str:
    return f"up-{os.getpid()}"


def _deploy(config: RunConfig, say: Say) -> None:
    """Create pool and limits, deploy everything, and make this config the deployments' default."""
    from prefect.client.orchestration import get_client

    from flows.device import create_limits, device_names

    with get_client(sync_client=True) as client:
        _create_pool(client)
        create_limits(client, device_names(config))
        say(f"deploying {PREFECT_FILE}")
        command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", PREFECT_FILE]
        done = subprocess.run(command, cwd=find_project_root(), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            cause = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise ServiceError(f"prefect deploy failed: {cause}; see {PREFECT_FILE}")
        _set_default_parameters(client, recordable(config, only_changed=True))


def _create_pool(client: "SyncPrefectClient") -> None:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    try:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    except ObjectAlreadyExists:
        return


def _set_default_parameters(client: "SyncPrefectClient", config: dict[str, Any]) -> None:
    from prefect.client.schemas.actions import DeploymentUpdate

    from flows.runner import FLOWS

    for name in FLOWS:
        if name == "train":
            continue
        deployment = client.read_deployment_by_name(f"{name}/{name}")
        client.update_deployment(deployment.id, DeploymentUpdate(parameters={"config": config}))


def _wait_for_worker() -> None:
    from prefect.client.orchestration import get_client

    deadline = time.monotonic() + WORKER_SECONDS
    with get_client(sync_client=True) as client:
        while not any(worker.name == _worker_name() for worker in client.read_workers_for_work_pool(POOL)):
            if time.monotonic() > deadline:
                raise ServiceError(f"no worker reported to the pool {POOL!r} within {WORKER_SECONDS:.0f} s; see its log")
            time.sleep(0.5)


@contextmanager
def _announced(config: RunConfig, record: UpRecord) -> Iterator[None]:
    """Let other commands find what is served."""
    write_record(config, record)
    pointer = find_project_root() / POINTER
    ours = _may_replace(pointer)
    if ours:
        pointer.write_text(f'{POINTER_MARK}\n[api]\nurl = "{record.api}"\n')
    try:
        yield
    finally:
        record_path(config).unlink(missing_ok=True)
        if ours:
            pointer.unlink(missing_ok=True)


def _may_replace(pointer: Path) -> bool:
    """Say whether a pointer is missing, or one of ours to a server that is gone."""
    if not pointer.exists():
        return True
    text = pointer.read_text(encoding="utf-8", errors="replace")
    address = text.partition('url = "')[2].partition('"')[0]
    return text.startswith(POINTER_MARK) and not answers(f"{address}/health")


def _welcome(record: UpRecord) -> str:
    return "\n".join(
        [
            f"Prefect  {record.ui}",
            f"MLflow   {record.mlflow}",
            "Run      prefect deployment run train-and-eval/train-and-eval --watch",
            "         (in this folder; elsewhere first: export PREFECT_API_URL=" + record.api + ")",
            "         slmsearch run train-and-eval",
            "Ctrl-C stops everything.",
        ]
    )


def _watch(services: list[Service], stop: threading.Event, say: Say) -> None:
    """Say how flow runs change, until told to stop.

    Raises:
        ServiceError: a service ended by itself.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import FlowRunSort

    states: dict[Any, str] = {}
    with get_client(sync_client=True) as client:
        while not stop.wait(WATCH_SECONDS):
            for service in services:
                if not service.is_alive:
                    raise ServiceError(f"{service.name} ended by itself (exit code {service.process.returncode}): {last_line(service.log)}")
            for run in reversed(client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=20)):
                if run.state is None or run.state.is_scheduled() or states.get(run.id) == run.state.name:
                    continue
                if run.id in states or not run.state.is_final():
                    say(f"{time.strftime('%H:%M:%S')} {run.name}: {run.state.name}")
                states[run.id] = str(run.state.name)


def _cancel_runs() -> None:
    """Cancel what runs on the pool and wait for it to end, so that its states are true."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType, WorkPoolFilter, WorkPoolFilterName
    from prefect.client.schemas.objects import StateType
    from prefect.states import Cancelling

    live = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING, StateType.CANCELLING])
    runs = FlowRunFilter(state=FlowRunFilterState(type=live))
    pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL]))
    deadline = time.monotonic() + CANCEL_SECONDS
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=runs, work_pool_filter=pool):
            client.set_flow_run_state(run.id, Cancelling(message="`slmsearch up` was stopped"))
        while time.monotonic() < deadline and client.read_flow_runs(flow_run_filter=runs, work_pool_filter=pool):
            time.sleep(0.5)
