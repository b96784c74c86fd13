"""A Python process that leads a session of its own and ends with the thread that started it, whatever ends that one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from slmsearch.processes import watchdog

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """How a process is started besides its arguments."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment; they may hold secrets."""
    end_signal: signal.Signals | None = signal.SIGKILL
    """What Linux sends it when the thread that started it ends; None lets it live on."""
    num_processes: int | None = None
    """Training processes that share this machine; see `watchdog.make_environment`."""
    same_code: bool = False
    """Look for packages where this process found slmsearch."""
    umask: int = -1
    """Permissions that its files never get; -1 leaves them to the user's."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors that it inherits."""


class ChildProcess:
    """A process that runs `python ARGUMENTS`."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path | None = None, settings: ProcessSettings | None = None) -> None:
        """Start it.

        Args:
            name: what messages call it.
            arguments: of Python.
            log: file that its output is appended to, made private to the user; None leaves the output where that of this process goes.
            settings: environment, tie, and the like.
        """
        self.name, self.log = name, log or Path(os.devnull)
        settings = settings or ProcessSettings()
        command = [sys.executable, "-P", watchdog.__file__, *arguments]
        file = None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
                umask=settings.umask,
                pass_fds=settings.pass_fds,
            )
        finally:
            if file is not None:
                os.close(file)
        told = {
            "variables": dict(settings.variables),
            "starter": None if settings.end_signal is None else os.getpid(),
            "end_signal": settings.end_signal,
            "num_processes": settings.num_processes,
            "import_from": str(Path(watchdog.__file__).parents[2]) if settings.same_code else "",
        }
        self.tell(json.dumps(told).encode() + b"\n")

    @property
    def pid(self) -> int:
        """Its process id, and that of its session."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def tell(self, words: bytes) -> None:
        """Write to its standard input; one that has ended does not hear it."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(words)
            self.process.stdin.flush()

    def hang_up(self) -> None:
        """End its standard input."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its exit code, negative for a signal, or None if it goes on."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, grace_s: float = 10.0, first: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, wait, then kill what is left of its process group."""
        try:
            if self.is_alive:
                self.process.send_signal(first)
                self.wait(grace_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill what is left of its process group."""
        with suppress(ProcessLookupError, PermissionError):  # macOS has no permission for a group of nobody
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self.hang_up()


def wait_for_end(pid: int, timeout_s: float, word: str = "") -> bool:
    """Wait for any process to end, a child or not; return whether it has.

    Args:
        pid: its number; 0 is none.
        timeout_s: time to wait.
        word: on its command line; another process that has got the number is not waited for.
    """
    deadline = time.monotonic() + timeout_s
    with suppress(psutil.Error):
        process = psutil.Process(pid) if pid else None
        while process and process.status() != psutil.STATUS_ZOMBIE and (not word or word in process.cmdline()):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
    return True
