"""Start, watch and stop the servers a run needs: Prefect, MLflow's UI, a worker.

Every child is the leader of its own process group, writes to a log file, and is asked to end by the kernel when its parent
dies, so that nothing is left running after a crash. What they are for is the business of `up.py` and `api.py`.
"""

import base64
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slmsearch.errors import ServiceError

HOST = "127.0.0.1"
WORKER = "flows.ops.pool_worker"
"""Prefect's command with a worker that can be closed."""
LOG_BYTES = 20_000_000
"""A longer log is put aside, in the place of the one before."""
PR_SET_PDEATHSIG = 1
"""Option of Linux's prctl: the signal a process gets when its parent dies."""


@dataclass(frozen=True)
class Service:
    """A child process that serves something."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None


def start_service(name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Service:
    """Start `python -m ARGUMENTS` in its own process group.

    Call it from the main thread: the kernel ties the child to the thread that started it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    put_aside(log)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            # What servers write is private. A worker starts programs that other users run (the sandbox's): the umask stays the user's.
            umask=-1 if WORKER in arguments else 0o077,
        )
    return Service(name, process, log)


def put_aside(log: Path) -> None:
    """Put a long log aside and go on with an empty one; its service, which only appends, may have it open."""
    if log.exists() and log.stat().st_size > LOG_BYTES:
        aside = log.with_suffix(".old.log")
        aside.touch(mode=0o600)
        shutil.copyfile(log, aside)
        os.truncate(log, 0)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_until_ready(service: Service, address: str, timeout_s: float = 180.0) -> None:
    """Wait until a server answers at an address.

    Raises:
        ServiceError: it ended, or did not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    while not answers(address, timeout_s=2.0):
        if not service.is_alive:
            raise ServiceError(f"{service.name} ended at once (exit code {service.process.returncode}): {last_line(service.log)}")
        if time.monotonic() > deadline:
            raise ServiceError(f"{service.name} did not answer at {address} within {timeout_s:.0f} s; see {service.log}")
        time.sleep(0.2)


def stop_service(service: Service, grace_s: float = 10.0, first: signal.Signals = signal.SIGTERM) -> None:
    """Ask a service to end, wait, then kill what is left of its process group."""
    if service.is_alive:
        service.process.send_signal(first)
        with suppress(subprocess.TimeoutExpired):
            service.process.wait(grace_s)
    with suppress(ProcessLookupError):
        os.killpg(service.process.pid, signal.SIGKILL)
    service.process.wait()


def close_service(service: Service) -> None:
    """Tell a worker (`flows/ops/pool_worker.py`) to take no more flow runs; it goes on looking after those it has."""
    with suppress(ProcessLookupError):
        service.process.send_signal(signal.SIGUSR1)


def answers(address: str, timeout_s: float = 3.0, auth: str | None = None) -> bool:
    """Say whether an HTTP GET of an address succeeds, with `user:password` where one is given."""
    try:
        request = urllib.request.Request(address)
        if auth:
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(auth.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return bool(response.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False


def last_line(log: Path) -> str:
    """Return the last line of a log that says something."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.is_file() else []
    return f"{lines[-1][:300]} (log: {log})" if lines else f"nothing was logged (log: {log})"
