"""Signal handling for an orderly end."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping_by_signal(stop: threading.Event) -> Iterator[None]:
    """Set an event on Ctrl-C, SIGTERM or SIGHUP, as long as the context lasts; on the second of them `KeyboardInterrupt` is raised."""
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    told = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if told:  # the second Ctrl-C means it
            raise KeyboardInterrupt
        told = True
        # A handler runs in the midst of the main thread, which may hold the event's lock in `wait`: `set` would wait for it for ever.
        threading.Thread(target=stop.set, name="stop").start()

    for number in previous:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
