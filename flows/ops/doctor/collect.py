"""Collecting the facts. What cannot be looked at is itself a fact; nothing here changes anything."""

import importlib.metadata
import json
import os
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from packaging.utils import canonicalize_name

from flows.cli.settings import find_project_root, read_environment
from flows.ops.api import SERVER, client_of, find_up, record_files
from flows.ops.doctor.facts import Facts, LastNight, Limit, Listener, Pool, PrefectFacts, Watch
from flows.ops.up import POINTER, POINTER_MARK
from slmsearch.artifacts.directories import find_abandoned
from slmsearch.config import RunConfig
from slmsearch.errors import SlmSearchError
from slmsearch.evaluate.nights import load_nights
from slmsearch.http_client import answers
from slmsearch.learn.files import LOCK, MANIFEST
from slmsearch.learn.launch import is_held
from tasks.paths import NIGHTS, corpora_dir, evals_dir, index_dir, trainings_dir
from tasks.retention import children
from tasks.tracking import open_run_registry

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "prefect": ("prefect server", "prefect.server", SERVER),
    "mlflow": ("mlflow server", "mlflow ui", "mlflow.server"),
    "chroma": ("chroma run", "chromadb.app"),
    "model": ("ollama serve", "llama_cpp.server", "llama-server", "vllm serve", "vllm.entrypoints"),
}
"""What the command line of each kind of server holds."""


def look(config: RunConfig) -> Facts:
    """Collect the facts of the installation that a configuration uses."""
    from flows.ops.device import device_names

    environment, damaged = read_environment(), list[str]()
    homes = tuple(dict.fromkeys((Path(config.paths.data_dir), Path(config.paths.mlruns_dir))))
    return Facts(
        python=sys.version_info[:2],
        packages=_packages(),
        requirements=tuple(importlib.metadata.requires("slmsearch") or ()),
        environment=environment,
        free_bytes={str(home): shutil.disk_usage(_existing(home)).free for home in homes},
        unwritable=tuple(str(home) for home in homes if not os.access(_existing(home), os.W_OK)),
        entered_by_others=tuple(str(home) for home in homes if home.is_dir() and home.stat().st_mode & 0o007),
        listeners=tuple(_listeners(damaged)),
        prefect=_prefect(config, environment, damaged),
        prefect_expected=environment.get("PREFECT_API_URL", ""),
        devices=tuple(device_names(config, environment)),
        chroma_server=_chroma_server(environment),
        abandoned=tuple(found for home in _staging_homes(config) for found in find_abandoned(home)),
        dead_records=tuple(_dead_records(config)),
        dead_locks=tuple(_dead_locks(trainings_dir(config))),
        orphans=_orphans(config, damaged),
        nights=tuple(_nights(config, damaged)),
        file_store=any(Path(config.paths.mlruns_dir).glob("[0-9]*/meta.yaml")),
        damaged=tuple(damaged),
    )


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(canonicalize_name(name), distribution.version)
    return found


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _listeners(damaged: list[str]) -> Iterator[Listener]:
    """Find servers of ours by their command lines, and where they listen."""
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


def prefect_address(config: RunConfig, environment: Mapping[str, str]) -> str | None:
    """Return the Prefect API that a run would use and that answers; None where there is none."""
    up = find_up(config)
    address = (up.api if up else environment.get("PREFECT_API_URL", "")).rstrip("/")
    return address if address and answers(f"{address}/health", elsewhere=True) else None


def _prefect(config: RunConfig, environment: Mapping[str, str], damaged: list[str]) -> PrefectFacts | None:
    address = prefect_address(config, environment)
    if address is None:
        return None
    try:
        with client_of(config, address) as client:
            return _ask_prefect(client, address)
    except Exception as error:  # the client raises what its transport and its parsing raise
        damaged.append(f"Prefect at {address} cannot be asked ({' '.join(str(error).split())[:150]})")
        return None


def _ask_prefect(client: "SyncPrefectClient", address: str) -> PrefectFacts:
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType, WorkerStatus

    running = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])))
    pools = [
        Pool(pool.name, bool(pool.is_paused),
            sum(worker.status == WorkerStatus.ONLINE for worker in client.read_workers_for_work_pool(pool.name)))
        for pool in client.read_work_pools()
    ]  # fmt: skip
    limits = [Limit(limit.name, limit.limit, limit.active_slots) for limit in client.read_global_concurrency_limits(limit=200, offset=0)]
    automations = client.read_automations()
    live, scheduled = len(client.read_flow_runs(flow_run_filter=running, limit=50)), len(client.read_deployments(limit=50))
    watches = tuple(watch for automation in automations if (watch := _watch(automation)) is not None)
    return PrefectFacts(address, tuple(pools), tuple(limits), watches, tuple(found.name for found in automations), live, scheduled)


def _watch(automation: Any) -> Watch | None:
    trigger = automation.trigger
    if getattr(trigger, "type", "") != "event" or str(getattr(trigger.posture, "value", trigger.posture)) != "Proactive":
        return None
    return Watch(automation.name, tuple(sorted(trigger.expect)), trigger.within.total_seconds(), bool(automation.enabled))


def _chroma_server(environment: Mapping[str, str]) -> tuple[str, str] | None:
    host = environment.get("CHROMA_SERVER_HOST") or environment.get("CHROMA_HOST")
    if not host:
        return None
    port = environment.get("CHROMA_SERVER_HTTP_PORT") or environment.get("CHROMA_PORT") or "8000"
    address = f"http://{host.removeprefix('http://')}:{port}"
    try:
        with urllib.request.urlopen(f"{address}/api/v2/version", timeout=3) as response:
            found = json.loads(response.read(1000))
    except (OSError, ValueError):
        found = ""
    return address, found if isinstance(found, str) else ""


def _staging_homes(config: RunConfig) -> list[Path]:
    return [corpora_dir(config), corpora_dir(config) / "sources", index_dir(config), evals_dir(config), Path(config.paths.mlruns_dir)]


def _dead_records(config: RunConfig) -> Iterator[Path]:
    """Find records and passwords of `slmsearch up` whose server is gone."""
    pointer = find_project_root() / POINTER
    if find_up(config) is None:
        yield from record_files(config)
    if pointer.is_file() and pointer.read_text(encoding="utf-8", errors="replace").startswith(POINTER_MARK):
        address = pointer.read_text(encoding="utf-8").partition('url = "')[2].partition('"')[0]
        if not answers(f"{address}/health", elsewhere=True):
            yield pointer


def _dead_locks(trainings: Path) -> Iterator[Path]:
    for lock in sorted(trainings.glob(f"*/{LOCK}")):
        if not is_held(lock.parent) and not (lock.parent / MANIFEST).is_file():
            yield lock.parent


def _nights(config: RunConfig, damaged: list[str]) -> Iterator[LastNight]:
    for folder in children(Path(config.paths.mlruns_dir) / NIGHTS):
        nights, odd = load_nights(folder)
        damaged += odd
        try:
            age_s = time.time() - datetime.fromisoformat(nights[0].at).timestamp() if nights else 0.0
        except ValueError:
            damaged.append(f"night {nights[0].night} of {folder.name} does not say when it ended")
            continue
        if nights:
            yield LastNight(folder.name, nights[0].night, age_s / 3600, config.nightly.late_h, not nights[0].is_green)


def _orphans(config: RunConfig, damaged: list[str]) -> int:
    try:
        registry = open_run_registry(config)
        return sum(run.status == "RUNNING" and not run.is_live for run in registry.runs()) if registry else 0
    except SlmSearchError as error:
        damaged.append(" ".join(str(error).split()))
        return 0
