"""`slmsearch up` with everything real: server, MLflow, worker, the stock `prefect` command, and the end of it all."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from flows.alarms import NAMES
from flows.servers import answers
from tests.e2e.stand import ROOT, Stand, still_alive, wait_for

SMALL_WORLD = ["--corpus.world.pages", "40"]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PREFECT_HOME", "PREFECT_API_URL"):
            patch.delenv(name, raising=False)
        started = Stand(tmp_path_factory.mktemp("up"), SMALL_WORLD)
        try:
            started.wait()
            yield started
        finally:
            started.stop()


@pytest.fixture
def environment(up: Stand, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As a second terminal in the project's folder has it: nothing says where Prefect is."""
    variables = {"SLMSEARCH_PATHS__DATA_DIR": str(up.data), "SLMSEARCH_PATHS__MLRUNS_DIR": str(up.mlruns)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**kept, **variables}


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_the_stock_prefect_command_finds_and_runs_the_deployments(up: Stand, environment: dict[str, str]) -> None:
    listed = run(environment, "prefect", "deployment", "ls")
    for name in ("train-and-eval", "evaluate", "reindex", "validate"):
        assert f"{name}/{name}" in listed.stdout
    done = run(environment, "prefect", "deployment", "run", "validate/validate", "--watch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Completed" in done.stdout
    refused = run(environment, "prefect", "deployment", "run", "validate/validate", "--param", 'config={"train": {"stepz": 1}}')
    assert refused.returncode != 0, "parameters are checked before a run starts"


def test_a_command_hands_its_flow_to_the_worker(up: Stand, environment: dict[str, str]) -> None:
    done = run(environment, "flows", "run", "validate", "--json", *SMALL_WORLD)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ok"]
    assert f"http://127.0.0.1:{up.mlflow_port}/#/experiments/" in done.stderr
    assert result["flow_run_id"] in done.stderr


def test_what_is_deployed_is_what_is_wanted(up: Stand, environment: dict[str, str]) -> None:
    code = (
        "import json\nfrom prefect.client.orchestration import get_client\n"
        "with get_client(sync_client=True) as client:\n"
        "    pool = client.read_work_pool('gpu')\n"
        "    nightly = client.read_deployment_by_name('nightly/nightly')\n"
        "    limits = client.read_global_concurrency_limits()\n"
        "    alarms = sorted(found.name for found in client.read_automations() if 'night' in found.name)\n"
        "print(json.dumps({'alarms': alarms, 'limit': pool.concurrency_limit, 'type': pool.type, 'pools': [nightly.work_pool_name],\n"
        "    'cron': nightly.schedules[0].schedule.cron, 'zone': nightly.schedules[0].schedule.timezone,\n"
        "    'limits': {limit.name: limit.limit for limit in limits}, 'parameters': nightly.parameters}))"
    )
    address = {"PREFECT_API_URL": f"http://127.0.0.1:{up.port}/api"}
    done = subprocess.run([sys.executable, "-c", code], env={**environment, **address}, capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout)
    assert (found["limit"], found["type"], found["pools"]) == (None, "process", ["gpu"]), "the pool itself is not limited"
    assert found["alarms"] == sorted(NAMES)
    assert (found["cron"], found["zone"]) == ("30 3 * * *", "Etc/UTC")
    assert [limit for name, limit in found["limits"].items() if name.startswith("gpu:")] == [1]
    assert found["parameters"]["config"]["corpus"] == {"world": {"pages": 40}}


@pytest.mark.parametrize(("target", "number"), [("flow", signal.SIGKILL), ("worker", signal.SIGTERM), ("server", signal.SIGKILL)])
def test_whatever_is_killed_is_started_again_and_states_become_true(up: Stand, target: str, number: signal.Signals) -> None:
    """Three cells of the kill table (test_kills.py), in the shortest flow."""
    for made in (up.data / "corpora", up.data / "prefect" / "results"):  # it shall have something to do
        shutil.rmtree(made, ignore_errors=True)
    killed = up.submit("validate")
    engine = up.engine(killed)
    wait_for(lambda: any(run.status == "RUNNING" for run in up.tracked(killed)), 60, "it has begun")
    victim = {"flow": lambda: engine, "worker": up.worker, "server": up.server}[target]()
    victim.send_signal(number)
    state, message = up.wait_until_final(killed, 100)
    wait_for(lambda: not up.running(), 60, "no MLflow run shows as running", 0.1)
    assert {run.status for run in up.tracked(killed)} == ({"FINISHED"} if state == "COMPLETED" else {"KILLED"}), message
    assert state in ("COMPLETED", "CRASHED") if target == "server" else state == "CRASHED"
    assert not still_alive([engine, victim])
    again = up.submit("validate")
    assert up.wait_until_final(again, 100)[0] == "COMPLETED"
    assert {run.status for run in up.tracked(again)} == {"FINISHED"}


def test_a_second_one_is_refused(up: Stand, environment: dict[str, str]) -> None:
    done = run(environment, "flows", "up")
    assert done.returncode == 3
    assert "runs already" in done.stderr


def test_it_stops_cleanly(up: Stand) -> None:
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
