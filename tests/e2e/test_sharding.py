"""One evaluation, and the demonstrations of a start, on three workers, everything real: the same result as in one process, also when a
worker dies half-way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.ops.worker import flow_runs_below
from flows.runtime.api import make_password, start_prefect_server
from flows.runtime.servers import wait_until_ready
from slmsearch.config import PathsConfig, RunConfig
from slmsearch.processes.ports import free_port
from tests.root import ROOT
from tests.slmsearch.evaluate.test_shards import without_clocks

pytestmark = pytest.mark.production
WAIT_SECONDS = 300
SETTINGS = ["--corpus.world.pages", "120", "--evaluate.policy", "untrained", "--evaluate.split", "all", "--evaluate.limit", "96"]
SETTINGS += ["--evaluate.batch_size", "8"]
SHARDED = ["--evaluate.shards", "4"]
TAUGHT = ["--corpus.world.pages", "120", "--sft.start", "gold", "--sft.steps", "2", "--sft.batch_size", "2", "--train.steps", "1"]
TAUGHT += ["--sft.tokens_per_batch", "2048", "--train.questions_per_step", "2", "--train.group_size", "2", "--train.monitor.held_out", "0"]


class Pool:
    """A Prefect server with deployments, and three workers, each with a device of its own."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()
        self.data = home / "data"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        config = RunConfig(paths=PathsConfig(data_dir=str(self.data), mlruns_dir=str(home / "mlruns")))
        self.password = make_password()
        self.server = start_prefect_server(config.paths, self.port, self.password, with_ui=False)
        wait_until_ready(self.server, f"http://127.0.0.1:{self.port}/api/health")
        done = self.run("deploy")
        assert done.returncode == 0, done.stderr

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        places = {"SLMSEARCH_PATHS__DATA_DIR": str(self.data), "SLMSEARCH_PATHS__MLRUNS_DIR": str(self.home / "mlruns")}
        address = {"PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api", "PREFECT_API_AUTH_STRING": self.password}
        return {**kept, **places, **address, **more}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flows", *words]
        return subprocess.run(command, cwd=ROOT, env=self.environment(), capture_output=True, text=True, timeout=WAIT_SECONDS)

    def start(self, name: str, device: str) -> None:
        with (self.home / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", "flows", "worker", "--name", name]
            environment = self.environment(CUDA_VISIBLE_DEVICES=device)
            self.workers[name] = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers.values():
            worker.wait(90)
        self.server.stop()

    def evaluate(self, *more: str) -> dict[str, Any]:
        done = self.run("run", "evaluate", "--json", "--here", *SETTINGS, *more)
        assert done.returncode == 0, done.stderr
        self.said = done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def in_background(self, *words: str) -> "subprocess.Popen[bytes]":
        with (self.home / "flow.log").open("wb") as log:
            command = [sys.executable, "-m", "flows", *words, "--json"]
            return subprocess.Popen(command, cwd=ROOT, env=self.environment(), stdout=log, stderr=log)

    def log(self) -> str:
        return (self.home / "flow.log").read_text()

    def kill(self, name: str) -> None:
        """Kill a worker with all that it runs, once it runs a flow."""
        victim = psutil.Process(self.workers[name].pid)
        wait_for(lambda: set(flow_runs_below(victim.pid)), self.log)
        family = [victim, *victim.children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):  # some end with the one that started them
                process.kill()
        psutil.wait_procs(family, timeout=10)
        self.workers.pop(name).wait()


def wait_for(happened: Callable[[], Any], told: Callable[[], str]) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := happened()):
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    made = Pool(tmp_path_factory.mktemp("pool"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def alone(pool: Pool) -> tuple[str, dict[str, object]]:
    """Key and content of the evaluation of one process, put out of the way of those that follow."""
    found = pool.evaluate()
    stored, aside = pool.data / "evals" / found["key"], pool.home / "alone"
    shutil.move(stored, aside)
    assert found["n"] == 96
    return found["key"], without_clocks(aside)


def test_nobody_takes_them_so_they_are_played_by_who_asked(pool: Pool, alone: tuple[str, dict[str, object]]) -> None:
    """Before any worker is there; the first test for that."""
    key, expected = alone
    assert pool.evaluate(*SHARDED, "--evaluate.shards", "2")["key"] == key
    assert without_clocks(pool.data / "evals" / key) == expected
    assert pool.said.count("is played here") == 2
    shutil.rmtree(pool.data / "evals" / key)


@pytest.fixture
def workers(pool: Pool, alone: tuple[str, dict[str, object]]) -> None:
    """Three of them, from here on."""
    for name, device in (("first", "0"), ("second", "1"), ("third", "2")):
        if name not in pool.workers:
            pool.start(name, device)


@pytest.mark.usefixtures("workers")
def test_three_workers_come_to_the_same_as_one_process(pool: Pool, alone: tuple[str, dict[str, object]]) -> None:
    key, expected = alone
    assert pool.evaluate(*SHARDED)["key"] == key
    assert without_clocks(pool.data / "evals" / key) == expected
    assert not list((pool.data / "evals" / ".shards").iterdir())
    shutil.rmtree(pool.data / "evals" / key)


@pytest.mark.usefixtures("workers")
def test_a_worker_that_dies_with_all_it_runs_is_made_good(pool: Pool, alone: tuple[str, dict[str, object]]) -> None:
    key, expected = alone
    waiting = pool.in_background("run", "evaluate", "--here", *SETTINGS, *SHARDED)
    pool.kill("first")
    assert waiting.wait(WAIT_SECONDS) == 0, pool.log()
    assert without_clocks(pool.data / "evals" / key) == expected
    assert "was lost (" in pool.log()
    shutil.rmtree(pool.data / "evals" / key)


@pytest.mark.usefixtures("workers")
def test_three_workers_demonstrate_for_a_start_and_one_dies(pool: Pool) -> None:
    waiting = pool.in_background("train", *TAUGHT, "--evaluate.shards", "3")
    pool.kill("first")
    assert waiting.wait(WAIT_SECONDS) == 0, pool.log()
    assert "was lost (" in pool.log()
    (start,) = (pool.data / "training").glob("sft-*")
    facts, weights = (start / "sft.json").read_text(), (start / "model.safetensors").read_bytes()
    assert not list((pool.data / "evals" / ".shards").iterdir()), "nothing is left of its parts"
    shutil.rmtree(start)
    alone = pool.run("train", *TAUGHT, "--json")
    assert alone.returncode == 0 and "shards" not in alone.stderr, alone.stderr
    assert (start / "model.safetensors").read_bytes() == weights
    assert {**json.loads((start / "sft.json").read_text()), "seconds": 0} == {**json.loads(facts), "seconds": 0}
