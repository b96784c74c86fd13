"""`slmsearch bench up`: how long a person waits from the command `slmsearch up` until a run that they submit is running."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import httpx

from slmsearch.bench.result import Result, Say, Spread, describe_machine
from slmsearch.errors import ServiceError
from slmsearch.serve.ports import free_port

LIMIT_S = 60.0
WAIT_S = 300.0
STOP_S = 120.0
FLOW = "validate"
STARTED = ("RUNNING", "COMPLETED")


def run_up(runs: int, say: Say) -> Result:
    """Start `slmsearch up` in a data directory of its own, submit a run when it says that it is up, and stop it again.

    Args:
        runs: how often, each time from nothing.
        say: told each result.

    Raises:
        ServiceError: it did not come up, or the run did not start.
    """
    found = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="slmsearch-up-", ignore_cleanup_errors=True) as home:
            up_s, running_s = _start_once(Path(home))
        found.append((up_s, running_s))
        say(f"up after {up_s:.1f} s, the run is running after {running_s:.1f} s")
    up, running = (Spread(seconds) for seconds in zip(*found, strict=True))
    machine = describe_machine("prefect", "mlflow")
    notes = (
        f"{machine}",
        f"from nothing, median of {runs}, spread; limit {LIMIT_S:.0f} s",
        f"`slmsearch up` says that it is up: {up:.1f} s",
        f"the submitted run is running: {running:.1f} s",
    )
    return Result({"runs": runs, "limit_s": LIMIT_S, "up": up, "running": running, "machine": asdict(machine)}, notes=notes)


def _start_once(home: Path) -> tuple[float, float]:
    port, mlflow_port = free_port(), free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
    environment |= {"SLMSEARCH_PATHS__DATA_DIR": str(home / "data"), "SLMSEARCH_PATHS__MLRUNS_DIR": str(home / "mlruns")}
    command = [sys.executable, "-m", "flows", "up", "--port", str(port), "--mlflow-port", str(mlflow_port)]
    log, begun = home / "up.log", time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        _wait(lambda: "Ctrl-C stops everything" in log.read_text(), process, log)
        up_s = time.monotonic() - begun
        user, _, password = (home / "data" / "prefect" / "up.auth").read_text().partition(":")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api", auth=(user, password), timeout=20) as client:
            deployment = client.get(f"/deployments/name/{FLOW}/{FLOW}").raise_for_status().json()["id"]
            run = client.post(f"/deployments/{deployment}/create_flow_run", json={}).raise_for_status().json()["id"]
            _wait(lambda: client.get(f"/flow_runs/{run}").raise_for_status().json()["state"]["type"] in STARTED, process, log)
        return up_s, time.monotonic() - begun
    except httpx.HTTPError as error:
        raise ServiceError(f"Prefect does not answer: {error}\n{_tail(log)}") from error
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        process.kill()


def _wait(happened: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServiceError(f"`slmsearch up` ended, or is not up after {WAIT_S:.0f} s:\n{_tail(log)}")
        time.sleep(0.05)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:])
