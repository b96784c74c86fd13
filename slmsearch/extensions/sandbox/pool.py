"""Warm instances: interpreters that wait in their sandbox, started ahead of the programs that use them up.

One thread starts them all and lives as long as the pool, because the kernel ends an instance when the thread that started it ends. Another
terminates those that are done with.
"""

import queue
import time
from concurrent.futures import Future, ThreadPoolExecutor

from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox.engine import Instance, SandboxEngine

START_SECONDS = 30.0
"""Time limit for an instance to report; long, because a machine under load starts many things."""


class Pool:
    """Pool that keeps a number of instances warm."""

    def __init__(self, engine: SandboxEngine, warm: int) -> None:
        """Start filling the pool to its size."""
        self.engine = engine
        self.latest: Instance | None = None
        """Instance that was taken last."""
        self.lost = 0
        """Number of instances with a process that survives kills."""
        self._started: queue.Queue[Future[Instance]] = queue.Queue()
        self._starter, self._terminator = (ThreadPoolExecutor(1, thread_name_prefix="sandbox") for _ in range(2))
        self._reaper = engine.start_reaper()
        for _ in range(warm):
            self._start_one()

    def take(self, timeout_s: float) -> Instance:
        """Take a warm instance; the caller returns it with `discard`.

        Raises:
            SandboxError: none can be started, or none came in time.
        """
        deadline = time.monotonic() + timeout_s
        try:
            started = self._started.get(timeout=timeout_s)
        except queue.Empty:
            raise SandboxError(f"no sandbox was free within {timeout_s:.0f} s; the machine is too busy to start one") from None
        self._start_one()
        instance = started.result()
        try:
            instance.wait_until_ready(max(1.0, min(START_SECONDS, deadline - time.monotonic())))
        except SandboxError:
            self.discard(instance)
            raise
        self.latest = instance
        return instance

    def discard(self, instance: Instance) -> None:
        """Kill an instance; its leftovers are removed in the background."""
        instance.kill()
        self._terminator.submit(self._terminate, instance)

    @property
    def waiting(self) -> int:
        """Return the number of instances that wait or are being started."""
        return self._started.qsize()

    def close(self) -> None:
        """Kill all instances and wait until they have ended."""
        self._starter.shutdown(cancel_futures=True)
        while not self._started.empty():
            started = self._started.get()
            if not started.cancelled() and started.exception() is None:
                self.discard(started.result())
        self._terminator.shutdown()
        self.engine.close()
        self._reaper.communicate(b"done")

    def _start_one(self) -> None:
        self._starter.submit(self.engine.start).add_done_callback(self._started.put)

    def _terminate(self, instance: Instance) -> None:
        if not instance.terminate():
            self.lost += 1
