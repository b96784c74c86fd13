"""A running `slmsearch up`, flow runs submitted to it, and what both trackers and the processes say of them.

Both stores are read as they lie on disk, from outside: looking must neither disturb nor depend on what is killed.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil

from slmsearch.processes.ports import free_port
from tests.root import ROOT

START_SECONDS = 300
"""Thirty on two idle cores; most of it is the first start of two databases."""
TAKEN_SECONDS = 180
"""Three with four busy processes beside; in one run of the whole suite sixty were not enough, for a reason that is not known."""
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
LOOK_SECONDS = 0.01


def wait_for(happened: Callable[[], Any], seconds: float, what: str, look: float = LOOK_SECONDS) -> Any:
    """Wait until something is true and return it."""
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(look)
    return found


def still_alive(processes: Sequence[psutil.Process], seconds: float = 30.0) -> list[psutil.Process]:
    """Wait for processes to end; return those that have not. A zombie has: whoever inherited it has not looked yet."""
    deadline = time.monotonic() + seconds
    while (alive := [process for process in processes if _lives(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


@dataclass(frozen=True)
class TrackedRun:
    """A run in MLflow."""

    id: str
    stage: str
    status: str
    ended: str
    """Why, where it says so."""


class Stand:
    """`slmsearch up` on a home of its own."""

    def __init__(self, home: Path, settings: Sequence[str]) -> None:
        self.home, self.port, self.mlflow_port = home, free_port(), free_port()
        self.data, self.mlruns, self.log = home / "data", home / "mlruns", home / "up.log"
        ports = ["--port", str(self.port), "--mlflow-port", str(self.mlflow_port)]
        self._command = [sys.executable, "-m", "flows", "up", *ports, *settings]
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}/api", timeout=10)
        self._start()

    def _start(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        places = {"SLMSEARCH_PATHS__DATA_DIR": str(self.data), "SLMSEARCH_PATHS__MLRUNS_DIR": str(self.mlruns)}
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(self._command, stdout=file, stderr=file, cwd=ROOT, env={**kept, **places})

    def wait(self) -> None:
        wait_for(self._is_up, START_SECONDS, "`slmsearch up` is up", 0.3)
        self.password = (self.data / "prefect" / "up.auth").read_text()
        user, _, word = self.password.partition(":")
        self.client.auth = httpx.BasicAuth(user, word)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "Ctrl-C stops everything" in self.log.read_text()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(90)

    def restart(self) -> None:
        """Stop it and start it anew on the same home: it gives a service up that ends too often."""
        self.stop()
        self._start()
        self.wait()

    # Processes

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def worker(self) -> psutil.Process:
        return wait_for(lambda: self._child("worker start"), 60, "a worker runs", 0.1)

    def server(self) -> psutil.Process:
        """Return the process that answers."""
        return wait_for(self._listener, 60, "a server listens", 0.1)

    def _child(self, words: str) -> psutil.Process | None:
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.Error):
                if words in " ".join(child.cmdline()):
                    return child
        return None

    def _listener(self) -> psutil.Process | None:
        for child in self.family():
            with suppress(psutil.Error):
                if any(item.status == psutil.CONN_LISTEN and item.laddr.port == self.port for item in child.net_connections("tcp")):
                    return child
        return None

    # Prefect

    def submit(self, flow: str) -> str:
        """Start a run of a deployed flow; return its id."""
        deployment = self._ask("GET", f"/deployments/name/{flow}/{flow}")
        return str(self._ask("POST", f"/deployments/{deployment['id']}/create_flow_run", {})["id"])

    def beat_once(self, flow: str) -> str:
        """Make a flow run that shows as running, is on no pool and has no owner, and that sends one heartbeat and no more."""
        flow_id = self._ask("GET", f"/flows/name/{flow}")["id"]
        flow_run_id = str(self._ask("POST", "/flow_runs/", {"flow_id": flow_id, "state": {"type": "RUNNING"}})["id"])
        beat = {
            "id": str(uuid4()),
            "occurred": datetime.now(UTC).isoformat(),
            "event": "prefect.flow-run.heartbeat",
            "resource": {"prefect.resource.id": f"prefect.flow-run.{flow_run_id}"},
        }
        self.client.post("/events", json=[beat]).raise_for_status()
        return flow_run_id

    def flow_run(self, flow_run_id: str) -> dict[str, Any]:
        """Return a flow run as Prefect has it; it waits while the server is away."""
        return self._ask("GET", f"/flow_runs/{flow_run_id}")

    def state(self, flow_run_id: str) -> tuple[str, str]:
        """Return type and message of a flow run's state."""
        state = self.flow_run(flow_run_id)["state"]
        return str(state["type"]), str(state.get("message") or "")

    def task_runs(self, flow_run_id: str) -> dict[str, str]:
        wanted = {"flow_runs": {"id": {"any_": [flow_run_id]}}, "limit": 200}
        return {found["name"]: found["state_type"] for found in self._ask("POST", "/task_runs/filter", wanted)}

    def wait_until_final(self, flow_run_id: str, seconds: float) -> tuple[str, str]:
        wait_for(lambda: self.state(flow_run_id)[0] in FINAL, seconds, f"flow run {flow_run_id} has ended\n{self.tail()}", 0.25)
        return self.state(flow_run_id)

    def engine(self, flow_run_id: str) -> psutil.Process:
        """Return the process of a flow run, once it has one."""
        deadline = time.monotonic() + TAKEN_SECONDS
        while (pid := (found := self.flow_run(flow_run_id))["infrastructure_pid"]) is None:
            assert found["state"]["type"] not in FINAL and time.monotonic() < deadline, f"no process: {found['state']}\n{self.tail()}"
            time.sleep(0.2)
        return psutil.Process(int(pid))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        deadline = time.monotonic() + 90
        while True:
            try:
                answer = self.client.request(method, path, json=body)
                answer.raise_for_status()
                return answer.json()
            except httpx.HTTPError as error:
                assert time.monotonic() < deadline, f"{error}\n{self.tail()}"
                time.sleep(0.2)

    def tail(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-25:])

    # MLflow

    @contextmanager
    def _store(self) -> Iterator[sqlite3.Connection]:
        # A read-only connection fails on the journal that a killed writer left: it may not roll it back.
        with closing(sqlite3.connect(f"file:{self.mlruns / 'mlflow.db'}?mode=rw", uri=True, timeout=20)) as store:
            yield store

    def ask_store(self, question: str, *values: str) -> list[tuple[Any, ...]]:
        if not (self.mlruns / "mlflow.db").exists():
            return []
        with self._store() as store:
            return store.execute(question, values).fetchall()

    def tracked(self, flow_run_id: str) -> list[TrackedRun]:
        """Return the MLflow runs that a flow run has made or gone on with."""
        question = (
            "select r.run_uuid, s.value, r.status, coalesce(e.value, '') from runs r join tags t on t.run_uuid = r.run_uuid"
            " join tags s on s.run_uuid = r.run_uuid and s.key = 'slmsearch.stage'"
            " left join tags e on e.run_uuid = r.run_uuid and e.key = 'slmsearch.ended'"
            " where t.key = 'prefect.flow_run_id' and t.value = ? order by r.start_time"
        )
        return [TrackedRun(*row) for row in self.ask_store(question, flow_run_id)]

    def status_of(self, flow_run_id: str, stage: str) -> str:
        return next((run.status for run in self.tracked(flow_run_id) if run.stage == stage), "")

    def running(self) -> list[str]:
        return [row[0] for row in self.ask_store("select name from runs where status = 'RUNNING'")]

    def doubled(self) -> list[tuple[Any, ...]]:
        """Return the metric points that a run has more than once."""
        return self.ask_store("select run_uuid, key, step, count(*) from metrics group by run_uuid, key, step having count(*) > 1")

    def curve(self, run_id: str, name: str) -> list[int]:
        return [row[0] for row in self.ask_store("select step from metrics where run_uuid = ? and key = ? order by step", run_id, name)]

    def keys(self, flow_run_id: str) -> dict[str, str]:
        """Return the content key of each stage that a flow run has finished."""
        question = (
            "select s.value, k.value from runs r join tags t on t.run_uuid = r.run_uuid and t.key = 'prefect.flow_run_id' and t.value = ?"
            " join tags s on s.run_uuid = r.run_uuid and s.key = 'slmsearch.stage'"
            " join tags k on k.run_uuid = r.run_uuid and k.key = 'slmsearch.key' where r.status = 'FINISHED'"
        )
        return dict(self.ask_store(question, flow_run_id))

    def lineage(self, flow_run_id: str) -> dict[str, str]:
        """Return the keys that the flow's own run names."""
        question = (
            "select k.key, k.value from tags k join tags t on t.run_uuid = k.run_uuid and t.key = 'prefect.flow_run_id' and t.value = ?"
            " where k.key like 'slmsearch.%' and k.run_uuid not in (select run_uuid from tags where key = 'mlflow.parentRunId')"
        )
        own = ("slmsearch.owner", "slmsearch.key", "slmsearch.stage", "slmsearch.reason", "slmsearch.ended")
        return {name: value for name, value in self.ask_store(question, flow_run_id) if name not in own}

    def tables(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Return how many rows each table of some runs holds, by its file's name."""
        found = {}
        for run_id in run_ids:
            ((home,),) = self.ask_store("select artifact_uri from runs where run_uuid = ?", run_id)
            for path in sorted(Path(str(home).removeprefix("file://")).glob("eval/*.json")):
                found[f"{run_id[:6]}/{path.name}"] = len(json.loads(path.read_text())["data"])
        return found

    def champion(self) -> tuple[str, int]:
        """Return the promoted version, empty where there is none, and how many versions there are."""
        alias = self.ask_store("select version from registered_model_aliases where alias = 'champion'")
        return str(alias[0][0]) if alias else "", len(self.ask_store("select version from model_versions"))

    def unpromote(self) -> None:
        """Take the alias away, as if nothing had been promoted yet."""
        with closing(sqlite3.connect(self.mlruns / "mlflow.db", timeout=20)) as store:
            store.execute("delete from registered_model_aliases where alias = 'champion'")
            store.commit()
