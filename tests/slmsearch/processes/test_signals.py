import os
import signal
import threading

import pytest

from slmsearch.processes.signals import stopping_by_signal


def test_a_signal_that_meets_a_wait_sets_the_event() -> None:
    stop = threading.Event()
    with stopping_by_signal(stop):
        with stop._cond:  # type: ignore[attr-defined]  # as `wait` holds it, in this thread
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(20)


def test_the_second_signal_interrupts_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = threading.Event()
    with stopping_by_signal(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(20)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            stop.wait(1)
    assert signal.getsignal(signal.SIGINT) is before
