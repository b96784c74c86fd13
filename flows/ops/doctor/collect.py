"""Collection of the facts, and `--fix`, which does only what loses no data. A failed look is itself a fact."""

import importlib.metadata
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
from packaging.utils import canonicalize_name

from flows.ops.doctor.checks import Facts, Listener, PrefectFacts, WatchedRuns
from flows.ops.up import POINTER, is_dead_pointer
from flows.runtime.api import SERVER, client_of, find_up, record_files, up_lives
from flows.runtime.pool import POOL
from flows.runtime.settings import read_environment
from slmsearch.artifacts.directories import find_abandoned, remove_abandoned
from slmsearch.config import PathsConfig, RetrievalConfig, TrackingConfig
from slmsearch.errors import SlmSearchError
from slmsearch.foreign import cause_of, without_credentials
from slmsearch.http_client import ANSWER_SECONDS, answers, make_client
from tasks.tracking import open_run_registry, open_tracker

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "prefect": ("prefect server", "prefect.server", SERVER),
    "mlflow": ("mlflow server", "mlflow ui", "mlflow.server"),
    "chroma": ("chroma run", "chromadb.app"),
    "model": (
        "ollama serve",
        "slmsearch.serving.engines.llama_server",
        "llama-server",
        "transformers serve",
        "vllm serve",
        "vllm.entrypoints",
    ),
}
"""Text in the command line of each kind of server."""


def look(paths: PathsConfig, retrieval: RetrievalConfig, tracking: TrackingConfig) -> Facts:
    """Collect the facts of the installation that these settings use."""
    environment, damaged = read_environment(), list[str]()
    homes = tuple(dict.fromkeys((Path(paths.data_dir), Path(paths.mlruns_dir))))
    staging = (paths.corpora, paths.corpora / "sources", paths.index, paths.evals, Path(paths.mlruns_dir))
    installed = [(found.metadata["Name"], found.version) for found in importlib.metadata.distributions()]
    pointer = Path.cwd() / POINTER
    return Facts(
        packages={canonicalize_name(name): version for name, version in reversed(installed) if name},  # of two, the first is imported
        environment=environment,
        free_bytes={str(home): shutil.disk_usage(_existing(home)).free for home in homes},
        unwritable=tuple(str(home) for home in homes if not os.access(_existing(home), os.W_OK)),
        entered_by_others=tuple(str(home) for home in homes if home.is_dir() and home.stat().st_mode & 0o007),
        listeners=tuple(_listeners(damaged)),
        prefect=_prefect(paths, environment, damaged),
        chroma_server=_chroma_server(retrieval.chroma_url) if retrieval.chroma_url else None,
        abandoned=tuple(found for home in staging for found in find_abandoned(home)),
        dead_records=() if up_lives(paths) else (*record_files(paths), *([pointer] if is_dead_pointer(pointer) else [])),
        orphans=_orphans(paths, tracking, damaged),
        damaged=tuple(damaged),
    )


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _listeners(damaged: list[str]) -> Iterator[Listener]:
    """Find this project's servers by their command lines, and the addresses on which they listen."""
    try:
        connections = psutil.net_connections(kind="inet")
    except (psutil.Error, OSError) as error:
        damaged.append(f"listening sockets cannot be seen ({type(error).__name__})")
        return
    for connection in connections:
        if connection.status != psutil.CONN_LISTEN or not connection.pid:
            continue
        try:
            process = psutil.Process(connection.pid)
            command, variables = " ".join(process.cmdline()), process.environ()
        except (psutil.Error, OSError):
            continue
        service = next((kind for kind, marks in COMMANDS.items() if any(mark in command for mark in marks)), None)
        if service is not None:
            guarded = "basic-auth" in command or "--api-key" in command or bool(variables.get("PREFECT_SERVER_API_AUTH_STRING"))
            yield Listener(service, connection.laddr.ip, connection.laddr.port, connection.pid, guarded)  # type: ignore[arg-type]


def _prefect(paths: PathsConfig, environment: Mapping[str, str], damaged: list[str]) -> PrefectFacts | None:
    """Ask the Prefect API that a run would use; None if none answers."""
    up = find_up(paths)
    address = (up.api if up else environment.get("PREFECT_API_URL", "")).rstrip("/")
    if not address or not answers(f"{address}/health", elsewhere=True):
        return None
    try:
        with client_of(paths, address) as client:
            return _ask_prefect(client, address)
    except Exception as error:  # the client raises what its transport and its parsing raise
        damaged.append(f"Prefect at {address} cannot be asked ({cause_of(error)})")
        return None


def _ask_prefect(client: "SyncPrefectClient", address: str) -> PrefectFacts:
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType, WorkerStatus

    running = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])))
    pool = next((pool for pool in client.read_work_pools() if pool.name == POOL), None)
    workers = client.read_workers_for_work_pool(POOL) if pool else []
    limits = client.read_global_concurrency_limits(limit=200, offset=0)
    return PrefectFacts(
        address,
        paused=bool(pool.is_paused) if pool else None,
        online_workers=sum(worker.status == WorkerStatus.ONLINE for worker in workers),
        taken_slots={limit.name: limit.active_slots for limit in limits},
        watches=tuple(watch for watch in map(_watch, client.read_automations()) if watch is not None),
        live_runs=len(client.read_flow_runs(flow_run_filter=running, limit=50)),
        scheduled=len(client.read_deployments(limit=50)),
    )


def _watch(automation: Any) -> WatchedRuns | None:
    trigger = automation.trigger
    if getattr(trigger, "type", "") != "event" or str(getattr(trigger.posture, "value", trigger.posture)) != "Proactive":
        return None
    return WatchedRuns(automation.name, tuple(sorted(trigger.expect)), trigger.within.total_seconds(), bool(automation.enabled))


def _chroma_server(address: str) -> tuple[str, str]:
    found = None
    with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError), make_client(ANSWER_SECONDS) as client:
        found = client.get(f"{address.rstrip('/')}/api/v2/version").json()
    return without_credentials(address), found if isinstance(found, str) else ""


def _orphans(paths: PathsConfig, tracking: TrackingConfig, damaged: list[str]) -> int:
    try:
        registry = open_run_registry(paths, tracking)
        return sum(run.status == "RUNNING" and not run.is_live for run in registry.runs()) if registry else 0
    except SlmSearchError as error:
        damaged.append(str(error))
        return 0


def remove_leftovers(facts: Facts, paths: PathsConfig, tracking: TrackingConfig) -> list[str]:
    """Remove leftovers of killed processes without losing data; return one line for each."""
    homes = dict.fromkeys(path.parent for path in facts.abandoned)
    done = [f"removed {home / name}" for home in homes for name in remove_abandoned(home)]
    for path in facts.dead_records:
        path.unlink(missing_ok=True)
        done.append(f"removed {path}")
    if facts.orphans:
        done.append(f"ended {open_tracker(paths, tracking).end_orphans()} MLflow runs as KILLED")
    return done
