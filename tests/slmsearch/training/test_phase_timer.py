"""Every moment counts once."""

import json
import time

import pytest

from slmsearch.training import phase_timer as module
from slmsearch.training.files import MANIFEST
from slmsearch.training.phase_timer import BEFORE, HELD_OUT, OTHER, SAMPLING, UPDATE, PhaseTimer
from tests.slmsearch.training.through import train_through


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def test_what_is_inside_does_not_count_for_what_is_around(clock):
    timer = PhaseTimer()
    clock[0] += 1
    with timer.on(UPDATE):
        clock[0] += 2
        with pytest.raises(ValueError), timer.on(SAMPLING):
            clock[0] += 4
            raise ValueError
        clock[0] += 8
    clock[0] += 16
    assert timer.read() == {OTHER: 17.0, UPDATE: 10.0, SAMPLING: 4.0}


def test_what_was_before_the_clock_is_counted(clock):
    assert PhaseTimer(begun=time.time() - 5).read()[OTHER] == pytest.approx(5, abs=0.2)


def test_a_run_says_where_its_time_went(make_job, toolbox, questions):
    job = make_job(steps=4)
    started = time.perf_counter()
    train_through(toolbox, questions, job, held_out=questions[:4])
    seconds = time.perf_counter() - started
    timer = json.loads((job.directory / MANIFEST).read_text())["spent"]
    assert set(timer) == {SAMPLING, UPDATE, HELD_OUT, BEFORE, OTHER}
    assert sum(timer.values()) == pytest.approx(seconds, abs=0.5)
    assert timer[SAMPLING] > 0 and timer[UPDATE] > 0
