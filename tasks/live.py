"""Display of a running training: a view in the terminal with `--live`, else the lines of `progress`, with reward and speed.

The view shows the reports of each step (`slmsearch/training/reports.py`); the training process knows nothing of it. Text of models and
pages is shown as plain text: it cannot style the view, and no control character reaches the terminal.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from slmsearch.foreign import one_line
from slmsearch.training.reports import HELD_OUT, StepReport
from slmsearch.training.samples import SampledEpisode
from tasks.progress import Progress, duration, speed, terminal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

RECENT = 10
"""Steps over which the view averages means and speed."""
TREND = 40
"""Steps in the sparkline."""
TURNS = 6
"""Lines of an episode's turns; the middle of a longer one is left out."""
MAX_LINE_CHARS = 400
BLOCKS = "▁▂▃▄▅▆▇█"
MEASURES = (
    ("reward", "reward/mean", "{:.3f}"),
    ("right answers", "accuracy", "{:.1%}"),
    ("held-out reward", HELD_OUT, "{:.3f}"),
    ("tool calls", "episode/tool_calls", "{:.2f}"),
    ("problems split", "plan/decomposed_frac", "{:.1%}"),
    ("entropy, nats a token", "policy/entropy", "{:.4f}"),
    ("groups without a signal", "group/zero_advantage_frac", "{:.1%}"),
    ("malformed", "stop/malformed", "{:.1%}"),
)
"""Rows of the view: label, metric, and format; only reported metrics are shown."""
NOTED = (("reward", "reward/mean", "{:.2f}"), ("right", "accuracy", "{:.0%}"), ("calls", "episode/tool_calls", "{:.1f}"))
"""Metrics of the progress line: label, metric, and format."""

_wanted: ContextVar[bool] = ContextVar("live", default=False)


