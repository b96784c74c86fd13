"""Supervision of the servers of a run (Prefect, MLflow's UI, a worker): restart one that ends by itself, up to a limit.

`up.py` and `api.py` decide which servers run.
"""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slmsearch.errors import ServiceError
from slmsearch.http_client import answers
from slmsearch.processes.child import ChildProcess, ProcessSettings
from slmsearch.serving.engines.failures import read_tail

HOST = "127.0.0.1"
WORKER = "flows.ops.pool_worker"
"""Module of Prefect's command with a worker that can be closed."""
LOG_BYTES = 20_000_000
"""Size above which a log is renamed, in place of the one before."""
MAX_ENDS = 5
"""Number of ends within `WINDOW_S` after which a service is not restarted."""
WINDOW_S = 600.0

Say = Callable[[str], None]
"""Function that shows a message to a person."""


def start_service(name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> ChildProcess:
    """Start `python -m ARGUMENTS`; it is asked to end when this process dies.

    Call it from the main thread: the kernel ties the child to the thread that started it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    put_aside(log)
    # Files of servers are private. A worker starts programs that other users run (the sandbox's): the umask stays the user's.
    umask = -1 if WORKER in arguments else 0o077
    service = ChildProcess(name, ["-m", *arguments], log, ProcessSettings(environment or {}, signal.SIGTERM, umask=umask))
    service.hang_up()
    return service


def put_aside(log: Path) -> None:
    """Copy a long log aside and empty it; its service, which only appends, may have it open."""
    if log.exists() and log.stat().st_size > LOG_BYTES:
        aside = log.with_suffix(".old.log")
        aside.touch(mode=0o600)
        shutil.copyfile(log, aside)
        os.truncate(log, 0)


def wait_until_ready(service: ChildProcess, address: str, stop: threading.Event | None = None, timeout_s: float = 180.0) -> None:
    """Wait until a server answers at an address.

    Raises:
        ServiceError: it ended, or did not answer in time.
        KeyboardInterrupt: `stop` was set meanwhile.
    """
    deadline = time.monotonic() + timeout_s
    while not answers(address, timeout_s=2.0):
        if not service.is_alive:
            raise ServiceError(f"{service.name} ended at once (exit code {service.process.returncode}): {last_line(service.log)}")
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt
        if time.monotonic() > deadline:
            raise ServiceError(f"{service.name} did not answer at {address} within {timeout_s:.0f} s; see {service.log}")
        time.sleep(0.2)


def close_service(service: ChildProcess) -> None:
    """Tell a worker (`flows/ops/pool_worker.py`) to take no more flow runs; it keeps those it has."""
    with suppress(ProcessLookupError):
        service.process.send_signal(signal.SIGUSR1)


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty."""
    return f"{(read_tail(log) or ['nothing was logged'])[-1]} (log: {log})"


class Supervised:
    """A service and its start command."""

    def __init__(self, start: Callable[[], ChildProcess], wait_until_ready: Callable[[ChildProcess], None] = lambda _: None) -> None:
        """Start the service; `ready` waits until it answers.

        Call this, and `fix_findings`, from the main thread: the kernel ties the service to the thread that started it.
        """
        self._start, self._wait_until_ready = start, wait_until_ready
        self._ends: list[float] = []
        self.service = start()

    def ready(self) -> None:
        """Wait until it answers.

        Raises:
            ServiceError: it ended, or does not answer in time.
        """
        self._wait_until_ready(self.service)

    def stop(self, first: signal.Signals = signal.SIGTERM) -> None:
        """Ask the service to end, wait, then kill what is left of it."""
        self.service.stop(first=first)

    def fix_findings(self, say: Say) -> bool:
        """Restart the service if it has ended; return whether it had. Shorten the log of a running one.

        Raises:
            ServiceError: it has ended too often, or does not start.
        """
        if self.service.is_alive:
            put_aside(self.service.log)
            return False
        ended = f"{self.service.name} ended by itself (exit code {self.service.process.returncode})"
        self._ends = [at for at in self._ends if time.monotonic() - at < WINDOW_S] + [time.monotonic()]
        if len(self._ends) > MAX_ENDS:
            raise ServiceError(f"{ended}, {len(self._ends)} times in {WINDOW_S / 60:.0f} minutes: {last_line(self.service.log)}")
        say(f"{time.strftime('%H:%M:%S')} {ended} and is started again: {last_line(self.service.log)}")
        self.service.kill()  # children of it that live on would hold its port
        self.service = self._start()
        self.ready()
        return True
