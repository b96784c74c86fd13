"""Lines where nobody looks at a terminal, and the bar where somebody does."""

import io
import logging
import sys
from threading import Event

import pytest
from prefect import flow
from rich.console import Console

from tasks import progress
from tasks.progress import LINE_SECONDS, Progress, duration, speed, terminal


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def said(shown: Progress, clock: Clock, capsys: pytest.CaptureFixture[str], after: float = LINE_SECONDS) -> list[str]:
    clock.now += after
    shown.tick()
    return capsys.readouterr().err.splitlines()


def test_work_that_counts_nothing_is_seen_to_go_on(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("index verify", clock=clock) as shown:
        assert said(shown, clock, capsys, 14) == []
        assert said(shown, clock, capsys, 1) == ["index verify: 15 s so far"]
        assert said(shown, clock, capsys, 14) == []
        assert said(shown, clock, capsys, 200) == ["index verify: 4 min so far"]


@pytest.mark.parametrize(("total", "line"), [(240, "train: 3 of 240 steps, 15 s so far"), (0, "train: 3 steps, 15 s so far")])
def test_a_line_says_a_total_that_is_known(total: int, line: str, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", "steps", clock) as shown:
        shown(3, total)
        assert said(shown, clock, capsys) == [line]


def test_a_line_says_how_long_the_rest_takes_by_what_was_seen(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", "steps", clock) as shown:
        shown(20, 40)  # 20 were done before a kill
        assert said(shown, clock, capsys, 30) == ["train: 20 of 40 steps, 30 s so far"]
        shown(21, 40)
        assert said(shown, clock, capsys, 30) == ["train: 21 of 40 steps, 2.0/min, 9 min left"]
        clock.now += 300
        shown(32, 40, "reward 0.41")
        assert said(shown, clock, capsys, 0) == ["train: 32 of 40 steps, 2.0/min, reward 0.41, 4 min left"]


def test_the_estimate_shrinks_while_nothing_is_reported_and_ends_with_the_count(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("index", "passages", clock) as shown:
        shown(0, 3000)
        clock.now += 10
        shown(1000, 3000)
        assert said(shown, clock, capsys, 15) == ["index: 1,000 of 3,000 passages, 100/s, 5 s left"]
        assert said(shown, clock, capsys, 15) == ["index: 1,000 of 3,000 passages, 100/s, 0 s left"]
        shown(3000, 3000, "writing")
        assert said(shown, clock, capsys, 15) == ["index: 3,000 of 3,000 passages, 75/s, writing, 55 s so far"]


def test_whoever_wants_to_know_that_time_passes_is_told_also_inside_other_progress(clock: Clock) -> None:
    told = list[float]()
    with Progress("outer", clock=clock, on_tick=lambda: told.append(clock.now)) as outer, Progress("inner", clock=clock):
        outer.tick()
        clock.now += LINE_SECONDS
        outer.tick()
    assert told == [1000.0, 1000.0 + LINE_SECONDS]


def test_a_phase_is_counted_under_its_own_name(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("SFT", "steps", clock) as shown:
        shown.phase("own episodes", "questions", 10, 20)
        assert said(shown, clock, capsys) == ["own episodes: 10 of 20 questions, 15 s so far"]
        shown.phase("steps", "updates", 1, 2)
        assert said(shown, clock, capsys) == ["steps: 1 of 2 updates, 15 s so far"]


def test_of_progress_inside_progress_only_the_innermost_speaks(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("outer", clock=clock) as outer:
        with Progress("inner", clock=clock) as inner:
            assert said(outer, clock, capsys) == []
            assert said(inner, clock, capsys, 0) == ["inner: 15 s so far"]
        assert said(outer, clock, capsys, 14) == []
        assert said(outer, clock, capsys, 1) == ["outer: 30 s so far"]
        outer.heard()
        assert said(outer, clock, capsys, 14) == []


def test_the_lines_come_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    class Written(io.StringIO):
        came = Event()

        def write(self, text: str) -> int:
            self.came.set()
            return super().write(text)

    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", written := Written())
    with Progress("sft", "steps"):
        assert written.came.wait(60)
    assert written.getvalue().startswith("sft: 0 s so far\n")


def test_in_a_flow_the_lines_are_logged(
    clock: Clock, prefect_harness: None, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    @flow
    def long() -> None:
        with Progress("evaluate", clock=clock) as shown:
            clock.now += LINE_SECONDS
            shown.tick()

    long()
    assert "evaluate: 15 s so far" in caplog.messages


def test_a_terminal_shows_a_bar_and_no_text_of_it_is_markup(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "terminal", lambda: Console(file=screen, force_terminal=True, width=100))
    with Progress("evaluate [red]x\x1b[2J", "questions", clock) as shown:
        shown(2, 8)
    assert "2/8" in screen.getvalue() and "[red]x" in screen.getvalue() and "\x1b[2J" not in screen.getvalue()


def test_bars_are_drawn_by_the_console_of_the_log_which_knows_no_style_of_theirs(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.logging.handlers import PrefectConsoleHandler

    screen = Terminal()
    handler = PrefectConsoleHandler(stream=screen, styles={"log.info_level": "cyan"})
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal() is handler.console
    with Progress("index", "passages", clock) as shown:
        shown(2, 8)
        logging.getLogger("x").warning("a line above the bar")
    assert "2/8" in screen.getvalue() and "a line above the bar\n" in screen.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (89.4, "89 s"), (90, "2 min"), (7100, "118 min"), (7300, "2 h 2 min")])
def test_times_are_written_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("per_second", "text"), [(0, ""), (527.4, "527/s"), (1.25, "1.2/s"), (0.5, "30/min"), (0.001, "3.6/h")])
def test_speeds_have_a_unit_in_which_they_are_above_one(per_second: float, text: str) -> None:
    assert speed(per_second) == text
