"""Several runs beside each other: their headlines in one table, their curves in one drawing."""

from collections.abc import Sequence

from slmsearch.foreign import visible
from slmsearch.report.cells import NONE, change, percent
from slmsearch.report.page.charts import Bar, Line, interval_chart, line_chart, smooth
from slmsearch.report.page.results import AFTER, RunResults
from slmsearch.report.page.sections import Block, Part, curve
from slmsearch.report.tables import Table

SHARED = (
    ("reward/mean", "Mean reward"),
    ("accuracy", "Right answers, share"),
    ("loss", "Loss"),
    ("episode/tool_calls", "Tool calls per episode"),
    ("policy/entropy", "Entropy of the policy, nats"),
)


def side_by_side(runs: Sequence[RunResults]) -> Part:
    """Make the part that compares runs."""
    bars = [
        Bar(visible(run.name), found.difference.mean, found.difference.low, found.difference.high, f"{found.difference.mean:+.3f}")
        for run in runs
        if (found := run.compared) is not None
    ]
    blocks = [Block("Runs, one a row", _table(runs))]
    if bars:
        caption = "Change by training, after - before, with intervals; dashed: no change"
        blocks.append(Block(caption, chart=interval_chart("Change by training", bars, zero=True)))
    for name, caption in SHARED:
        chart = line_chart(f"{caption} over training", [Line(visible(run.name), smooth(curve(run, name))) for run in runs])
        blocks += [Block(f"{caption} (mean of 10 steps)", chart=chart)] if chart else []
    return Part("runs", "Runs side by side", tuple(blocks), _warning(runs))


def _warning(runs: Sequence[RunResults]) -> str:
    asked = {tuple(sorted(row.question_id for row in run.evaluations[run.main].rows)) for run in runs if run.main}
    if len(asked) > 1:
        return "These runs were evaluated on different questions: compare their changes, not their levels."
    return "All runs were evaluated on the same questions."


def _table(runs: Sequence[RunResults]) -> Table:
    headers = ("run", "environment", "n", "metric", "before", "after", "change", "interval", "p", "decision", "steps", "suspected, %")
    return Table(headers, tuple(_row(run) for run in runs))


def _row(run: RunResults) -> tuple[str, ...]:
    found, steps = run.compared, str(len(run.steps)) if run.steps else NONE
    suspected = NONE
    if AFTER in run.evaluations and run.evaluations[AFTER].rows:
        rules = run.suspects[AFTER]
        suspected = percent(sum(map(bool, rules)) / len(rules))
    if found is None:
        return (run.name, run.environment, NONE, run.metric, *(NONE,) * 5, run.decision or run.status, steps, suspected)
    cells = change(found.before, found.after, found.difference)
    return (run.name, run.environment, str(found.n), found.metric, *cells, run.decision or found.decision, steps, suspected)
