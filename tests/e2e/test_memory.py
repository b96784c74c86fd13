"""What a flow's own process holds of what its stages have loaded, and what is left of the process that loaded it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e import weighed
from tests.root import ROOT

COMMAND = [sys.executable, "-m", weighed.__name__, "run", "evaluate", "--json", "--config", "quick"]
SETTINGS = ["--corpus.world.pages", "60", "--evaluate.policy", "untrained"]
KEPT_MB = 150.0
"""What may stay of a stage: modules of tracking that were loaded, tables of its results."""
WAIT_SECONDS = 400


def start(environment: dict[str, str], log: Path, *settings: str) -> "subprocess.Popen[bytes]":
    with log.open("wb") as file:
        return subprocess.Popen([*COMMAND, *SETTINGS, *settings], cwd=ROOT, env=environment, stdout=file, stderr=file)


@pytest.fixture
def environment(ready_home: Path) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


def test_no_stage_leaves_a_model_or_an_embedder_in_the_process_of_the_flow(environment: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(environment, log)
    assert process.wait(WAIT_SECONDS) == 0, log.read_text()
    stages = {name: (int(a), int(b), torch) for name, a, b, torch in re.findall(r"weighed (\S+) (\d+) (\d+) (\d)", log.read_text())}
    assert {"index", "evaluate-untrained"} <= set(stages)
    for name in ("index", "evaluate-untrained"):
        before, after, torch = stages[name]
        assert after - before <= KEPT_MB and torch == "0", (name, stages)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_flow_that_ends_while_it_evaluates_leaves_no_process(
    number: signal.Signals, environment: dict[str, str], isolated_environment: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    process = start(environment, log, "--evaluate.limit", "0", "--evaluate.split", "all")  # takes a while
    deadline = time.monotonic() + WAIT_SECONDS
    while b"weighed index" not in log.read_bytes():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    assert [child for child in children if "slmsearch.processes.call" in child.cmdline()]
    process.send_signal(number)
    process.wait(WAIT_SECONDS)
    assert process.returncode != 0
    assert not psutil.wait_procs(children, timeout=60)[1], log.read_text()
    assert not list((isolated_environment / "data" / "evals").glob("*/manifest.json"))
