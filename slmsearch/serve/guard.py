"""The process between a supervisor and a model server: it outlives the one long enough to end the other.

Run as a script, it reads what to start from the first line of its standard input, starts it, and then waits for one of four things:
the word `stop`, the end of its input (the supervisor is gone, whatever ended it), a signal, or the server's own end. Then it ends
the server and everything the server started. Two lines of JSON on standard output say the server's process id and its exit code.

What belongs to a server is found in three ways, as each has a hole: by descent (on Linux this process adopts orphans, elsewhere they
are lost), by session (lost by who starts one of its own) and by a mark in the environment (lost by who overwrites it, as programs
that change their title do). It imports nothing of this project.
"""

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

MARK = "SLMSEARCH_SERVER"
"""Environment variable that a server and all it starts carry."""
STOP = "stop"
"""Line on standard input that asks for an orderly end."""
ORPHAN_GRACE_SECONDS = 1.5
"""Time a server has to end by itself once nobody supervises it any more."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_REAP_SECONDS = 2.0
_KILL_SECONDS = 5.0


def find_belongings(mark: str, session: int | None = None) -> list[psutil.Process]:
    """Find the processes of a server that still run.

    Args:
        mark: value of `MARK` in their environment.
        session: process id of the server, which is its session's id too; None looks at the mark alone. Only for a server
            that ran a moment ago: ids are used again.
    """
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _belongs(process, mark, session)]


def _belongs(process: psutil.Process, mark: str, session: int | None) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if session is not None and sys.platform != "win32" and os.getsid(process.pid) == session:
            return True
        return bool(process.environ().get(MARK) == mark)
    except (psutil.Error, OSError):
        return False


def kill_belongings(mark: str, session: int | None = None) -> list[int]:
    """Kill the processes of a server until none is left; return the ids of those that would not go."""
    deadline = time.monotonic() + _KILL_SECONDS
    while left := find_belongings(mark, session):
        if time.monotonic() > deadline:
            return [process.pid for process in left]
        _each(left, "kill")
        psutil.wait_procs(left, timeout=0.5)
    return []


def _each(processes: Iterable[psutil.Process], method: str) -> None:
    for process in processes:
        with suppress(psutil.Error):
            getattr(process, method)()


class Guard:
    """One server and the reasons to end it."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path, mark: str) -> None:
        """Start the server in a session of its own."""
        self._mark = mark
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        with log.open("ab") as file:
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **environment, MARK: mark},
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._server.pid

    def watch(self, grace_s: float) -> int:
        """Wait for a reason to end the server, end it and what it started, and return its exit code, negative for a signal.

        Args:
            grace_s: time it has to end in order when asked to.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._events.put(STOP))
        for target in (self._read, self._wait):
            threading.Thread(target=target, daemon=True).start()
        graces = {STOP: grace_s, "orphaned": min(grace_s, ORPHAN_GRACE_SECONDS), "ended": ORPHAN_GRACE_SECONDS}
        self._end(graces[self._next_event()])
        return self._server.wait()

    def _read(self) -> None:
        for line in sys.stdin:
            if line.strip() == STOP:
                self._events.put(STOP)
        self._events.put("orphaned")

    def _wait(self) -> None:
        self._server.wait()
        self._events.put("ended")

    def _next_event(self) -> str:
        while True:
            with suppress(queue.Empty):
                return self._events.get(timeout=_REAP_SECONDS)
            self._reap()

    def _reap(self) -> None:
        """Take note of adopted processes that ended, or they would stay in the process table as long as the server runs."""
        if sys.platform == "linux":
            for child in psutil.Process().children():
                with suppress(psutil.Error, OSError):
                    if child.pid != self.pid and child.status() == psutil.STATUS_ZOMBIE:
                        os.waitpid(child.pid, os.WNOHANG)

    def _end(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        if self._server.poll() is None:
            self._server.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(grace_s)
        left = self._left()
        _each(left, "terminate")
        psutil.wait_procs(left, timeout=max(0.0, deadline - time.monotonic()))
        give_up = time.monotonic() + _KILL_SECONDS
        while (left := self._left()) or self._server.poll() is None:
            if time.monotonic() > give_up:
                break
            self._server.kill()
            _each(left, "kill")
            psutil.wait_procs(left, timeout=0.5)

    def _left(self) -> list[psutil.Process]:
        """What the server started and left behind; the server itself is waited for by its handle alone."""
        with suppress(psutil.Error):
            children = psutil.Process().children(recursive=True)
            alive = {child.pid: child for child in children if _is_running(child)}
            alive.update({process.pid: process for process in find_belongings(self._mark, self.pid)})
            return [process for pid, process in alive.items() if pid != self.pid]
        return []


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _die_with_parent() -> None:
    if sys.platform == "linux":  # against a killed guard: the server goes with it, the supervisor finds the rest
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _tell(fact: dict[str, Any]) -> None:
    with suppress(OSError):  # the supervisor is gone
        print(json.dumps(fact), flush=True)


def main() -> None:
    """Guard the server that the first line of standard input describes: arguments of `Guard` and `grace_s` as JSON."""
    told = json.loads(sys.stdin.readline())
    grace_s = told.pop("grace_s")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        guard = Guard(**{**told, "log": Path(told["log"])})
    except OSError as error:
        _tell({"error": f"{error.strerror}: {error.filename}"})
        return
    _tell({"pid": guard.pid})
    _tell({"code": guard.watch(grace_s)})


if __name__ == "__main__":
    main()
