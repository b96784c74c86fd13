"""Nothing of a server survives its end, whoever is killed: real processes, and children of every kind that is hard to find again."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from slmsearch.errors import ServiceError
from slmsearch.processes import watchdog
from slmsearch.processes.child import WATCHDOG_KILLED, ServerProcess
from tests.slmsearch.serving.engines.conftest import PROGRAMS, gone_after, runs, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs that stand in for servers need POSIX signals")
SERVER = [sys.executable, str(PROGRAMS / "openai_server.py"), "--port", "0"]


def start(tmp_path: Path, mode: str, grace_s: float = 5.0) -> ServerProcess:
    environment = {"FAKE_MODE": mode, "FAKE_PIDS": str(tmp_path / "pids")}
    return ServerProcess(SERVER, environment, tmp_path / "log", grace_s)


def family(tmp_path: Path, server: int) -> list[int]:
    """Wait for the server's children; return them all."""
    file = tmp_path / "pids"
    wait_until(lambda: file.exists() and len(file.read_text().split()) == 4)
    pids = [server, *map(int, file.read_text().split())]
    assert all(map(runs, pids))
    return pids


def test_a_server_is_asked_to_end_and_ends_in_order(tmp_path: Path) -> None:
    process = start(tmp_path, "ok")
    wait_until(lambda: "fake server" in (tmp_path / "log").read_text())
    assert process.poll() is None
    wait_until(lambda: psutil.Process(process.pid).num_threads() >= 1 and len(psutil.Process(process.pid).net_connections()) == 1)
    process.stop()
    assert process.poll() == 0
    assert "ended in order" in (tmp_path / "log").read_text()
    process.stop()  # once more does nothing


def test_a_server_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, "stubborn", grace_s=0.2)
    wait_until(lambda: len(psutil.Process(process.pid).net_connections()) == 1)
    process.stop()
    assert process.poll() == -signal.SIGKILL


def test_stopping_takes_the_whole_family(tmp_path: Path) -> None:
    process = start(tmp_path, "family", grace_s=0.5)
    pids = family(tmp_path, process.pid)
    process.stop()
    assert not any(map(runs, pids))


def test_the_family_goes_when_the_server_ends_by_itself(tmp_path: Path) -> None:
    process = start(tmp_path, "family")
    pids = family(tmp_path, process.pid)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.poll() is not None)
    assert process.poll() == -signal.SIGKILL
    assert not any(map(runs, pids))
    process.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to whom they descend from")
def test_the_family_goes_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    environment = {"FAKE_MODE": "family", "FAKE_PIDS": str(tmp_path / "pids")}
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom slmsearch.processes.child import ServerProcess\n"
        f"process = ServerProcess({SERVER!r}, {environment!r}, Path({str(tmp_path / 'log')!r}))\n"
        "print(process.pid, process.watchdog_pid, flush=True)\ntime.sleep(600)"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    server, watcher = map(int, supervisor.stdout.readline().split())
    pids = family(tmp_path, server)
    supervisor.kill()
    supervisor.wait()
    gone_after([*pids, watcher])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_the_server_goes_when_the_watchdog_is_killed(tmp_path: Path) -> None:
    """The server by its tie, the rest by session or mark: only an orphan that has shed both could stay, and is not made here."""
    process = start(tmp_path, "family")
    pids = family(tmp_path, process.pid)
    *known, lost = pids
    os.kill(process.watchdog_pid, signal.SIGKILL)
    wait_until(lambda: process.poll() is not None)
    assert process.poll() == WATCHDOG_KILLED
    gone_after(known)
    os.kill(lost, signal.SIGKILL)
    process.stop()


def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"/no/such/program cannot be run \(No such file or directory"):
        ServerProcess(["/no/such/program"], {}, tmp_path / "log")


def test_a_mark_finds_its_own_processes_and_no_others(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    marked = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, watchdog.MARK: mark})
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, watchdog.MARK: mark + "x"})
    wait_until(lambda: [process.pid for process in watchdog.find_belongings(mark)] == [marked.pid])
    assert watchdog.kill_belongings(mark) == []
    assert not runs(marked.pid)
    assert other.poll() is None
    other.communicate(b"\n")
