"""The live view of a training: what it shows, that texts of models and pages steer nothing, and lines without a terminal."""

import io
import re
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from slmsearch.episodes.episode import Episode, StopReason, ToolCall, ToolResult, Turn
from slmsearch.training.reports import Collapse, StepReport
from slmsearch.training.samples import SampledEpisode, SampleKind
from tasks import live, progress
from tasks.live import TrainingProgress, TrainingView, live_view, trend
from tasks.progress import LINE_SECONDS
from tests.slmsearch.evaluate.builders import make


def sampled(text: str = "Rome", turns: int = 1) -> SampledEpisode:
    asked = Turn(f'<tool>search_pages("{text}")</tool>', ToolCall("search_pages", text), None, ToolResult(f"rome: {text}\nmore", True))
    said = Turn(f"<answer>{text}</answer>", answer=text)
    row = replace(make("q1", True, question=f"Which city? {text}", gold="Rome", answer=text), reward=0.95)
    return SampledEpisode(SampleKind.BEST, row, Episode("q1", (asked,) * turns + (said,), StopReason.ANSWERED))


def report(step: int, **more: object) -> StepReport:
    metrics = {"reward/mean": step / 10, "answer/correct": step / 20, "episode/tool_calls": 2.5, "policy/entropy": 0.0312}
    return replace(StepReport(step, metrics, 1000.0 + 30 * step), **more)  # type: ignore[arg-type]


def shown(view: TrainingView, width: int = 100, height: int = 60) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(view.render())
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_view_shows_each_measure_the_speed_and_what_is_left() -> None:
    view = TrainingView(40, 64, lambda: 1000.0 + 30 * 12 + 6)
    for step in range(1, 13):
        view.take(report(step, samples=(sampled(),) if step == 11 else ()))
    text = shown(view)
    assert "step 12 of 40, 2.0 steps/min, 2.1 episodes/s, 14 min left" in text
    rows = {line.strip("│ ")[:12]: line.split() for line in text.splitlines()}
    assert [cell for cell in rows["reward      "] if re.fullmatch(r"\d\.\d{3}", cell)] == ["1.200", "0.750"]
    assert "60.0%" in rows["right answer"] and "2.50" in rows["tool calls  "] and "0.0312" in rows["entropy, nat"]
    assert "held-out" not in text and "collapse" not in text
    assert (
        "episode of step 11: best, reward 0.95, right" in text
        and "? Which city? Rome" in text
        and "= Rome" in text
        and "  right is: Rome" in text
    )


def test_before_the_first_step_it_says_what_is_waited_for() -> None:
    clock = iter([1000.0, 1045.0])
    assert "loading and checking before the first of 40 steps, 45 s so far" in shown(TrainingView(40, 64, lambda: next(clock)))


def test_a_collapse_stays_in_view_and_a_last_step_has_nothing_left() -> None:
    view = TrainingView(3, 64)
    for step in (1, 2, 3):
        view.take(report(step, collapse=Collapse("entropy", 3.0, 1.5, 1, 1e-4) if step == 2 else None))
    text = shown(view, width=140)
    assert "step 2: collapse (entropy at 3, limit 1.5): back to the weights of step 1" in text
    assert "left" not in text


def test_a_long_episode_is_abridged_and_every_line_fits() -> None:
    view = TrainingView(3, 64)
    view.take(report(1, samples=(sampled("x" * 3000, turns=30),)))
    lines = shown(view, width=80).splitlines()
    assert len(lines) < 24 and all(len(line) <= 80 for line in lines)
    assert any("... 56 more ..." in line for line in lines)


@given(st.text(max_size=80) | st.sampled_from(["[red]x[/red]", "[/]", "\x1b[2J\x1b]0;title\x07", "a\nb\rc", "\u202eevil", "[link=x]"]))
def test_what_models_and_pages_wrote_styles_nothing_and_steers_nothing(text: str) -> None:
    view = TrainingView(3, 64)
    view.take(report(1, samples=(sampled(text),)))
    console = Console(file=io.StringIO(), width=300, force_terminal=True, color_system=None)
    console.print(view.render())
    out = console.file.getvalue()  # type: ignore[attr-defined]
    assert not set(out) & {"\r", "\x07", "\x9b", "\u202e"} and "\x1b[2J" not in out and "\x1b]" not in out
    if re.fullmatch(r"[\[\]/=a-z]+", text):
        assert f"= {text} " in out


@pytest.mark.parametrize(("values", "drawn"), [([1.0], "▁"), ([0.0, 1.0, 0.5], "▁█▅"), ([2.0, 2.0], "▁▁")])
def test_a_trend_is_drawn_between_its_lowest_and_its_highest(values: list[float], drawn: str) -> None:
    assert trend(values) == drawn


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_where_it_is_wanted_a_terminal_shows_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted in (True, False):
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        for module in (live, progress):
            monkeypatch.setattr(module, "terminal", lambda screen=screen: Console(file=screen, force_terminal=True, width=100, height=50))
        with live_view(wanted), TrainingProgress(3, 64) as training:
            training.take(report(1))
        assert ("training" in screen.getvalue() and "entropy, nats a token" in screen.getvalue()) is wanted
        assert ("1/3" in screen.getvalue()) is not wanted


def test_without_a_terminal_lines_say_reward_right_answers_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    with live_view(True), TrainingProgress(40, 64) as training:
        training.take(report(3))
        training._last -= LINE_SECONDS
        training.tick()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("train: 3 of 40 steps, reward 0.30, right 15%, calls 2.5, ")
