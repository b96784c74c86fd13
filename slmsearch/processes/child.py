"""Processes that lead a session of their own and end with their starter in every case: Python, and servers."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from slmsearch.errors import ServiceError
from slmsearch.processes import watchdog

GRACE_SECONDS = 15.0
"""Time limit for a stopped server to end in order."""
WATCHDOG_KILLED = -1000
"""Exit code of a server whose watchdog was killed; no signal has that number."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """Settings of a process besides its arguments."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables added to the environment; they may hold secrets."""
    end_signal: signal.Signals | None = signal.SIGKILL
    """Signal that Linux sends it when the thread that started it ends; None lets it live on."""
    num_processes: int | None = None
    """Number of training processes that share this machine; see `watchdog.make_environment`."""
    same_code: bool = False
    """True to search packages where this process found slmsearch."""
    umask: int = -1
    """Umask of the process; -1 keeps the user's."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors that it inherits."""


class _Watched:
    """A process of `watchdog.py`."""

    def __init__(self, arguments: Sequence[str], told: Mapping[str, object], **options: Any) -> None:
        command = [sys.executable, "-P", watchdog.__file__, *arguments]
        # It has a session of its own: Ctrl-C reaches only the starter, which then ends it in order.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **options)
        self.tell(json.dumps(told).encode() + b"\n")

    def tell(self, words: bytes) -> None:
        """Write to its standard input; ignore a process that has ended."""
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):
            self.process.stdin.write(words)
            self.process.stdin.flush()

    def hang_up(self) -> None:
        """Close its standard input."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()


class ChildProcess(_Watched):
    """A process that runs `python ARGUMENTS`."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path | None = None, settings: ProcessSettings | None = None) -> None:
        """Start the process.

        Args:
            name: name in messages.
            arguments: arguments of Python.
            log: file that its output is appended to, made private to the user; None sends the output where that of this process goes.
            settings: environment, tie, and the like.
        """
        self.name, self.log = name, log or Path(os.devnull)
        settings = settings or ProcessSettings()
        told = {
            "variables": dict(settings.variables),
            "starter": None if settings.end_signal is None else os.getpid(),
            "end_signal": settings.end_signal,
            "num_processes": settings.num_processes,
            "import_from": str(Path(watchdog.__file__).parents[2]) if settings.same_code else "",
        }
        file = None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            super().__init__(arguments, told, stdout=file, stderr=file, umask=settings.umask, pass_fds=settings.pass_fds)
        finally:
            if file is not None:
                os.close(file)

    @property
    def pid(self) -> int:
        """Return its process id, which is also that of its session."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Return whether it still runs."""
        return self.process.poll() is None

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its exit code, negative for a signal, or None if it still runs."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, grace_s: float = 10.0, first: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, wait, then kill the rest of its process group."""
        try:
            if self.is_alive:
                self.process.send_signal(first)
                self.wait(grace_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the rest of its process group."""
        with suppress(ProcessLookupError, PermissionError):  # macOS has no permission for a group of nobody
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self.hang_up()


class ServerProcess(_Watched):
    """A running server, held through a watchdog. None of its processes survives `stop`, nor the death of this process."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path, grace_s: float = GRACE_SECONDS) -> None:
        """Start the server.

        Args:
            command: program and arguments.
            environment: variables added to those of this process.
            log: file for its output.
            grace_s: time limit to end in order when it is stopped.

        Raises:
            ServiceError: the program cannot be run.
        """
        self.mark = uuid.uuid4().hex
        self._grace_s = grace_s
        self._code: int | None = None
        told = {"command": list(command), "environment": dict(environment), "log": str(log), "mark": self.mark, "grace_s": grace_s}
        with log.open("ab") as file:
            super().__init__([], told, stdout=subprocess.PIPE, stderr=file)
        first = self._hear()
        self.pid = int(first.get("pid", 0))
        if not self.pid:
            self.process.wait()
            raise ServiceError(f"{command[0]} cannot be run ({first.get('error', 'its watchdog exited without a message')}); see {log}")

    @property
    def watchdog_pid(self) -> int:
        """Return the process id of the watchdog."""
        return self.process.pid

    def poll(self) -> int | None:
        """Return the server's exit code, negative for a signal, or None while it runs."""
        if self._code is None and self.process.poll() is not None:
            last = self._hear()
            if "code" not in last:
                watchdog.kill_belongings(self.mark, self.pid)
            self._code = int(last.get("code", WATCHDOG_KILLED))
        return self._code

    def stop(self) -> None:
        """Ask it to end, and ensure that it and its descendants have ended; do nothing if it ended already."""
        self.tell(f"{watchdog.STOP}\n".encode())
        try:
            self.process.wait(self._grace_s + 10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.hang_up()
        self.poll()

    def _hear(self) -> dict[str, int | str]:
        """Read the next fact from the watchdog; empty if it has ended without one."""
        assert self.process.stdout is not None
        facts: dict[str, int | str] = json.loads(self.process.stdout.readline() or b"{}")
        return facts


def wait_for_end(pid: int, timeout_s: float, word: str = "") -> bool:
    """Wait for any process to end, a child or not; return whether it has.

    Args:
        pid: its number; 0 is none.
        timeout_s: time to wait.
        word: part of its command line; another process with the same number is ignored.
    """
    deadline = time.monotonic() + timeout_s
    with suppress(psutil.Error):
        process = psutil.Process(pid) if pid else None
        while process and process.status() != psutil.STATUS_ZOMBIE and (not word or word in process.cmdline()):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
    return True
