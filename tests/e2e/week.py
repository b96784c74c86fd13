"""A team's service for the week test: the production servers, two workers, and somebody who starts again what ends."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil

from tests.e2e.production import Command, Stack

DATA = "worker"
"""Both workers share one data directory, as the replicas of one compose service do."""
WORKERS = ("first", "second")
SERVERS = ("prefect", "mlflow")
CLIENT = str(uuid4())
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
SETTINGS = ["--config", "quick", "--corpus.world.pages", "60", "--evaluate.baselines", '["random"]',
    "--decision.min_questions", "1", "--decision.min_gain", "-2", "--nightly.fresh_pages", "40"]  # fmt: skip
"""Three steps of training, a few questions an evaluation; whatever was trained is promoted."""
PLANNER, PROBLEMS, PLANNER_SEED = "data/models/tiny-planner", 300, 1000
"""A planner that learns nothing in so few steps would else have the searcher's adapter, which has the same shapes."""


class Service:
    """The stack with workers, whose flow runs are submitted and looked at from outside."""

    def __init__(self, home: Path) -> None:
        self.stack = Stack(home)
        self.started_again: list[str] = []
        self.token: dict[str, str] = {}

    def start(self) -> None:
        """Start servers, deploy, start workers.

        The door of Prefect is not used: the API's own port is as well guarded.
        """
        self.stack.start()
        deploy = self.stack.launch("deploy", self.stack.client(DATA, ["slmsearch", "deploy", *SETTINGS]))
        assert deploy.wait(240) == 0, self.stack.log("deploy")
        self.stack.processes.pop("deploy")
        user, _, password = self.stack.secret("prefect_auth").partition(":")
        self.client = httpx.Client(base_url=f"{self.stack.url('prefect')}/api", auth=(user, password), timeout=20)
        self.defaults = self._ask("GET", "/deployments/name/train-and-eval/train-and-eval")["parameters"]["config"]
        for name in WORKERS:
            self.stack.launch(name, self.command(name))

    def command(self, name: str) -> Command:
        """What is started under a name."""
        if name in WORKERS:
            device = str(WORKERS.index(name))
            return self.stack.client(DATA, ["slmsearch", "worker", "--name", name], CUDA_VISIBLE_DEVICES=device)
        return {"prefect": self.stack._prefect, "mlflow": self.stack._mlflow}[name]()

    def tend(self) -> None:
        """Start again what has ended, as systemd and compose do."""
        for name in (*SERVERS, *WORKERS):
            process = self.stack.processes[name]
            if process.poll() is not None:
                self.started_again.append(f"{name} ({process.returncode})")
                shutil.copy(self.stack.home / f"{name}.log", self.stack.home / f"{name}.{len(self.started_again)}.log")
                self.stack.launch(name, self.command(name))

    def submit(self, flow: str, world: int) -> str:
        """Start a run of a deployed flow on one of several worlds; return its id.

        So few steps may teach nothing: the seed makes the adapters of different worlds differ nevertheless.
        """
        deployment = self._ask("GET", f"/deployments/name/{flow}/{flow}")
        corpus, train = (self.defaults.get(name, {}) for name in ("corpus", "train"))
        world_corpus = {**corpus, "world": {**corpus.get("world", {}), "seed": world}}
        config = {**self.defaults, "corpus": world_corpus, "train": {**train, "seed": world}}
        if flow == "train-planner":
            config |= {"policy": {**self.defaults.get("policy", {}), "model": PLANNER}, "planner": {"limit": PROBLEMS, "seed": world}}
            config["train"] = {**train, "seed": PLANNER_SEED + world}
        return str(self._ask("POST", f"/deployments/{deployment['id']}/create_flow_run", {"parameters": {"config": config}})["id"])

    def state(self, flow_run: str) -> dict[str, Any]:
        """Return type and message of a flow run's state."""
        found = self._ask("GET", f"/flow_runs/{flow_run}")["state"]
        assert isinstance(found, dict)
        return found

    def taken_slots(self) -> int:
        """Return how many slots of limits are taken."""
        return sum(limit["active_slots"] for limit in self._ask("POST", "/v2/concurrency_limits/filter", {}))

    def unfinished(self) -> list[str]:
        """Return the flow runs that show as running, or as about to."""
        wanted = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}}}
        return [found["name"] for found in self._ask("POST", "/flow_runs/filter", wanted)]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        deadline = time.monotonic() + 120
        while True:
            try:
                answer = self.client.request(method, path, json=body, headers=self.token if method != "GET" else {})
                if answer.status_code == 403:  # the token that keeps other sites' pages out is missing or too old
                    given = self.client.get("/csrf-token", params={"client": CLIENT})
                    self.token = {"Prefect-Csrf-Token": given.raise_for_status().json()["token"], "Prefect-Csrf-Client": CLIENT}
                    answer = self.client.request(method, path, json=body, headers=self.token)
                answer.raise_for_status()
                return answer.json()
            except httpx.HTTPError as error:
                assert time.monotonic() < deadline, f"{error}\n{self.stack.log('prefect')[-2000:]}"
                self.tend()
                time.sleep(0.3)

    # Killing

    def kill_flow(self, flow_run: str, number: signal.Signals) -> bool:
        """Send a signal to the process of a flow run; say whether there was one."""
        pid = self._ask("GET", f"/flow_runs/{flow_run}")["infrastructure_pid"]
        try:
            process = psutil.Process(int(str(pid).rpartition(":")[2]))
            if process.environ().get("PREFECT__FLOW_RUN_ID") != flow_run:
                return False
            process.send_signal(number)
        except (psutil.Error, ValueError):
            return False
        return True

    def kill(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a worker alone; to all processes of a server, as the end of a container does."""
        process = self.stack.processes[name]
        with suppress(ProcessLookupError):
            if name in SERVERS and number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    def ours(self) -> list[psutil.Process]:
        """Return the living processes that work in the data directory and are not workers themselves."""
        place, found = str(self.stack.home / DATA), []
        workers = {self.stack.processes[name].pid for name in WORKERS if name in self.stack.processes}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                lives = process.pid not in workers and process.status() != psutil.STATUS_ZOMBIE
                if lives and process.environ().get("SLMSEARCH_PATHS__DATA_DIR", "").startswith(place):
                    found.append(process)
        return found

    def stop_workers(self) -> None:
        """End the workers as an init system does."""
        for name in WORKERS:
            self.stack.processes[name].send_signal(signal.SIGTERM)
        for name in WORKERS:
            assert self.stack.processes.pop(name).wait(120) == 0, self.stack.log(name)

    # Stores

    def sizes(self) -> dict[str, int]:
        """Bytes of each store."""
        databases = {name: int(self.stack.query(name, f"select pg_database_size('{name}')")[0]) for name in ("prefect", "mlflow")}
        folders = {"data": self.stack.home / DATA, "artifacts": self.stack.home / "artifacts"}
        return {**databases, **{name: disk_usage(folder) for name, folder in folders.items()}}

    def adapters(self) -> int:
        """Return how many adapters have been trained."""
        return sum(1 for _ in (self.stack.home / DATA / "training").glob("*/manifest.json"))


def disk_usage(folder: Path) -> int:
    """Return the bytes below a folder, less logs; what goes away meanwhile does not count."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.suffix != ".log":
                total += path.stat().st_size
    return total


def wait_for(happened: Callable[[], object], seconds: float, what: Callable[[], str]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)
