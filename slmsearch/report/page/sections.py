"""Sections of a page about one run: tables and charts, in order, made from stored results."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import fsum

from slmsearch.environments.registry import find_environment
from slmsearch.episodes.episode import StopReason
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.evaluate.statistics import Difference
from slmsearch.evaluate.store import Evaluation
from slmsearch.evaluate.surest import rank_answers
from slmsearch.foreign import visible
from slmsearch.report.page.charts import Bar, ChartLine, interval_chart, line_chart, share_bar, share_chart, smooth
from slmsearch.report.page.results import AFTER, BEFORE, RunResults
from slmsearch.report.page.suspects import RULES
from slmsearch.report.tables import (
    NONE,
    Table,
    change,
    comparison_table,
    failure_mode_table,
    number,
    percent,
    qualification_table,
    results_table,
    slices_table,
    surest_table,
    trust_table,
)
from slmsearch.training.reports import HELD_OUT
from slmsearch.training.samples import SampledEpisode

"""Names under which calls are counted."""
MAX_SLICES = 16
"""Number of slices drawn as intervals; the table holds all."""
CURVES = (
    ("reward/mean", "Mean reward"),
    ("accuracy", "Right answers, share of the step's episodes"),
    (HELD_OUT, "Mean reward on held-out questions"),
    ("loss", "Loss"),
    ("reward/std", "Spread of rewards within a group; 0: nothing to learn from"),
    ("group/zero_advantage_frac", "Groups without a signal, share"),
    ("policy/entropy", "Entropy of the policy, nats"),
    ("policy/kl_sampler", "Sampler against trainer, nats per token"),
    ("optim/grad_norm", "Gradient norm"),
    ("plan/gain", "Gain over the worker alone"),
    ("plan/decomposed_frac", "Problems split, share"),
)
"""Curves of a training run, drawn where they were recorded; `accuracy` is the judge's verdict."""


@dataclass(frozen=True)
class Block:
    """A table, a chart or episodes, with their caption."""

    caption: str
    table: Table | None = None
    chart: str = ""
    note: str = ""
    file: str = ""
    """Name of the chart's file."""
    samples: Sequence[SampledEpisode] = ()


