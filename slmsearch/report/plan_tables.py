"""The table of planners and controls."""

from collections.abc import Sequence

from slmsearch.evaluate.metrics import summarise
from slmsearch.evaluate.rows import EpisodeRow
from slmsearch.evaluate.statistics import wilson_interval
from slmsearch.report.cells import NONE, number, percent

HEADERS = (
    "policy", "n", "right", "95 % interval", "gain over worker", "splits", "subproblems", "one part", "independence", "guarded",
    "malformed", "tokens", "tokens per solved", "failed",
)  # fmt: skip


def plan_row(name: str, rows: Sequence[EpisodeRow], alpha: float) -> tuple[str, ...]:
    """Tabulate one planner: right answers with their interval, how it plans, what it costs."""
    graded = [row for row in rows if not row.failed]
    metrics = summarise(rows)
    low, high = wilson_interval(round(sum(row.correct for row in graded)), len(graded), alpha)
    gain = metrics.get("plan/gain")
    return (
        name,
        str(len(graded)),
        percent(metrics.get("answer/correct")),
        f"{percent(low)}-{percent(high)}" if graded else NONE,
        NONE if gain is None else f"{100 * gain:+.1f}",
        percent(metrics.get("plan/decomposed_frac")),
        number(metrics.get("plan/subproblems")),
        percent(metrics.get("plan/single_frac")),
        number(metrics.get("plan/independence"), 2),
        percent(metrics.get("plan/hacked_frac")),
        percent(metrics.get("stop/malformed")),
        number(metrics.get("plan/tokens"), 0),
        number(metrics.get("plan/tokens_per_solved"), 0),
        str(len(rows) - len(graded)),
    )
