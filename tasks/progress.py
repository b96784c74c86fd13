"""How far a long task has come: a bar where a person looks at a terminal, a line in the log now and then elsewhere."""

import logging
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

LINE_SECONDS = 15.0
"""Time between two lines in the log."""


class Progress:
    """Call it with what is done and the total."""

    def __init__(self, what: str, unit: str) -> None:
        """Show nothing yet of the work; the unit of what is counted is in the plural."""
        self._what, self._unit = what, unit
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._last_line = self._since = time.monotonic()
        self._first: int | None = None

    def __enter__(self) -> "Progress":
        return self

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done; a total of 0 is not known."""
        if sys.stderr.isatty():
            self._show(done, total)
            return
        now = time.monotonic()
        if self._first is None:  # what was done before, by a run that was killed, says nothing of the time of what is left
            self._first, self._since = done, now
        if now - self._last_line > LINE_SECONDS:
            self._last_line = now
            left = (total - done) * (now - self._since) / (done - self._first) if total and done > self._first else None
            ending = "" if left is None else f", {left / 60:.0f} min left" if left >= 90 else f", {left:.0f} s left"
            _run_logger().info("%s: %d %s%s%s", self._what, done, f"of {total} " if total else "", self._unit, ending)

    def _show(self, done: int, total: int) -> None:
        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(self._unit))
            console = Console(stderr=True)
            self._bar = Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True, redirect_stdout=False)
            self._task = self._bar.add_task(self._what, total=total or None)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total or None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def _run_logger() -> Any:
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("slmsearch")
