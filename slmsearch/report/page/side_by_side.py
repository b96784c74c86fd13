"""Part of a page about several runs together: differing settings beside results, and runs over seeds as one line."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev

from slmsearch.config import DecisionConfig, RunConfig
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.errors import ConfigError
from slmsearch.evaluate.metrics import metric_values
from slmsearch.evaluate.statistics import Difference, paired_bootstrap
from slmsearch.evaluate.store import Evaluation
from slmsearch.foreign import visible
from slmsearch.intervals import show_interval
from slmsearch.report.page.browse import shorten
from slmsearch.report.page.charts import ChartLine, Points, interval_chart, line_chart, smooth
from slmsearch.report.page.results import AFTER, BEFORE, RunResults
from slmsearch.report.page.sections import Block, ReportPart, curve, difference_bar
from slmsearch.report.tables import NONE, Table, percent

CURVES = (
    ("reward/mean", "Mean reward"),
    ("accuracy", "Right answers, share"),
    ("loss", "Loss"),
    ("episode/tool_calls", "Tool calls per episode"),
    ("policy/entropy", "Entropy of the policy, nats"),
)
SEED, DEFAULT_SEED = "train.seed", str(RunConfig().train.seed)
RULE = DecisionConfig()
LEVEL = f"{100 * (1 - RULE.alpha):g} % interval"
SETTING_CHARS = 60
"""Number of characters shown of a setting."""
OVER_SEEDS = "±: standard deviation over seeds; intervals are over questions, each with its mean over seeds"

Seeds = tuple[RunResults, ...]
"""Runs of one line that differ only in their seed, or a single run."""


def side_by_side(runs: Sequence[RunResults]) -> ReportPart:
    """Make the part that compares runs."""
    lines = join_seeds(runs)
    several = len(lines) < len(runs)
    headers = ("run", "environment", "n", "metric", "before", "after", "change", "interval", "p", "decision", "steps", "suspected, %")
    caption = f"Runs, one setting a row. {OVER_SEEDS}" if several else "Runs, one a row"
    blocks = [Block(caption, Table(headers, tuple(map(_run_cells, lines))))]
    changes = [(label(line), found) for line in lines if (found := _change(line)) is not None]
    if changes:
        bars = [difference_bar(name, found, 3) for name, found in changes]
        caption = "Change by training, after - before, with intervals; dashed: no change"
        blocks.append(Block(caption, chart=interval_chart("Change by training", bars, zero=True)))
    blocks += [block for name, caption in CURVES if (block := _curves(lines, name, caption)).chart]
    if len(lines) > 1:
        blocks.append(_differences(lines))
    asked = {frozenset(_by_question(run.evaluations[run.main])) for run in runs if run.main}
    same = "All runs were evaluated on the same questions."
    note = "These runs were evaluated on different questions: compare their changes, not their levels." if len(asked) > 1 else same
    return ReportPart("runs", "Runs side by side", tuple(blocks), note)


def join_seeds(runs: Sequence[RunResults]) -> list[Seeds]:
    """Join runs of one setting into a line if each has its own seed; two runs of one seed differ in something else and stay apart."""
    lines: dict[tuple[object, ...], list[RunResults]] = {}
    for run in runs:
        rest = frozenset((name, value) for name, value in _settings(run).items() if name != SEED)
        lines.setdefault((run.environment, run.main, rest), []).append(run)
    own = ([same] if len({run.settings.get(SEED) for run in same}) == len(same) else [[run] for run in same] for same in lines.values())
    return [tuple(line) for some in own for line in some]


def label(line: Seeds) -> str:
    """Return a short name of a line."""
    return line[0].name if len(line) == 1 else f"{line[0].name}, {len(line)} seeds"


def _settings(run: RunResults) -> dict[str, str]:
    """Return the inputs of a run: its settings, and its data."""
    return {**run.settings, **({"data digest": run.lineage["data_digest"]} if "data_digest" in run.lineage else {})}


def _spread(values: Iterable[float], write: Callable[[float], str] = "{:.3f}".format) -> str:
    """Write a value, or the mean of several and their standard deviation."""
    found = list(values)
    if not found:
        return NONE
    return write(fmean(found)) + (f" ± {write(stdev(found)).lstrip('+')}" if len(found) > 1 else "")


def _curves(lines: Sequence[Seeds], name: str, caption: str) -> Block:
    drawn: list[ChartLine] = []
    for number, line in enumerate(lines):
        found = [(run, smooth(points)) for run in line if (points := curve(run, name))]
        if len(found) > 1:
            drawn += [ChartLine(visible(run.name), points, faint=True, style=number) for run, points in found]
        drawn.append(ChartLine(visible(label(line)), _mean([points for _, points in found]), style=number))
    title = "mean of 10 steps; thin: single seeds" if len(drawn) > len(lines) else "mean of 10 steps"
    return Block(f"{caption} ({title})", chart=line_chart(f"{caption} over training", drawn))


def _mean(curves: Sequence[Points]) -> Points:
    """Return the mean curve over the steps that all of them have."""
    values = [dict(points) for points in curves]
    steps = sorted(set[float]().union(*values).intersection(*values))
    return [(step, fmean(one[step] for one in values)) for step in steps]


def _differences(lines: Sequence[Seeds]) -> Block:
    """Tabulate settings that differ, and below them metrics with their paired difference to the first line."""
    settings, rows = [[_settings(run) for run in line] for line in lines], []
    for name in dict.fromkeys(name for line in settings for run in line for name in run):
        told = [", ".join(dict.fromkeys(run.get(name, _default(name)) for run in line)) for line in settings]
        if len(set(told)) > 1:
            first, *others = (shorten(value, SETTING_CHARS) for value in told)
            rows.append((name, first, *(cell for value in others for cell in (value, ""))))
    mains = [[run.evaluations[run.main] for run in line if run.main] for line in lines]
    for name in dict.fromkeys(name for line in mains for evaluation in line for name in evaluation.metrics):
        values = [[evaluation.metrics[name] for evaluation in line if name in evaluation.metrics] for line in mains]
        if len({_spread([fmean(line)] if line else []) for line in values}) > 1:
            pairs = zip(values[1:], (_pair(name, mains[0], line) for line in mains[1:]), strict=True)
            rows.append((name, _spread(values[0]), *(cell for line, found in pairs for cell in (_spread(line), _told(found)))))
    headers = ("setting or metric", label(lines[0]), *(cell for line in lines[1:] for cell in (label(line), f"difference, {LEVEL}")))
    caption = "What differs: settings, then metrics of the trained policy, or of the last that was evaluated"
    note = f"Differences are to {label(lines[0])}, paired; the intervals are not corrected for their number."
    return Block(caption, Table(headers, tuple(rows)), note=note)


def _default(name: str) -> str:
    value: object = RunConfig().model_dump(mode="json")
    for part in name.split("."):
        value = value.get(part, NONE) if isinstance(value, dict) else NONE
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _told(found: Difference | None) -> str:
    return NONE if found is None else f"{found.mean:+.3f} {show_interval(found.low, found.high)}"


def _pair(metric: str, old: Sequence[Evaluation], new: Sequence[Evaluation]) -> Difference | None:
    """Estimate the paired difference of a metric, of each side the mean over its evaluations, question by question.

    None if their questions differ, or if the metric has no value for each question.
    """
    sides = [list(map(_by_question, side)) for side in (old, new)]
    found = [*sides[0], *sides[1]]
    if not all(sides) or len(set(map(frozenset, found))) > 1:
        return None
    shared = [question for question in found[0] if not any(rows[question].failed for rows in found)]
    try:
        then, now = ([metric_values([rows[question] for question in shared], metric) for rows in side] for side in sides)
    except ConfigError:
        return None
    differences = [fmean(b) - fmean(a) for a, b in zip(zip(*then, strict=True), zip(*now, strict=True), strict=True)]
    clusters = [found[0][question].cluster for question in shared]
    return paired_bootstrap(differences, clusters, RULE.resamples, RULE.alpha, RULE.seed) if shared else None


def _by_question(evaluation: Evaluation) -> dict[tuple[str, str, str], EpisodeRow]:
    return {(row.question_id, row.question, row.gold): row for row in evaluation.rows}


def _change(line: Seeds) -> Difference | None:
    """Return a line's change by training; None where a run has no before or after."""
    compared = [run.compared for run in line if run.compared is not None]
    if len(compared) < len(line) or len(line) == 1:
        return compared[0].difference if len(line) == 1 and compared else None
    return _pair(line[0].metric, [run.evaluations[BEFORE] for run in line], [run.evaluations[AFTER] for run in line])


def _run_cells(line: Seeds) -> tuple[str, ...]:
    compared, change = [run.compared for run in line if run.compared is not None], _change(line)
    seeds = f" (seeds {', '.join(run.settings.get(SEED, DEFAULT_SEED) for run in line)})" if len(line) > 1 else ""
    struck = [run.suspects[AFTER] for run in line if AFTER in run.evaluations and run.evaluations[AFTER].rows]
    decided = Counter(run.decision or (run.compared.decision if run.compared else run.status) for run in line)
    return (
        ", ".join(run.name for run in line) + seeds,
        line[0].environment,
        ", ".join(dict.fromkeys(str(one.n) for one in compared)) or NONE,
        line[0].metric,
        _spread(one.before for one in compared),
        _spread(one.after for one in compared),
        _spread((one.difference.mean for one in compared), "{:+.3f}".format),
        NONE if change is None else show_interval(change.low, change.high),
        NONE if change is None else f"{change.p:.4f}",
        ", ".join(decided if len(line) == 1 else (f"{count} {decision}" for decision, count in decided.items())),
        ", ".join(dict.fromkeys(str(len(run.steps)) for run in line if run.steps)) or NONE,
        _spread((sum(map(bool, rules)) / len(rules) for rules in struck), percent),
    )
