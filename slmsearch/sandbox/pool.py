"""Warm cells: interpreters that wait in their sandbox, started ahead of the programs that will use them up.

One thread starts them all and lives as long as the pool, because the kernel ends a cell when the thread that started it ends. Another
buries those that are done with.
"""

import queue
import threading
import time
from contextlib import suppress

from slmsearch.errors import SandboxError
from slmsearch.sandbox.engine import Cell, Engine

START_SECONDS = 30.0
"""Time a cell gets to report; long, because a machine under load starts many things."""
RETRY_SECONDS = 1.0


class Pool:
    """Keeps a number of cells warm."""

    def __init__(self, engine: Engine, warm: int) -> None:
        """Start filling.

        Args:
            engine: starts the cells.
            warm: how many wait.
        """
        self.engine = engine
        self.lost = 0
        """Cells of which something would not die."""
        self._warm = warm
        self._cells: queue.Queue[Cell | SandboxError] = queue.Queue()
        self._wanted = threading.Semaphore(warm)
        self._dead: queue.Queue[Cell | None] = queue.Queue()
        self._closing = threading.Event()
        self._nanny = engine.start_nanny()
        self._threads = [threading.Thread(target=work, name=f"sandbox{work.__name__}", daemon=True) for work in (self._keep, self._bury)]
        for thread in self._threads:
            thread.start()

    def take(self, timeout_s: float) -> Cell:
        """Take a warm cell; the caller gives it back with `discard`.

        Raises:
            SandboxError: none can be started, or none came in time.
        """
        deadline = time.monotonic() + timeout_s
        try:
            cell = self._cells.get(timeout=timeout_s)
        except queue.Empty:
            raise SandboxError(f"no sandbox was free within {timeout_s:.0f} s; the machine is too busy to start one") from None
        self._wanted.release()
        if isinstance(cell, SandboxError):
            raise cell
        try:
            cell.wait_until_ready(max(1.0, min(START_SECONDS, deadline - time.monotonic())))
        except SandboxError:
            self.discard(cell)
            raise
        return cell

    def discard(self, cell: Cell) -> None:
        """Kill a cell; what is left of it is removed in the background."""
        cell.kill()
        self._dead.put(cell)

    @property
    def waiting(self) -> int:
        """Cells that wait or are being started."""
        return self._cells.qsize()

    def close(self) -> None:
        """Kill all cells and wait until nothing is left of them."""
        self._closing.set()
        self._wanted.release()
        self._threads[0].join()
        with suppress(queue.Empty):
            while True:
                cell = self._cells.get_nowait()
                if not isinstance(cell, SandboxError):
                    self.discard(cell)
        self._dead.put(None)
        self._threads[1].join()
        self.engine.close()
        self._nanny.communicate(b"done")

    def _keep(self) -> None:
        while True:
            self._wanted.acquire()
            if self._closing.is_set():
                return
            try:
                self._cells.put(self.engine.start())
            except SandboxError as error:
                self._cells.put(error)
                self._closing.wait(RETRY_SECONDS)

    def _bury(self) -> None:
        while (cell := self._dead.get()) is not None:
            if not cell.bury():
                self.lost += 1