@dataclass(frozen=True)
class ReportPart:
    """A section of the page."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    note: str = ""


def run_parts(run: RunResults) -> list[ReportPart]:
    """Make the parts of one run; empty parts are left out."""
    rows = {name: evaluation.rows for name, evaluation in run.evaluations.items()}
    made = [
        ReportPart("headline", "Before and after", tuple(_headline(run, rows))),
        ReportPart(
            "curves", "Training", tuple(training_charts(run)), "Thin: single steps. Thick: mean of the last 10. ▼ marks a collapse."
        ),
        ReportPart("rollouts", "Training rollouts", tuple(_rollouts(run)), ROLLOUTS_NOTE),
        ReportPart("stops", "How episodes ended", tuple(_stops(run, rows))),
        ReportPart("calls", "Tool calls", tuple(_calls(run))),
        ReportPart("slices", "By kind, hops and source", tuple(_slices(run, rows))),
        ReportPart("surest", "How sure the answers are", tuple(_surest(run, rows)), SUREST_NOTE),
        ReportPart("trust", "What the answers rest on", tuple(_trust(run)), TRUST_NOTE),
        ReportPart("broke", "Where wrong episodes broke", tuple(_failure_modes(run, rows))),
        ReportPart("judge", "The judge", tuple(_judge(run, rows))),
        ReportPart("suspects", "Suspected reward hacks", tuple(_suspects(run)), SUSPECTS_NOTE),
        ReportPart("made", "How it was made", tuple(_provenance(run))),
    ]
    shown = (replace(part, blocks=tuple(block for block in part.blocks if block.chart or block.table or block.samples)) for part in made)
    return [part for part in shown if part.blocks]


ROLLOUTS_NOTE = (
    "Episodes of some training steps, at most three a step: the best and the worst of the group whose rewards differ most, and one of a "
    "group whose rewards are all equal, which teaches nothing. Open a step to read their turns."
)
TRUST_NOTE = (
    'Twins are the same questions without the sections that state the answer, or about a name that nobody bears: there "I don\'t know" is '
    "right. An answer is grounded if it changes with the fact that was read, and goes where the fact is hidden."
)
SUREST_NOTE = (
    "If only the surest answers were given: the share of wrong ones among them over the share of questions that they answer. They are "
    "ranked by the probability of the answer's tokens, those of policies without a model by the score of the first search's best page."
)
SUSPECTS_NOTE = (
    "Rules over stored episodes; a suspicion is a reason to read an episode, no verdict. Look for rules that strike more often after "
    "training than before; the episodes are below, under their rule's name."
)


def _headline(run: RunResults, rows: Mapping[str, Sequence[EpisodeRow]]) -> list[Block]:
    if not rows:
        return []
    level = f"{100 * (1 - run.alpha):g} %"
    graded = {name: [row.correct for row in members if not row.failed] for name, members in rows.items()}
    bars = [share_bar(visible(name), fsum(right), len(right), run.alpha) for name, right in graded.items() if right]
    caption = f"Right answers by verdict, %, with {level} intervals"
    blocks = [Block(caption, chart=interval_chart("Right answers by policy, %", bars), file="right_answers")]
    if run.comparisons:
        headers = ("after training, against", "n", "then", "now", "difference", f"{level} interval", "p")
        found = ((name, str(one.n), *change(one.before, one.after, one.difference)) for name, one in run.comparisons.items())
        blocks.append(Block(f"Paired differences of {run.metric}, question by question", Table(headers, tuple(found))))
    same = len({frozenset(row.question_id for row in members) for members in rows.values()}) == 1
    caption = "Policies on the same questions" if same else "Policies; where n is smaller, on a sample of the questions"
    return [*blocks, Block(caption, results_table(rows, run.alpha))]


def training_charts(run: RunResults) -> list[Block]:
    """Draw the curves of a training run."""
    marks = [(report.step, report.collapse.describe()) for report in run.steps if report.collapse is not None]
    charts = []
    for name, caption in CURVES:
        points = curve(run, name)
        lines = [ChartLine("each step", points, faint=True, style=0), ChartLine(f"mean of 10 steps, {caption}", smooth(points), style=0)]
        chart = line_chart(f"{caption} over training", lines, marks=marks)
        charts.append(Block(caption, chart=chart, file=name.removesuffix("/mean").replace("/", "_")))
    return [block for block in charts if block.chart]


def _rollouts(run: RunResults) -> Iterator[Block]:
    for report in run.steps:
        rewards = ", ".join(f"{one.kind.replace('_', ' ')} {number(one.row.reward, 2)}" for one in report.samples)
        yield Block(f"Step {report.step}: {rewards}", samples=report.samples)


def curve(run: RunResults, name: str) -> list[tuple[float, float]]:
    """Return a metric's points over training; `accuracy` is that of `StepReport.value`."""
    return [(float(report.step), value) for report in run.steps if (value := report.value(name)) is not None]


def _stops(run: RunResults, rows: Mapping[str, Sequence[EpisodeRow]]) -> list[Block]:
    lines = []
    for style, reason in enumerate(StopReason):
        points = curve(run, f"stop/{reason}")
        if any(value for _, value in points):
            lines.append(ChartLine(reason.replace("_", " "), smooth(points), style=style))
    caption = "Over training, share of the step's episodes (mean of 10 steps)"
    blocks = [Block(caption, chart=line_chart("Stop reasons over training", lines), file="stop_reasons_over_training")]
    reasons = [reason.value for reason in StopReason if any(row.stop_reason == reason for members in rows.values() for row in members)]
    counts = {reason: {name: _count(members, "stop_reason", reason) for name, members in rows.items()} for reason in reasons}
    sides = {reason: {name: found[name] for name in _sides(rows)} for reason, found in counts.items()}
    chart = share_chart("Stop reasons of the evaluations, %", sides, run.alpha)
    blocks.append(Block("Of the evaluations, %, with intervals", chart=chart, file="stop_reasons"))
    if rows:
        cells = tuple(
            (name, str(len(members)), *(percent(_share(*counts[reason][name])) for reason in reasons)) for name, members in rows.items()
        )
        blocks.append(Block("Of the evaluations, %", Table(("policy", "n", *(reason.replace("_", " ") for reason in reasons)), cells)))
    return blocks


def _count(rows: Sequence[EpisodeRow], field: str, value: str) -> tuple[int, int]:
    """Count the rows whose field has a value, and all rows."""
    return sum(getattr(row, field) == value for row in rows), len(rows)


def _sides(rows: Mapping[str, Sequence[EpisodeRow]]) -> list[str]:
    """Return the names of the policies that are drawn beside each other: before and after, or all where a run lacks both."""
    return [name for name in (BEFORE, AFTER) if name in rows] or list(rows)


