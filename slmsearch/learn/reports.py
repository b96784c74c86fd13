"""What a training process says about each step, as lines of `steps.jsonl`, and a few episodes of its batches, as lines of `examples.jsonl`.

One JSON object per optimiser step, appended and flushed by the training process, followed by the process that started it. No
tracker is known here: whoever trains passes the reports on.
"""

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from slmsearch.artifacts.files import replace_text
from slmsearch.environments.rows import EpisodeRow
from slmsearch.errors import CheckpointError
from slmsearch.searcher.episode import Episode

NOT_A_NUMBER = "loss is not a number"
"""Rule of a collapse that needs no comparison; its value and limit are 0."""
MAX_CHARS = 1000
"""Characters of a text in an example."""


@dataclass(frozen=True, slots=True)
class Collapse:
    """A collapse that the monitor found after a step, and what was done."""

    rule: str
    value: float
    limit: float
    returned_to: int
    """Step whose weights were restored; 0: those training began with."""
    learning_rate: float
    """From the next step on."""

    def describe(self) -> str:
        """Say it in a sentence."""
        passed = f" at {self.value:.3g}, limit {self.limit:.3g}" if self.rule != NOT_A_NUMBER else ""
        return f"collapse ({self.rule}{passed}): back to the weights of step {self.returned_to}, learning rate {self.learning_rate:.2g}"


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimiser step."""

    step: int
    """Counted from 1."""
    metrics: dict[str, float]
    """Finite values under the project's metric names."""
    time: float
    """Seconds since the epoch at which the step ended."""
    collapse: Collapse | None = None


def make_report(step: int, metrics: Mapping[str, float], collapse: Collapse | None = None) -> StepReport:
    """Stamp a step's metrics with the time; values that are not finite numbers are left out."""
    finite = {name: float(value) for name, value in sorted(metrics.items()) if value is not None and math.isfinite(value)}
    return StepReport(step, finite, time.time(), collapse)


def append_report(path: Path, report: StepReport) -> None:
    """Append one line, so that a reader sees it at once and a kill leaves at most one broken line, the last."""
    line = json.dumps(asdict(report), allow_nan=False) + "\n"
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
    replace_text(path, "".join(json.dumps(asdict(report)) + "\n" for report in kept))
    return kept


class ReportTail:
    """Follows a growing `steps.jsonl`."""

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
        return list(self._parse(block[:end].splitlines()))

    def _parse(self, lines: Iterable[bytes]) -> Iterable[StepReport]:
        for line in lines:
            try:
                fields = json.loads(line)
                collapse = fields.pop("collapse", None)
                yield StepReport(**fields, collapse=Collapse(**collapse) if collapse else None)
            except (ValueError, TypeError, AttributeError) as error:
                raise CheckpointError(f"{self._path} holds a line that is no step report; delete that directory to train anew") from error


def append_examples(path: Path, step: int, rows: Sequence[EpisodeRow], episodes: Sequence[Episode]) -> None:
    """Append what a planner wrote and what came of it: the first episode of the batch and the first that ended otherwise."""
    chosen = [0, *[i for i, row in enumerate(rows) if row.correct != rows[0].correct][:1]] if rows else []
    with path.open("a", encoding="utf-8") as file:
        for i in chosen:
            file.write(json.dumps(_example(step, rows[i], episodes[i])) + "\n")


def read_examples(path: Path) -> list[dict[str, str | float]]:
    """Read all complete lines; a missing file holds none."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def truncate_examples(path: Path, last_step: int) -> None:
    """Drop the examples after `last_step`, which a resumed run plays again."""
    if path.exists():
        kept = [example for example in read_examples(path) if int(example["step"]) <= last_step]
        replace_text(path, "".join(json.dumps(example) + "\n" for example in kept))


def _example(step: int, row: EpisodeRow, episode: Episode) -> dict[str, str | float]:
    carried_out = "; ".join(f"{turn.call.argument} {turn.result.text}" for turn in episode.turns if turn.call and turn.result)
    return {
        "step": step,
        "problem": row.question[:MAX_CHARS],
        "plan": episode.turns[0].text[:MAX_CHARS] if episode.turns else "",
        "worker": carried_out[:MAX_CHARS],
        "answer": row.answer or "",
        "gold": row.gold,
        "reward": row.reward,
        "stop_reason": row.stop_reason,
        "independence": row.measured.get("plan/independence", 0.0),
        "tokens": row.measured.get("plan/tokens", 0.0),
    }
