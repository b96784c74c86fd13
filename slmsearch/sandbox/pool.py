"""Warm instances: interpreters that wait in their sandbox, started ahead of the programs that will use them up.

One thread starts them all and lives as long as the pool, because the kernel ends an instance when the thread that started it ends. Another
terminates those that are done with.
"""

import queue
import threading
import time
from contextlib import suppress

from slmsearch.errors import SandboxError
from slmsearch.sandbox.engine import Engine, Instance

START_SECONDS = 30.0
"""Time an instance gets to report; long, because a machine under load starts many things."""
RETRY_SECONDS = 1.0


class Pool:
    """Keeps a number of instances warm."""

    def __init__(self, engine: Engine, warm: int) -> None:
        """Start filling.

        Args:
            engine: starts the instances.
            warm: how many wait.
        """
        self.engine = engine
        self.latest: Instance | None = None
        """The one that was taken last."""
        self.lost = 0
        """Instances of which something would not die."""
        self._warm = warm
        self._instances: queue.Queue[Instance | SandboxError] = queue.Queue()
        self._wanted = threading.Semaphore(warm)
        self._dead: queue.Queue[Instance | None] = queue.Queue()
        self._closing = threading.Event()
        self._reaper = engine.start_reaper()
        self._threads = [
            threading.Thread(target=work, name=f"sandbox{work.__name__}", daemon=True) for work in (self._keep, self._terminate)
        ]
        for thread in self._threads:
            thread.start()

    def take(self, timeout_s: float) -> Instance:
        """Take a warm instance; the caller gives it back with `discard`.

        Raises:
            SandboxError: none can be started, or none came in time.
        """
        deadline = time.monotonic() + timeout_s
        try:
            instance = self._instances.get(timeout=timeout_s)
        except queue.Empty:
            raise SandboxError(f"no sandbox was free within {timeout_s:.0f} s; the machine is too busy to start one") from None
        self._wanted.release()
        if isinstance(instance, SandboxError):
            raise instance
        try:
            instance.wait_until_ready(max(1.0, min(START_SECONDS, deadline - time.monotonic())))
        except SandboxError:
            self.discard(instance)
            raise
        self.latest = instance
        return instance

    def discard(self, instance: Instance) -> None:
        """Kill an instance; what is left of it is removed in the background."""
        instance.kill()
        self._dead.put(instance)

    @property
    def waiting(self) -> int:
        """Instances that wait or are being started."""
        return self._instances.qsize()

    def close(self) -> None:
        """Kill all instances and wait until nothing is left of them."""
        self._closing.set()
        self._wanted.release()
        self._threads[0].join()
        with suppress(queue.Empty):
            while True:
                instance = self._instances.get_nowait()
                if not isinstance(instance, SandboxError):
                    self.discard(instance)
        self._dead.put(None)
        self._threads[1].join()
        self.engine.close()
        self._reaper.communicate(b"done")

    def _keep(self) -> None:
        while True:
            self._wanted.acquire()
            if self._closing.is_set():
                return
            try:
                self._instances.put(self.engine.start())
            except SandboxError as error:
                self._instances.put(error)
                self._closing.wait(RETRY_SECONDS)

    def _terminate(self) -> None:
        while (instance := self._dead.get()) is not None:
            if not instance.terminate():
                self.lost += 1