def _calls(run: RunResults) -> list[Block]:
    blocks = []
    over = [ChartLine(label, smooth(points)) for label, name in (("all", "tool_calls"), ("unserved", "unserved_calls"))
            if (points := curve(run, f"episode/{name}"))]  # fmt: skip
    caption, chart = "Per episode over training (mean of 10 steps)", line_chart("Tool calls over training", over)
    blocks.append(Block(caption, chart=chart, file="tool_calls_over_training"))
    sides = {name: run.evaluations[name].rows for name in (BEFORE, AFTER) if name in run.evaluations}
    most = max((row.tool_calls for rows in sides.values() for row in rows), default=0)
    lines = [ChartLine(visible(name), _distribution(rows, most)) for name, rows in sides.items()]
    shown = line_chart("Episodes by number of tool calls", lines, "tool calls of an episode")
    blocks.append(Block("Share of episodes by number of calls", chart=shown, file="tool_calls"))
    if run.evaluations:
        blocks.append(Block("Calls per episode by tool", _tools_table(run.evaluations, find_environment(run.environment).tool_names)))
    return blocks


def _distribution(rows: Sequence[EpisodeRow], most: int) -> list[tuple[float, float]]:
    counts = Counter(row.tool_calls for row in rows if not row.failed)
    return [(float(i), counts[i] / max(1, counts.total())) for i in range(most + 1)]


def _tools_table(evaluations: Mapping[str, Evaluation], tool_names: Sequence[str]) -> Table:
    # A program may call by any name; all names that are not tools count as one.
    counts = {
        name: Counter(call.name if call.name in tool_names else "(no tool)" for episode in evaluation.episodes for call in episode.calls)
        for name, evaluation in evaluations.items()
    }
    tools = list(dict.fromkeys(tool for count in counts.values() for tool in count))
    cells = tuple(
        (
            name,
            *(number(counts[name][tool] / max(1, len(evaluation.rows)), 2) for tool in tools),
            number(fsum(row.unserved_calls for row in evaluation.rows) / max(1, len(evaluation.rows)), 2),
        )
        for name, evaluation in evaluations.items()
    )
    return Table(("policy", *tools, "of all, unserved"), cells)


def _slices(run: RunResults, rows: Mapping[str, Sequence[EpisodeRow]]) -> list[Block]:
    sides = {name: rows[name] for name in ("worker-alone", BEFORE, AFTER, "sft-control") if name in rows} or dict(rows)
    blocks = []
    if (found := run.compared) is not None and found.slices:
        bars = [difference_bar(part.name, part.difference, 2) for part in found.slices[:MAX_SLICES]]
        chart = interval_chart("Change by slice, after - before", bars, zero=True)
        caption = f"Change of {run.metric} by slice, with intervals; dashed: no change"
        blocks.append(Block(caption, chart=chart, file="change_by_slice"))
        blocks.append(Block("Before and after by slice; p corrected after Holm; a veto stops promotion", comparison_table(found)))
    if any(sides.values()):
        graded = {name: [row for row in rows[name] if not row.failed] for name in _sides(rows)}
        kinds = sorted({row.kind for members in graded.values() for row in members})
        shares = {kind: {name: _right_of_kind(members, kind) for name, members in graded.items()} for kind in ("all", *kinds)}
        chart = share_chart("Typed match by kind of question, %", shares, run.alpha)
        blocks.append(Block("Typed match by kind, %, with intervals", chart=chart, file="accuracy_by_kind"))
        blocks.append(Block("Typed match by slice, % (interval), and exact match", slices_table(sides, run.alpha)))
    return blocks


def _surest(run: RunResults, rows: Mapping[str, Sequence[EpisodeRow]]) -> Iterator[Block]:
    """Draw the share of wrong ones over the surest answers, by policy."""
    lines = []
    for style, (name, members) in enumerate(rows.items()):
        found = [(100 * one.answered_frac, 100 * one.wrong_frac) for one in rank_answers(members, run.alpha)]
        lines.append(ChartLine(visible(name), found, style=style))
    chart = line_chart("Wrong among the surest answers, %", lines, "% of the questions answered")
    yield Block("Wrong, % of the surest answers", chart=chart, file="surest_answers")
    yield Block("The same with intervals", surest_table(rows, run.alpha))


