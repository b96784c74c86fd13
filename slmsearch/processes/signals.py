"""Ending in order when told to."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping_by_signal(stop: threading.Event) -> Iterator[None]:
    """Set an event on Ctrl-C, SIGTERM or SIGHUP, as long as the context lasts; on the second of them `KeyboardInterrupt` is raised."""
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def end(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():  # the second Ctrl-C means it
            raise KeyboardInterrupt
        stop.set()

    for number in previous:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
