"""`slmsearch up` with everything real: server, MLflow, worker, the stock `prefect` command, and the end of it all."""

import base64
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from flows.runtime.automations import NAMES
from slmsearch.http_client import answers
from tests.e2e.browser import CHROMIUM, EVIL, TRIES, Hostile, page_text
from tests.e2e.stand import ROOT, Stand, still_alive, wait_for
from tests.stores import put_empty_stores

SMALL_WORLD = ["--corpus.world.pages", "40"]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, empty_stores: Path) -> Iterator[Stand]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PREFECT_HOME", "PREFECT_API_URL"):
            patch.delenv(name, raising=False)
        home = tmp_path_factory.mktemp("up")
        put_empty_stores(empty_stores, home)
        started = Stand(home, SMALL_WORLD)
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
    address = {"PREFECT_API_URL": f"http://127.0.0.1:{up.port}/api", "PREFECT_API_AUTH_STRING": up.password}
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
    wait_for(lambda: any(run.status == "RUNNING" for run in up.tracked(killed)), 180, "it has begun")
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


def test_another_user_gets_nothing_from_it(up: Stand) -> None:
    """As anybody on the machine: who they are says nothing to a server, and what lets them in they cannot read."""
    for path, body in (("/admin/version", None), ("/deployments/filter", {}), ("/flows/", {"name": "theirs"})):
        answer = httpx.request("POST" if body is not None else "GET", f"{up.client.base_url}{path}", json=body)
        assert answer.status_code == 401, path
    secret = [up.data / "prefect" / "up.auth", up.data / "prefect" / "open.html", ROOT / "prefect.toml"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in secret] == [0o600] * 3
    artifact = httpx.put(f"http://127.0.0.1:{up.mlflow_port}/api/2.0/mlflow-artifacts/artifacts/theirs.txt", content=b"theirs")
    assert artifact.status_code == 503, "MLflow takes no files for the folder it was started in"


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user; only Linux keeps the port")
def test_another_user_cannot_take_its_port_while_the_server_is_away(up: Stand) -> None:
    """Whoever answered there instead would be asked for work by the worker."""
    up.server().kill()
    taken = 0
    while up._listener() is None:
        taken += take_port_as_nobody(up.port)
    assert taken == 0
    wait_for(lambda: answers(f"http://127.0.0.1:{up.port}/api/health"), 60, "the server is back", 0.2)


def take_port_as_nobody(port: int) -> bool:
    """Try to listen on a port as another user; return whether that was possible."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.setuid(65534)
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        taken.bind(("127.0.0.1", port))
        taken.listen()
    except OSError:
        os._exit(1)
    os._exit(0)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_a_hostile_page_in_a_browser_reads_and_writes_nothing(up: Stand, tmp_path: Path) -> None:
    made = [len(up._ask("POST", f"/{kind}/filter", {})) for kind in ("flows", "work_pools", "deployments")]
    assert "nightly" in signed_in(up, tmp_path), "its reader has Prefect's pages open in the same browser"
    with Hostile(TRIES.replace("PREFECT", str(up.port)).replace("MLFLOW", str(up.mlflow_port))) as page:
        told = page.visit(tmp_path)
    assert len(told) == 24
    answers_read = {name: what for name, what in told.items() if what not in ("refused", "opaque", "closed")}
    assert all(name.endswith(EVIL) and "nvalid " in what and len(what) < 80 for name, what in answers_read.items()), answers_read
    assert made == [len(up._ask("POST", f"/{kind}/filter", {})) for kind in ("flows", "work_pools", "deployments")]
    assert up.ask_store("select name from experiments where name like 'evil%'") == []
    for port in (up.port, up.mlflow_port):
        assert "nvalid" in page_text(tmp_path, f"http://{EVIL}:{port}/"), "its name given this address, and the page loaded from here"


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_prefect_s_pages_open_without_a_word_to_type(up: Stand, tmp_path: Path) -> None:
    shown = signed_in(up, tmp_path)
    for name in ("train-and-eval", "nightly", "At 03:30 AM"):
        assert name in shown
    elsewhere = page_text(tmp_path / "elsewhere", f"http://127.0.0.1:{up.port}/v2/deployments")
    assert "nightly" not in elsewhere and "Login" in elsewhere, "another browser has no password"


def signed_in(up: Stand, profile: Path) -> str:
    """Open the page that `slmsearch up` names, then the list of deployments; return what stands there."""
    address = next(word for word in up.log.read_text().split() if word.startswith("file://"))
    assert "Dashboard" in page_text(profile, address)
    return page_text(profile, f"http://127.0.0.1:{up.port}/v2/deployments")


def test_its_password_stands_where_its_user_alone_can_read_it(up: Stand, environment: dict[str, str]) -> None:
    """After flow runs on the worker; in no output, log, database, artifact or list of processes."""
    assert run(environment, "flows", "doctor").returncode in (0, 1)
    user, _, word = up.password.partition(":")
    assert (user, len(word)) == ("slmsearch", 43)
    shapes = [word.encode(), base64.b64encode(up.password.encode())]
    files = [path for path in [*up.home.rglob("*"), ROOT / "prefect.toml"] if path.is_file()]
    assert len(files) > 20
    holding = {path for path in files if any(shape in path.read_bytes() for shape in shapes)}
    assert holding == {up.data / "prefect" / "up.auth", up.data / "prefect" / "open.html", ROOT / "prefect.toml"}
    commands = [" ".join(process.cmdline()) for process in [psutil.Process(up.process.pid), *up.family()]]
    assert len(commands) > 3 and not any(word in command for command in commands)


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
    assert not [name for name in ("up.json", "up.auth", "open.html") if (up.data / "prefect" / name).exists()]
    assert not answers(f"http://127.0.0.1:{up.port}/api/health")
    assert not answers(f"http://127.0.0.1:{up.mlflow_port}/health")