def _trust(run: RunResults) -> Iterator[Block]:
    if run.trust:
        yield Block("Shares in %, with intervals clustered by page", trust_table(run.trust))


def difference_bar(name: str, found: Difference, digits: int) -> Bar:
    """Make the bar of a difference."""
    return Bar(visible(name), found.mean, found.low, found.high, f"{found.mean:+.{digits}f}")


def _right_of_kind(rows: Sequence[EpisodeRow], kind: str) -> tuple[float, int]:
    found = [row.typed_match for row in rows if kind in ("all", row.kind)]
    return fsum(found), len(found)


def _failure_modes(run: RunResults, rows: Mapping[str, Sequence[EpisodeRow]]) -> list[Block]:
    sides = {name: rows[name] for name in _sides(rows) if rows[name]}
    wrong = {name: [row for row in members if row.failure_mode] for name, members in sides.items()}
    places = Counter(row.failure_mode for members in wrong.values() for row in members)
    shares = {place: {name: _count(members, "failure_mode", place) for name, members in wrong.items()} for place, _ in places.most_common()}
    chart = share_chart("Where wrong episodes broke, % of them", shares, run.alpha)
    tables = [Block(f"{name}: wrong episodes by place and kind", failure_mode_table(members)) for name, members in sides.items()]
    return [Block("Share of wrong episodes by place, %, with intervals", chart=chart, file="failure_modes"), *tables]


def _judge(run: RunResults, rows: Mapping[str, Sequence[EpisodeRow]]) -> list[Block]:
    blocks = []
    if summary := run.judge.get("summary"):
        blocks.append(Block(f"On the calibration set: {run.judge.get('found', '')}", qualification_table(summary)))
    elif run.judge.get("found"):
        blocks.append(Block("What is known of the judge", Table(("judge",), ((str(run.judge["found"]),),))))
    if rows:
        alike = all(row.correct == row.typed_match for members in rows.values() for row in members if not row.failed)
        note = "Typed match was the judge: there is nothing to calibrate." if alike and not run.judge else ""
        blocks.append(Block("The verdict beside the rules, episodes", _agreement_table(rows), note=note))
    return blocks


def _agreement_table(rows: Mapping[str, Sequence[EpisodeRow]]) -> Table:
    cells = []
    for name, members in rows.items():
        graded = [row for row in members if not row.failed]
        for rule, found in (("typed", [row.typed_match for row in graded]), ("exact", [row.exact_match for row in graded])):
            pairs = Counter((row.correct > 0.5, match > 0.5) for row, match in zip(graded, found, strict=True))
            agree = _share(pairs[True, True] + pairs[False, False], pairs.total())
            counts = (pairs[True, True], pairs[False, False], pairs[True, False], pairs[False, True])
            cells.append((name, f"{rule} match", *map(str, counts), percent(agree)))
    return Table(("policy", "rule", "both right", "both wrong", "verdict alone right", "rule alone right", "agree, %"), tuple(cells))


def _suspects(run: RunResults) -> list[Block]:
    counts = {name: Counter(chain.from_iterable(found)) for name, found in run.suspects.items()}
    struck = [rule for rule in RULES if any(count[rule] for count in counts.values())]
    if not run.evaluations:
        return []
    cells = tuple(
        (rule, RULES[rule][0], *(_of(count[rule], len(run.evaluations[name].rows)) for name, count in counts.items())) for rule in struck
    )
    if not cells:
        cells = (("none", f"none of {len(RULES)} rules strikes", *(NONE for _ in counts)),)
    return [Block("Episodes by rule and policy, and their share", Table(("rule", "meaning", *counts), cells))]


def _provenance(run: RunResults) -> list[Block]:
    facts = [("MLflow run", run.run_id), ("started (UTC)", run.started), ("ended as", run.status), *run.lineage.items()]
    blocks = [Block("Lineage: content keys, in order", Table(("what", "key"), tuple((name, str(value)) for name, value in facts if value)))]
    if run.seconds:
        blocks.append(Block("Wall time", Table(("stage", "seconds"), tuple((k, number(v)) for k, v in run.seconds.items()))))
    if run.settings:
        blocks.append(Block("Settings other than the default", Table(("setting", "value"), tuple(run.settings.items()))))
    return blocks


def _of(count: int, total: int) -> str:
    return f"{count} ({percent(_share(count, total))} %)" if count else "0"


def _share(count: int, total: int) -> float:
    return count / total if total else 0.0
