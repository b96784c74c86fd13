"""`slmsearch up` with everything real: server, MLflow, worker, the stock `prefect` command, and the end of it all."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.servers import answers, free_port
from flows.settings import find_project_root

ROOT = find_project_root()
START_SECONDS = 300
"""Thirty on two idle cores; most of it is the first start of two databases."""
SMALL_WORLD = ["--corpus.world.pages", "40"]


class Up:
    """A running `slmsearch up`."""

    def __init__(self, log: Path) -> None:
        self.port, self.mlflow_port, self.log = free_port(), free_port(), log
        ports = ["--port", str(self.port), "--mlflow-port", str(self.mlflow_port)]
        with log.open("wb") as file:
            self.process = subprocess.Popen([sys.executable, "-m", "flows", "up", *ports, *SMALL_WORLD], stdout=file, stderr=file, cwd=ROOT)

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while "Ctrl-C stops everything" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.3)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("up")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLMSEARCH_PATHS__DATA_DIR", str(home / "data"))
        patch.setenv("SLMSEARCH_PATHS__MLRUNS_DIR", str(home / "mlruns"))
        for name in ("PREFECT_HOME", "PREFECT_API_URL"):
            patch.delenv(name, raising=False)
        started = Up(home / "up.log")
        try:
            started.wait()
            yield started
        finally:
            started.process.send_signal(signal.SIGTERM)
            started.process.wait(60)


@pytest.fixture
def environment(up: Up, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As a second terminal in the project's folder has it: nothing says where Prefect is."""
    home = up.log.parent
    variables = {"SLMSEARCH_PATHS__DATA_DIR": str(home / "data"), "SLMSEARCH_PATHS__MLRUNS_DIR": str(home / "mlruns")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**kept, **variables}


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_the_stock_prefect_command_finds_and_runs_the_deployments(up: Up, environment: dict[str, str]) -> None:
    listed = run(environment, "prefect", "deployment", "ls")
    for name in ("train-and-eval", "evaluate", "reindex", "validate"):
        assert f"{name}/{name}" in listed.stdout
    done = run(environment, "prefect", "deployment", "run", "validate/validate", "--watch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Completed" in done.stdout
    refused = run(environment, "prefect", "deployment", "run", "validate/validate", "--param", 'config={"train": {"stepz": 1}}')
    assert refused.returncode != 0, "parameters are checked before a run starts"


def test_a_command_hands_its_flow_to_the_worker(up: Up, environment: dict[str, str]) -> None:
    done = run(environment, "flows", "run", "validate", "--json", *SMALL_WORLD)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ok"]
    assert f"http://127.0.0.1:{up.mlflow_port}/#/experiments/" in done.stderr
    assert result["flow_run_id"] in done.stderr


def test_what_is_deployed_is_what_is_wanted(up: Up, environment: dict[str, str]) -> None:
    code = (
        "import json\nfrom prefect.client.orchestration import get_client\n"
        "with get_client(sync_client=True) as client:\n"
        "    pool = client.read_work_pool('gpu')\n"
        "    nightly = client.read_deployment_by_name('evaluate/evaluate')\n"
        "    limits = client.read_global_concurrency_limits()\n"
        "print(json.dumps({'limit': pool.concurrency_limit, 'type': pool.type, 'pools': [nightly.work_pool_name],\n"
        "    'cron': nightly.schedules[0].schedule.cron, 'zone': nightly.schedules[0].schedule.timezone,\n"
        "    'limits': {limit.name: limit.limit for limit in limits}, 'parameters': nightly.parameters}))"
    )
    address = {"PREFECT_API_URL": f"http://127.0.0.1:{up.port}/api"}
    done = subprocess.run([sys.executable, "-c", code], env={**environment, **address}, capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout)
    assert (found["limit"], found["type"], found["pools"]) == (None, "process", ["gpu"]), "the pool itself is not limited"
    assert (found["cron"], found["zone"]) == ("30 3 * * *", "Etc/UTC")
    assert [limit for name, limit in found["limits"].items() if name.startswith("gpu:")] == [1]
    assert found["parameters"]["config"]["corpus"] == {"world": {"pages": 40}}


def test_a_second_one_is_refused(up: Up, environment: dict[str, str]) -> None:
    done = run(environment, "flows", "up")
    assert done.returncode == 3
    assert "runs already" in done.stderr


def test_it_stops_cleanly(up: Up) -> None:
    """The last test of this file: it ends what the others used."""
    family = up.family()
    assert len(family) >= 3
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(60) == 0, up.log.read_text()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert not (ROOT / "prefect.toml").exists()
    assert not answers(f"http://127.0.0.1:{up.port}/api/health")
    assert not answers(f"http://127.0.0.1:{up.mlflow_port}/health")
