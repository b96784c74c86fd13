"""What a server prints, passed on while it prints it."""

import codecs
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

POLL_SECONDS = 0.1


class LogFollower:
    """Passes on what is appended to a file, until its end is reached after the context was left."""

    def __init__(self, log: Path, show: Callable[[str], None] | None) -> None:
        """Follow nothing yet.

        Args:
            log: file.
            show: gets pieces of text as they are; None switches following off.
        """
        self._log, self._show = log, show
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "LogFollower":
        if self._show is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._show is not None:
            self._thread.join()

    def _follow(self) -> None:
        assert self._show is not None
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        with self._log.open("rb") as file:
            while True:
                last = self._over.is_set()
                if text := decode(file.read()):
                    self._show(text)
                if last:
                    return
                self._over.wait(POLL_SECONDS)
