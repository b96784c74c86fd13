"""The production configuration: what is turned away, and that what is allowed works, on PostgreSQL and behind the proxy.

The requests that must be turned away are listed in `probes.py`.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPConnection
from itertools import takewhile
from pathlib import Path

import psutil
import pytest

from flows.runtime.api import require_api
from slmsearch.config import PathsConfig
from slmsearch.errors import ServiceError
from tasks.tracking import ADAPTER_HASH, Tracker
from tests.deployments.reading import ROOT
from tests.e2e.probes import ANY, JSON, MLFLOW, NAVIGATION, PREFECT, PROBES, SEARCH, Probe
from tests.e2e.production import Stack, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("production")
    # PostgreSQL runs as somebody else; under xdist there is one folder more.
    for folder in takewhile(lambda folder: folder.name.startswith(("production", "popen-", "pytest-")), (home, *home.parents)):
        folder.chmod(0o711)
    made = Stack(home)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def credentials(stack: Stack, door: str, auth: str) -> dict[str, str]:
    right = {"prefect": stack.secret("prefect_auth"), "mlflow": f"admin:{stack.secret('mlflow_password')}"}
    own, other = ("prefect", "mlflow") if door.startswith("prefect") else ("mlflow", "prefect")
    known = {"right": right[own], "other": right[other], "wrong": "admin:wrong"}
    if auth in known:
        auth = "Basic " + base64.b64encode(known[auth].encode()).decode()
    return {"Authorization": auth} if auth else {}


def send(stack: Stack, probe: Probe) -> tuple[int, dict[str, str], str]:
    """Send a request as it is written: nothing is added to it and no path normalised."""
    connection = HTTPConnection("127.0.0.1", stack.ports[probe.door], timeout=20)
    host = {"Host": f"127.0.0.1:{stack.ports[probe.door]}"}
    try:
        connection.putrequest(probe.method, probe.path, skip_host=True, skip_accept_encoding=True)
        for name, value in {**host, **credentials(stack, probe.door, probe.auth), **probe.headers}.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(probe.body)))
        connection.endheaders(probe.body.encode())
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode(errors="replace")
    finally:
        connection.close()


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.what)
def test_it_is_turned_away(stack: Stack, probe: Probe) -> None:
    status, headers, body = send(stack, probe)
    assert status in probe.refused, body[:300]
    allowed = headers.get("access-control-allow-origin")
    assert allowed is None if probe.door.endswith("door") else allowed in (None, stack.url("prefect_door"), stack.url("mlflow_door"))


def test_there_are_enough_probes_and_each_once() -> None:
    assert len({probe.what for probe in PROBES}) == len(PROBES) >= 15


@pytest.mark.parametrize("path", ["/api/events/in", "/api/events/out", "/api/logs/out"])
def test_web_sockets_ask_for_the_password_themselves(stack: Stack, path: str) -> None:
    from websockets.exceptions import ConnectionClosed, InvalidStatus
    from websockets.sync.client import connect
    from websockets.typing import Subprotocol

    address = stack.url(PREFECT).replace("http", "ws") + path
    with pytest.raises(InvalidStatus, match="403"):
        connect(address, subprotocols=[Subprotocol("prefect")], origin="https://evil.example")  # type: ignore[arg-type]
    with pytest.raises((InvalidStatus, ConnectionClosed)), connect(address) as silent:
        silent.recv(timeout=10)
    for token in (None, "admin:wrong"):
        with connect(address, subprotocols=[Subprotocol("prefect")]) as known:
            known.send(json.dumps({"type": "auth", "token": token}))
            with pytest.raises(ConnectionClosed):
                assert json.loads(known.recv(timeout=10)).get("type") != "auth_success"
                known.recv(timeout=10)
    with connect(address, subprotocols=[Subprotocol("prefect")]) as right:
        right.send(json.dumps({"type": "auth", "token": stack.secret("prefect_auth")}))
        assert json.loads(right.recv(timeout=10))["type"] == "auth_success"


@pytest.mark.parametrize(
    ("door", "path", "headers"),
    [
        (PREFECT, "/", {}),
        (PREFECT, "/", NAVIGATION),
        (PREFECT, "/api/flows/count", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}),
        (MLFLOW, "/", NAVIGATION),
        (MLFLOW, SEARCH, {}),
    ],
    ids=["Prefect's page", "a link to it", "its API", "a link to MLflow", "MLflow's API"],
)
def test_whoever_has_the_key_is_let_in(stack: Stack, door: str, path: str, headers: dict[str, str]) -> None:
    method = "POST" if path == SEARCH or "count" in path else "GET"
    body = ANY if path == SEARCH else "{}" if method == "POST" else ""
    own = {"Origin": stack.url(door), **JSON} if method == "POST" else {}
    if "count" in path:  # it changes nothing, and is a POST: it needs a token as all of them do
        token = send(stack, Probe("token", door, "GET", "/api/csrf-token?client=probe", "right"))
        own |= {"Prefect-Csrf-Token": json.loads(token[2])["token"], "Prefect-Csrf-Client": "probe"}
    status, answered, text = send(stack, Probe("allowed", door, method, path, "right", {**headers, **own}, body))
    if status == 307:  # Prefect has two generations of pages
        assert answered["location"].startswith(("/", stack.url(door)))
        status, answered, text = send(
            stack, Probe("there", door, method, answered["location"].removeprefix(stack.url(door)), "right", headers)
        )
    assert status == 200, text[:300]
    assert "DENY" in answered["x-frame-options"]
    assert "access-control-allow-origin" not in answered


def test_a_command_finds_the_api_behind_the_door(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"{stack.url(PREFECT)}/api")
    with pytest.raises(ServiceError, match=r"no Prefect API answers at .* PREFECT_API_AUTH_STRING"):
        require_api(PathsConfig())
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", stack.secret("prefect_auth"))
    require_api(PathsConfig())


def test_secrets_stand_in_no_list_of_processes(stack: Stack) -> None:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    for path in stack.secrets.iterdir():
        if path.name != "s3.json":
            assert path.read_text().strip() not in listed, path.name
    for name in stack.processes:
        assert stack.secret("prefect_db_password") not in stack.log(name)
        assert stack.secret("mlflow_db_password") not in stack.log(name)


def test_neither_server_may_read_the_others_database(stack: Stack) -> None:
    environment = {"PATH": os.environ["PATH"], "PGPASSWORD": stack.secret("mlflow_db_password")}
    where = ["--host=127.0.0.1", f"--port={stack.ports['postgres']}", "--username=mlflow"]
    done = subprocess.run(["psql", *where, "--dbname=prefect", "-c", "select 1"], capture_output=True, text=True, env=environment)
    assert done.returncode != 0 and "permission denied" in done.stderr
    wrong = {**environment, "PGPASSWORD": "wrong"}
    done = subprocess.run(["psql", *where, "--dbname=mlflow", "-c", "select 1"], capture_output=True, text=True, env=wrong)
    assert done.returncode != 0 and "authentication failed" in done.stderr


MLFLOW_CLIENT = """
import sys
import mlflow
mlflow.set_tracking_uri(sys.argv[1])
client = mlflow.MlflowClient()
run = client.create_run(client.create_experiment("through the door"))
client.log_metric(run.info.run_id, "reward", 0.5)
client.log_text(run.info.run_id, "hello", "note.txt")
print(client.get_run(run.info.run_id).data.metrics["reward"], mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/note.txt"))
"""


def test_the_client_of_mlflow_goes_through_the_door(stack: Stack) -> None:
    known = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": stack.secret("mlflow_password")}
    environment = {**os.environ, **known, "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
    command = [sys.executable, "-c", MLFLOW_CLIENT, stack.url(MLFLOW)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["0.5", "hello"], done.stderr
    assert stack.query("mlflow", "select value from metrics where key = 'reward'") == ["0.5"]
    assert [path.read_text() for path in (stack.home / "artifacts").rglob("note.txt")] == ["hello"]


# A small real flow, by the commands of the compose file


def test_an_adapter_is_registered_and_fetched_through_the_server(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server looks closer at where a version comes from than a database does."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", stack.secret("mlflow_password"))
    tracker = Tracker(stack.url("mlflow"), "registering", tmp_path)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "adapter_model.safetensors").write_bytes(b"weights")
    with tracker.run("train", "key") as run_id:
        versions = [tracker.register_adapter(run_id, tmp_path / "made", "registered", {ADAPTER_HASH: "h1"}) for _ in range(2)]
    assert versions == ["1", "1"]
    assert (tracker.fetch_adapter("registered", "1") / "adapter_model.safetensors").read_bytes() == b"weights"


def test_a_schedule_makes_flow_runs(stack: Stack) -> None:
    """On PostgreSQL the scheduler takes another way to the database than on SQLite."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import IntervalSchedule
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    known = {PREFECT_API_URL: f"{stack.url('prefect')}/api", PREFECT_API_AUTH_STRING: stack.secret("prefect_auth")}
    hourly = [DeploymentScheduleCreate(schedule=IntervalSchedule(interval=timedelta(hours=1)))]
    with temporary_settings(known), get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow_from_name("hourly"), "hourly", schedules=hourly)
    waiting = f"select count(*) from flow_run where deployment_id = '{deployment}' and state_type = 'SCHEDULED'"
    deadline = time.monotonic() + 90
    while stack.query("prefect", waiting) == ["0"]:
        assert time.monotonic() < deadline, stack.log("prefect")[-3000:]
        time.sleep(0.3)


