"""Progress of long work: a bar on a terminal if the work counts something, else a line every quarter of a minute.

A thread writes the lines, so that work without output for minutes visibly continues. They go to the log of the flow run, and outside of a
flow to standard error. Of nested progress only the innermost is shown.
"""

import logging
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from slmsearch.foreign import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

LINE_SECONDS = 15.0
"""Time between two lines, and time before the first line of work that counts nothing."""

_innermost: ContextVar["Progress | None"] = ContextVar("innermost", default=None)


@dataclass(frozen=True, slots=True)
class Seen:
    """State of the work."""

    what: str
    unit: str
    """Unit of the count, in the plural."""
    since: float
    """Start time; with a count, the time of the first report."""
    first: int = 0
    """Count at that time, done by a run that was killed: it does not enter the estimate."""
    done: int = 0
    total: int = 0
    """Total count; 0 if not known."""
    at: float | None = None
    """Time of the last report; None before the first count."""
    note: str = ""

    @property
    def per_second(self) -> float:
        """Return the measured speed; 0 if it is not known."""
        return (self.done - self.first) / (self.at - self.since) if self.at and self.done > self.first and self.at > self.since else 0.0

    def left_s(self, now: float) -> float | None:
        """Estimate the remaining seconds; None if they cannot be known."""
        if self.at is None or not self.per_second or not self.done < self.total:
            return None
        return max(0.0, (self.total - self.done) / self.per_second - (now - self.at))

    def describe(self, began: float, now: float) -> str:
        """Describe the progress in a line."""
        if self.at is None:
            return f"{self.what}: {duration(now - began)} so far"
        count = f"{self.done:,} of {self.total:,}" if self.total else f"{self.done:,}"
        left = self.left_s(now)
        ending = f"{duration(now - began)} so far" if left is None else f"{duration(left)} left"
        return ", ".join(filter(None, (f"{self.what}: {count} {self.unit}", speed(self.per_second), self.note, ending)))


def duration(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def speed(per_second: float) -> str:
    """Format a speed with two digits, in a unit in which it is above 1; empty if it is 0."""
    if not per_second:
        return ""
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if per_second * factor >= 1 or unit == "h":
            return f"{per_second * factor:,.{0 if per_second * factor >= 10 else 1}f}/{unit}"
    raise AssertionError


class Progress:
    """Progress display; call it with the count and the total."""

    def __init__(
        self, what: str, unit: str = "", clock: Callable[[], float] = time.monotonic, on_tick: Callable[[], None] = lambda: None
    ) -> None:
        """Set up the display without showing it; the unit is in the plural. Its thread calls `on_tick` every quarter of a minute."""
        self._on_tick = on_tick
        self._clock = clock
        self._began = self._last = clock()
        self._seen = Seen(what, unit, self._began)
        self._inside, self._ended = 0, Event()
        self._outer: Progress | None = None
        self._token: Token[Progress | None] | None = None
        self._logger: Any = None
        self._bar: Bar | None = None
        self._thread = Thread(target=self._watch, name=f"progress of {what}", daemon=True)

    def __enter__(self) -> Self:
        self._outer, self._token = _innermost.get(), _innermost.set(self)
        if self._outer is not None:
            self._outer._inside += 1
            self._outer.hide()
        self._logger = _run_logger()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self.hide()
        if self._token is not None:
            _innermost.reset(self._token)
        if self._outer is not None:
            self._outer._inside -= 1
            self._outer.heard()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Record `done` of `total`; a total of 0 is not known. The note is shown with the count."""
        now, seen = self._clock(), self._seen
        if seen.at is None:
            seen = replace(seen, first=done, since=now)
        self._seen = replace(seen, done=done, total=total, at=now, note=note)
        if sys.stderr.isatty():
            self.show()

    def phase(self, what: str, unit: str, done: int, total: int) -> None:
        """Count a phase of the work, under a name and in a unit of its own."""
        if self._seen.what != what:
            self._began = self._clock()
            self._seen = Seen(what, unit, self._began)
            self.hide()
        self(done, total)

    def heard(self) -> None:
        """Restart the quarter of a minute, because another message was shown."""
        self._last = self._clock()

    def tick(self) -> None:
        """Call `on_tick`; print the progress, if nothing was printed for long enough and no inner progress prints it."""
        self._on_tick()
        now = self._clock()
        if now - self._last < LINE_SECONDS:
            return
        self._last = now
        if self._inside:
            return
        if sys.stderr.isatty() and self._seen.at is not None:
            self.show()
        elif self._logger is not None:
            self._logger.info("%s", self._seen.describe(self._began, now))
        else:
            print(visible(self._seen.describe(self._began, now)), file=sys.stderr, flush=True)

    def show(self) -> None:
        """Draw the bar."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        seen = self._seen
        if self._bar is None:
            columns = [TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()]
            columns += [TextColumn("{task.fields[unit]}", markup=False)]
            self._bar = Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=terminal(), transient=True, redirect_stdout=False)
            self._bar.add_task(visible(seen.what), total=seen.total or None, unit=seen.unit)
            self._bar.start()
        self._bar.update(
            self._bar.task_ids[0], description=visible(seen.what), completed=seen.done, total=seen.total or None, unit=seen.unit
        )

    def hide(self) -> None:
        """Remove the bar from the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _watch(self) -> None:
        pause = LINE_SECONDS
        while not self._ended.wait(pause):
            self.tick()
            pause = max(0.0, LINE_SECONDS - (self._clock() - self._last))


def terminal() -> "Console":
    """Return the console on standard error: that of the log, if it has one, so that neither writes into the other."""
    from rich.console import Console
    from rich.default_styles import DEFAULT_STYLES
    from rich.style import Style
    from rich.theme import Theme

    for handler in logging.getLogger().handlers:
        if isinstance(console := getattr(handler, "console", None), Console) and console.is_terminal:
            unknown = Style()
            missing = {name: style for name, style in DEFAULT_STYLES.items() if console.get_style(name, default=unknown) is unknown}
            if missing:  # Prefect's console has its own styles alone
                console.push_theme(Theme(missing, inherit=False))
            return console
    return Console(stderr=True)


def _run_logger() -> Any:
    """Return the logger of the flow or task run; None outside of one."""
    if "prefect" not in sys.modules:
        return None
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    try:
        return get_run_logger()
    except MissingContextError:
        return None
