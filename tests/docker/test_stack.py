"""`docker compose up`: every service becomes well, nobody is let in without a password, and a worker runs a whole flow."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
import yaml

from slmsearch.extensions.sandbox.engine import wait_for
from tests.deployments.reading import DEPLOYMENTS, compose
from tests.docker.daemon import Daemon
from tests.docker.stack import START_SECONDS, Stack
from tests.docker.stand_ins import IMAGES, find_mirror
from tests.e2e.probes import MLFLOW, PREFECT, PROBES, Probe
from tests.e2e.test_production import send

pytestmark = pytest.mark.docker
STAYING = {"postgres", "store", "prefect", "mlflow", "proxy", "worker"}
REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)"
SMOKE_SECONDS = 1200.0


@pytest.fixture(scope="module")
def up(daemon: Daemon, stack: Stack, stand_in: Callable[[str], None]) -> Iterator[Stack]:
    """The servers, started as the documentation says."""
    for name in IMAGES.keys() - {"python-3.13"}:
        stand_in(name)
    try:
        try:
            stack.compose("up", "--detach", "--wait", timeout_s=START_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{stack.compose('ps', '--all')}\n{stack.compose('logs', '--tail', '40')[-8000:]}") from None
        yield stack
    finally:
        stack.compose("down", "--volumes", timeout_s=300)


def container(name: str) -> str:
    return f"slmsearch-{name}-1"


@pytest.mark.parametrize("name", sorted(STAYING))
def test_a_service_is_well_and_confined(up: Stack, name: str) -> None:
    found = up.daemon.inspect(container(name))
    assert found["State"]["Health"]["Status"] == "healthy"
    host = found["HostConfig"]
    assert (host["ReadonlyRootfs"], host["CapDrop"], host["Privileged"]) == (True, ["ALL"], False)
    pids = up.daemon.run("top", container(name), "-o", "pid,uid,cmd").splitlines()[1:]
    users = {line.split()[1] for line in pids if "docker-init" not in line and "tini" not in line}
    assert "0" not in users or name == "store", pids
    if name in ("prefect", "mlflow", "worker"):
        assert users == {"10001"}


def test_what_runs_once_has_ended_well(up: Stack) -> None:
    assert {name: up.daemon.inspect(container(name))["State"]["ExitCode"] for name in ("bucket", "deploy")} == {"bucket": 0, "deploy": 0}


@pytest.mark.parametrize("probe", [probe for probe in PROBES if probe.door in (PREFECT, MLFLOW)], ids=lambda probe: probe.what)
def test_without_credentials_it_is_refused(up: Stack, probe: Probe) -> None:
    status, headers, body = send(up, probe)  # type: ignore[arg-type]
    assert status in probe.refused, body[:300]
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(("door", "path"), [(PREFECT, "/api/admin/version"), (MLFLOW, "/"), (MLFLOW, "/version")])
def test_whoever_has_the_password_is_let_in(up: Stack, door: str, path: str) -> None:
    assert send(up, Probe("known", door, "GET", path, "right"))[0] == 200  # type: ignore[arg-type]
    assert send(up, Probe("known elsewhere", door, "GET", path, "wrong"))[0] == 401  # type: ignore[arg-type]
    assert send(up, Probe("unknown", door, "GET", path))[0] == 401  # type: ignore[arg-type]


def test_servers_have_no_way_out_and_publish_nothing(up: Stack) -> None:
    outside = urlsplit(find_mirror())
    reach = ("python", "-c", REACH, str(outside.hostname), str(outside.port or {"http": 80, "https": 443}[outside.scheme]))
    assert up.inside("worker", *reach).returncode == 0, "models and corpora come from outside"
    for name in ("prefect", "mlflow"):
        assert up.inside(name, *reach).returncode != 0
    published = {name: up.daemon.inspect(container(name))["HostConfig"]["PortBindings"] or {} for name in STAYING}
    addresses = {at["HostIp"] for at in [at for ports in published.pop("proxy").values() for at in ports]}
    assert addresses == {"127.0.0.1"} and not any(published.values())


def test_secrets_stand_in_no_log_and_in_nothing_that_docker_tells(up: Stack) -> None:
    told = up.compose("logs") + up.daemon.run("inspect", *up.daemon.containers())
    told += subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert [secret for secret in up.all_secrets() if secret in told] == []


def settings() -> dict[str, object]:
    """Those of the smallest run, in the worker's directories."""
    worker = compose()["services"]["worker"]["environment"]
    paths = {"data_dir": worker["SLMSEARCH_PATHS__DATA_DIR"], "mlruns_dir": worker["SLMSEARCH_PATHS__MLRUNS_DIR"]}
    told = {"corpus": {"world": {"pages": 40}}, "paths": paths, "tracking": {"uri": worker["SLMSEARCH_TRACKING__URI"]}}
    return {**yaml.safe_load((DEPLOYMENTS / "configs" / "quick.yaml").read_text()), **told}


def test_a_worker_in_its_image_runs_the_whole_flow(up: Stack) -> None:
    """Asked for with Prefect's own command, from outside, through the proxy."""
    known = {"PREFECT_API_URL": "http://127.0.0.1:4200/api", "PREFECT_API_AUTH_STRING": up.secret("prefect_auth")}
    words = ["deployment", "run", "train-and-eval/train-and-eval", "--param", f"config={json.dumps(settings())}", "--watch"]
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *words], env={**os.environ, **known}, capture_output=True, text=True, timeout=SMOKE_SECONDS
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + up.compose("logs", "--tail", "60", "worker")
    assert up.query("prefect", "select state_type, deployment_id is not null from flow_run where not auto_scheduled") == ["COMPLETED|t"]
    statuses = up.query("mlflow", "select status, count(*) from runs group by 1")
    assert [line.partition("|")[0] for line in statuses] == ["FINISHED"] and int(statuses[0].partition("|")[2]) >= 10
    keys = "import boto3; print(boto3.client('s3').list_objects_v2(Bucket='mlflow')['KeyCount'])"
    given = ("with-secrets", "AWS_ACCESS_KEY_ID=s3_access_key", "AWS_SECRET_ACCESS_KEY=s3_secret_key", "--")
    stored = up.inside("mlflow", "env", "AWS_ENDPOINT_URL_S3=http://store:8333", *given, "python", "-c", keys)
    assert stored.returncode == 0 and int(stored.stdout) > 10, stored.stderr


def test_a_killed_worker_comes_back(up: Stack) -> None:
    found = up.daemon.inspect(container("worker"))
    os.kill(found["State"]["Pid"], signal.SIGKILL)
    assert wait_for(lambda: up.daemon.inspect(container("worker"))["RestartCount"] == 1, 60.0)
    healthy = wait_for(lambda: up.daemon.inspect(container("worker"))["State"]["Health"]["Status"] == "healthy", 300.0)
    assert healthy, up.compose("logs", "--tail", "40", "worker")


def test_down_leaves_nothing(up: Stack, daemon: Daemon) -> None:
    """The last test of this file: it stops what the others use."""
    up.compose("down", "--volumes", timeout_s=300)
    assert wait_for(lambda: daemon.leftovers() == {"containers": [], "processes": [], "mounts": []}, 60.0), daemon.leftovers()
    assert daemon.run("volume", "ls", "--quiet") == ""
    assert "slmsearch" not in daemon.run("network", "ls", "--format", "{{.Name}}")