@contextmanager
def live_view(wanted: bool) -> Iterator[None]:
    """Show trainings of this context in a live view, if requested and if there is a terminal."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


class TrainingProgress(Progress):
    """Progress of a training, from its reports."""

    def __init__(self, steps: int, episodes_per_step: int) -> None:
        """Set up the display; a step is an update on `episodes_per_step` episodes."""
        super().__init__("train", "steps")
        self._steps = steps
        self._view = TrainingView(steps, episodes_per_step) if _wanted.get() else None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        if self._view is not None and sys.stderr.isatty():
            self.show()
        return self

    def take(self, report: StepReport) -> None:
        """Show a step."""
        if self._view is not None:
            self._view.take(report)
        values = [(label, report.value(name), form) for label, name, form in NOTED]
        self(report.step, self._steps, ", ".join(f"{label} {form.format(value)}" for label, value, form in values if value is not None))

    def tick(self) -> None:
        """Print how far the training has come, unless a view shows it."""
        if self._live is None:
            super().tick()

    def show(self) -> None:
        """Draw the view, which then redraws itself every second; without a view draw the bar."""
        from rich.live import Live

        if self._view is None:
            super().show()
        elif self._live is None:
            self._live = Live(
                get_renderable=self._view.render,
                console=terminal(),
                refresh_per_second=1,
                redirect_stdout=False,
                vertical_overflow="ellipsis",
            )
            self._live.start()

    def hide(self) -> None:
        """End the view and leave its last state on the terminal."""
        super().hide()
        if self._live is not None:
            self._live.stop()
            self._live = None


class TrainingView:
    """State of the view, from the reports so far."""

    def __init__(self, steps: int, episodes_per_step: int, clock: Callable[[], float] = time.time) -> None:
        """Set up the view of a training of `steps` steps; the clock gives the time of reports, seconds since the epoch."""
        self._steps, self._episodes_per_step, self._clock = steps, episodes_per_step, clock
        self._began = clock()
        self._reports = list[StepReport]()
        self._sampled: tuple[int, SampledEpisode] | None = None
        self._collapse = ""

    def take(self, report: StepReport) -> None:
        """Take the report of the next step."""
        self._reports.append(replace(report, samples=()))
        if report.samples:
            self._sampled = report.step, report.samples[0]
        if report.collapse is not None:
            self._collapse = f"step {report.step}: {report.collapse.describe()}"

    @property
    def steps_per_second(self) -> float:
        """Return the speed over the last steps; 0 while it is not known."""
        recent = self._reports[-RECENT - 1 :]
        took = recent[-1].time - recent[0].time if len(recent) > 1 else 0.0
        return (recent[-1].step - recent[0].step) / took if took > 0 else 0.0

    def render(self) -> "RenderableType":
        """Return the view as it is now."""
        from rich.console import Group
        from rich.panel import Panel

        parts: list[RenderableType] = [self._render_head()]
        if self._reports:
            parts.append(self._render_measures())
        if self._collapse:
            parts.append(_line(self._collapse, "yellow"))
        if self._sampled is not None:
            step, sample = self._sampled
            reward, verdict = f"{sample.row.reward:.2f}", "right" if sample.row.correct else "wrong"
            title = _line(f"episode of step {step}: {sample.kind.replace('_', ' ')}, reward {reward}, {verdict}")
            parts.append(Panel(Group(*_episode_lines(sample)), title=title, title_align="left", border_style="dim"))
        return Panel(Group(*parts), title="training", title_align="left")

    def _render_head(self) -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        now = self._clock()
        if not self._reports:
            said = [f"loading and checking before the first of {self._steps} steps, {duration(now - self._began)} so far"]
            step = 0
        else:
            step, rate = self._reports[-1].step, self.steps_per_second
            said = [f"step {step} of {self._steps}"]
            if rate:
                left = max(0.0, (self._steps - step) / rate - (now - self._reports[-1].time))
                said += [speed(rate).replace("/", " steps/"), speed(rate * self._episodes_per_step).replace("/", " episodes/")]
                said += [f"{duration(left)} left"] if step < self._steps else []
        head = Table.grid(padding=(0, 1))
        head.add_row(ProgressBar(self._steps, step, width=14), _line(", ".join(said)))
        return head

    def _render_measures(self) -> "Table":
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("")
        table.add_column("last step", justify="right")
        table.add_column(f"mean of {RECENT}", justify="right")
        table.add_column(f"last {TREND} values", no_wrap=True)
        for label, name, form in MEASURES:
            if values := [value for report in self._reports if (value := report.value(name)) is not None]:
                recent = values[-RECENT:]
                table.add_row(label, form.format(values[-1]), form.format(sum(recent) / len(recent)), trend(values[-TREND:]))
        return table


def trend(values: list[float]) -> str:
    """Draw values as a line of blocks, the lowest as the smallest."""
    low, high = min(values), max(values)
    factor = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((value - low) * factor)] for value in values)


def _episode_lines(sample: SampledEpisode) -> "list[Text]":
    """Shorten an episode: the question, a line for each message and result, and the answer beside the right one."""
    lines = [_line(f"? {sample.row.question}", "bold")]
    turns: list[Text] = []
    for turn in sample.episode.turns:
        turns.append(_line(f"> {turn.text}", "cyan"))
        turns += [_line(f"  {turn.result.text}", "dim")] if turn.result is not None else []
    if len(turns) > TURNS:
        turns = [*turns[: TURNS // 2], _line(f"  ... {len(turns) - TURNS + 1} more ...", "dim"), *turns[1 - TURNS // 2 :]]
    answer = sample.row.stop_reason if sample.row.answer is None else sample.row.answer
    verdict = _line(f"= {answer}", "green" if sample.row.correct else "red")
    return [*lines, *turns, verdict, _line(f"  right is: {sample.row.gold}", "dim")]


def _line(text: str, style: str = "") -> "Text":
    """Return one line of a text, cut at the terminal's width, without markup and control characters."""
    from rich.text import Text

    shown = text[: len(text) - len(text.lstrip())] + one_line(text[:MAX_LINE_CHARS])
    return Text(shown, style, no_wrap=True, overflow="ellipsis")
