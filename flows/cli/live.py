"""Draws a training run while it goes, from the step reports it stores; the trainer knows nothing of it.

The directory is found by the lock that this process holds while it trains: its train key is known only once the data are.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from slmsearch.artifacts.files import replace_text
from slmsearch.config import RunConfig
from slmsearch.errors import SlmSearchError
from slmsearch.learn.files import LOCK, STEPS
from slmsearch.learn.reports import StepReport, read_reports
from slmsearch.report.live import describe_step, draw_lines, render_live
from tasks.progress import without_bars

PAGE = "live.html"
POLL_SECONDS = 0.5
PAGE_SECONDS = 5
"""Time between two versions of the page."""
LINE_SECONDS = 2.0
"""Time between two lines where there is no terminal."""


class LivePlot:
    """Follows the training of this process in a thread of its own, in the terminal and as a page.

    A fault of the plot is said once and ends the plot, never the training.
    """

    def __init__(self, config: RunConfig, say: Callable[[str], None]) -> None:
        """Draw nothing yet; `say` tells a person something."""
        self._config, self._say = config, say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="live-plot", daemon=True)
        self._bars = without_bars()
        self._live: Live | None = None
        self._directory: Path | None = None
        self._seen: tuple[int, int] = (-1, -1)
        self._reports: list[StepReport] = []
        self._page_at = self._line_at = float("-inf")
        self._said = 0

    def __enter__(self) -> "LivePlot":
        self._bars.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._bars.__exit__(None, None, None)

    def _follow(self) -> None:
        try:
            while not self._stop.wait(POLL_SECONDS):
                self.look()
            self.look(last=True)
        except Exception as error:
            self._say(f"live plot: {type(error).__name__}: {error}; training goes on without it")
        finally:
            if self._live is not None:
                self._live.stop()

    def look(self, last: bool = False) -> None:
        """Draw what is new; the last time, also what waits for its turn."""
        if self._directory is None:
            self._directory = find_directory(self._config.paths.training)
            if self._directory is None:
                return
            self._say(f"live plot: {self._directory / PAGE}")
        fresh, now = self._read(), time.monotonic()
        done, total = self._reports[-1].step if self._reports else 0, self._config.train.steps
        status = f"{'Ended at step' if last else 'Step'} {done}{f' of {total}' if total else ''}"
        if sys.stderr.isatty():
            if fresh or last:
                self._draw(status)
        elif last or now - self._line_at >= LINE_SECONDS:
            self._line_at = now
            self._say_new()
        if last or now - self._page_at >= PAGE_SECONDS:
            self._page_at = now
            page = render_live(self._reports, f"Training {self._directory.name}", status, None if last else PAGE_SECONDS)
            replace_text(self._directory / PAGE, page)

    def _read(self) -> bool:
        """Read the reports if the file has changed; all of them, for a resumed run drops some and writes them again."""
        assert self._directory is not None
        path = self._directory / STEPS
        with suppress(OSError, SlmSearchError):  # a damaged line is the trainer's to report
            state = path.stat()
            if (state.st_mtime_ns, state.st_size) == self._seen:
                return False
            self._seen = (state.st_mtime_ns, state.st_size)
            self._reports = read_reports(path)
            return True
        return False

    def _draw(self, status: str) -> None:
        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False, redirect_stdout=False)
            self._live.start()
        width = max(10, self._live.console.width - 45)
        lines: Sequence[str] = [status, *draw_lines(self._reports, min(width, 100))]
        self._live.update(Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)), refresh=True)

    def _say_new(self) -> None:
        """Say the newest step that has not been said, and every collapse."""
        new = [report for report in self._reports if report.step > self._said]
        for report in new:
            if report.collapse is not None or report is new[-1]:
                self._say(describe_step(report, self._config.train.steps))
        self._said = max([self._said, *(report.step for report in new)])


def find_directory(trainings: Path) -> Path | None:
    """Find the training directory whose lock this process holds; None as long as it holds none."""
    for lock in trainings.glob(f"*/{LOCK}"):
        with suppress(OSError):
            if lock.read_text(encoding="utf-8").strip() == str(os.getpid()):
                return lock.parent
    return None
