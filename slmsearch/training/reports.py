"""Reports of a training process about each step, as lines of `steps.jsonl`.

The training process appends and flushes one JSON object per optimiser step; the process that started it follows the file. The reports
know no tracker: the caller of the training passes them on.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from slmsearch.artifacts.files import replace_text
from slmsearch.errors import CheckpointError
from slmsearch.training.samples import SampledEpisode

HELD_OUT = "reward/held_out"
"""Metric of the steps at which the weights are scored on held-out questions."""
ACCURACY = ("answer/correct", "answer/typed_match")
"""Metrics with the share of right answers; the first that was recorded counts."""
NOT_A_NUMBER = "loss is not a number"
"""Rule of a collapse that needs no comparison; its value and limit are 0."""


@dataclass(frozen=True, slots=True)
class Collapse:
    """A collapse that the monitor found after a step, and the reaction."""

    rule: str
    value: float
    limit: float
    returned_to: int
    """Step whose weights were restored; 0: the initial weights of the training."""
    learning_rate: float
    """Learning rate from the next step on."""

    def describe(self) -> str:
        """Describe the collapse in a sentence."""
        passed = f" at {self.value:.3g}, limit {self.limit:.3g}" if self.rule != NOT_A_NUMBER else ""
        return f"collapse ({self.rule}{passed}): back to the weights of step {self.returned_to}, learning rate {self.learning_rate:.2g}"


@dataclass(frozen=True, slots=True)
class StepReport:
    """A report on one optimiser step."""

    step: int
    """Number of the step, from 1."""
    metrics: dict[str, float]
    """Finite values under the project's metric names."""
    time: float
    """End of the step, in seconds since the epoch."""
    collapse: Collapse | None = None
    samples: tuple[SampledEpisode, ...] = ()
    """Some of its episodes, at some steps."""

    def value(self, name: str) -> float | None:
        """Return a metric if it was measured; `accuracy` is the first of `ACCURACY`."""
        names = ACCURACY if name == "accuracy" else (name,)
        return next((self.metrics[one] for one in names if one in self.metrics), None)

    def to_line(self) -> str:
        """Write it as one line of JSON."""
        samples = [sample.to_dict() for sample in self.samples]
        return json.dumps({**asdict(replace(self, samples=())), "samples": samples}, allow_nan=False) + "\n"


_REPORT = TypeAdapter(StepReport)


def make_report(step: int, metrics: Mapping[str, float], collapse: Collapse | None = None) -> StepReport:
    """Stamp a step's metrics with the time; values that are not finite numbers are left out."""
    finite = {name: float(value) for name, value in sorted(metrics.items()) if value is not None and math.isfinite(value)}
    return StepReport(step, finite, time.time(), collapse)


def append_report(path: Path, report: StepReport) -> None:
    """Append one line, so that a reader sees it at once and a kill leaves at most one broken line, the last."""
    line = report.to_line()
    with path.open("a", encoding="utf-8") as file:
        file.write(line)


def read_reports(path: Path) -> list[StepReport]:
    """Read all complete lines; a missing file holds none."""
    return ReportTail(path).poll()


def truncate_reports(path: Path, last_step: int) -> list[StepReport]:
    """Drop the reports after `last_step` and any broken line; return those kept.

    A resumed run plays the dropped steps again, so no step appears twice.
    """
    kept = [report for report in read_reports(path) if report.step <= last_step]
    replace_text(path, "".join(report.to_line() for report in kept))
    return kept


class ReportTail:
    """A reader that follows a growing `steps.jsonl`."""

    def __init__(self, path: Path) -> None:
        """Start before the first line."""
        self._path = path
        self._offset = 0

    def poll(self) -> list[StepReport]:
        """Return the reports written since the last call; a line still being written waits.

        Raises:
            CheckpointError: a complete line cannot be read.
        """
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            block = file.read()
        end = block.rfind(b"\n") + 1
        self._offset += end
        try:
            return [_REPORT.validate_python(json.loads(line)) for line in block[:end].splitlines()]
        except ValueError as error:
            raise CheckpointError(f"{self._path} holds a line that is not a step report; delete that directory to retrain") from error
