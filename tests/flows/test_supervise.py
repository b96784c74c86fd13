"""Services that end by themselves, and are started again."""

import signal
from pathlib import Path

import pytest

from flows.runtime.servers import MAX_ENDS, Supervised, start_service
from slmsearch.errors import ServiceError
from slmsearch.processes.child import ChildProcess


def make(log: Path, module: str) -> Supervised:
    return Supervised(lambda: start_service("the clock", [module], log))


def test_one_that_lives_is_left_alone_and_one_that_was_killed_is_started_again(tmp_path: Path) -> None:
    ready: list[ChildProcess] = []
    clock = Supervised(lambda: start_service("the clock", ["http.server", "0"], tmp_path / "log"), ready.append)
    try:
        said: list[str] = []
        first = clock.service
        assert not clock.fix_findings(said.append) and not said
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        assert clock.fix_findings(said.append)
        assert clock.service.is_alive and clock.service is not first and ready == [clock.service]
        assert len(said) == 1 and "the clock ended by itself (exit code -9) and is started again" in said[0]
    finally:
        clock.stop(signal.SIGKILL)


def test_one_that_ends_again_and_again_is_given_up(tmp_path: Path) -> None:
    said: list[str] = []
    clock = make(tmp_path / "log", "this")
    with pytest.raises(ServiceError, match=rf"ended by itself \(exit code 0\), {MAX_ENDS + 1} times in 10 minutes"):
        while True:
            clock.service.process.wait()
            clock.fix_findings(said.append)
    assert len(said) == MAX_ENDS