def run_prefect(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    """The stock client on another machine: through the door, with the password."""
    known = {"PREFECT_API_URL": f"{stack.url(PREFECT)}/api", "PREFECT_API_AUTH_STRING": stack.secret("prefect_auth")}
    command = [sys.executable, "-m", "prefect", *words]
    return subprocess.run(command, env={**os.environ, **known}, capture_output=True, text=True, timeout=240)


def validating(stack: Stack, pages: int) -> str:
    """The parameter of a validation, in the worker's directory: the deployments' default names that of whoever deployed."""
    paths = {"data_dir": str(stack.home / "worker"), "mlruns_dir": str(stack.home / "worker" / "mlruns")}
    config = {"corpus": {"world": {"pages": pages}}, "paths": paths, "tracking": {"uri": stack.url("mlflow")}}
    return f"config={json.dumps(config)}"


@pytest.mark.production
def test_a_flow_runs_on_a_worker_and_is_recorded_in_postgres(stack: Stack) -> None:
    deploy = stack.launch("deploy", stack.client("deploy", ["slmsearch", "deploy", "--corpus.world.pages", "40"]))
    assert deploy.wait(120) == 0, stack.log("deploy")
    worker = stack.launch("worker", stack.client("worker", ["slmsearch", "worker", "--name", "production"]))
    check = stack.client("check", ["slmsearch", "worker", "--check", "--name", "production"])
    deadline = time.monotonic() + 90
    while subprocess.run(check.words, env=check.environment, cwd=ROOT, capture_output=True).returncode != 0:
        assert time.monotonic() < deadline and worker.poll() is None, stack.log("worker")
    done = run_prefect(stack, "deployment", "run", "validate/validate", "--param", validating(stack, pages=40), "--watch")
    assert done.returncode == 0, done.stdout + done.stderr + stack.log("worker")
    assert stack.query("prefect", "select state_type from flow_run where not auto_scheduled") == ["COMPLETED"]
    statuses = stack.query("mlflow", "select status from runs join tags using (run_uuid) where tags.key = 'slmsearch.stage'")
    assert statuses and set(statuses) == {"FINISHED"}


@pytest.mark.production
def test_a_worker_that_is_told_to_end_leaves_true_states(stack: Stack) -> None:
    """Ends what the test before it started."""
    done = run_prefect(stack, "deployment", "run", "validate/validate", "--param", validating(stack, pages=20_000))
    assert done.returncode == 0, done.stderr
    states = "select state_type from flow_run where not auto_scheduled order by created desc limit 1"
    deadline = time.monotonic() + 90
    # Prefect calls a run that is terminated before its first line a crashed one.
    while not stack.query("mlflow", "select run_uuid from runs where status = 'RUNNING'"):
        assert time.monotonic() < deadline, stack.log("worker")
        time.sleep(0.3)
    worker = stack.processes.pop("worker")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(90) == 0, stack.log("worker")
    assert stack.query("prefect", states) == ["CANCELLED"]


def test_nothing_listens_on_anything_but_loopback(stack: Stack) -> None:
    found = [at.laddr for at in psutil.net_connections("inet") if at.status == psutil.CONN_LISTEN and at.laddr.port in stack.ports.values()]
    assert {at.port for at in found} == set(stack.ports.values())
    assert {at.ip for at in found} == {"127.0.0.1"}
