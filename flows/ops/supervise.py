"""Services that are started again when they end by themselves, unless they do so again and again."""

import signal
import time
from collections.abc import Callable

from flows.ops.servers import Service, last_line, put_aside, stop_service
from slmsearch.errors import ServiceError

MAX_ENDS = 5
"""A service that has ended by itself this often within `WINDOW_S` is not started again."""
WINDOW_S = 600.0

Say = Callable[[str], None]


class Supervised:
    """A service, and how it is started."""

    def __init__(self, start: Callable[[], Service], wait_until_ready: Callable[[Service], None] = lambda _: None) -> None:
        """Start it; `ready` waits until it answers.

        Call it, and `fix_findings`, from the main thread: the kernel ties the service to the thread that started it.
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
        """Ask it to end, wait, then kill what is left of it."""
        stop_service(self.service, first=first)

    def fix_findings(self, say: Say) -> bool:
        """Start it again if it has ended; return whether it had. The log of one that runs is kept short.

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
        stop_service(self.service)  # children of it that live on would hold its port
        self.service = self._start()
        self.ready()
        return True
