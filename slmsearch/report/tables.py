"""Tables made from evaluated rows, as plain text, Markdown or records.

Shares carry Wilson intervals; nothing is computed here that a decision rests on (`evaluate/compare.py` does that).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slmsearch.evaluate.compare import Comparison
from slmsearch.evaluate.failure_modes import FailureMode
from slmsearch.evaluate.metrics import slice_rows, summarise
from slmsearch.evaluate.rows import EpisodeRow
from slmsearch.evaluate.statistics import wilson_interval
from slmsearch.report.cells import NONE, number, percent
from slmsearch.report.plan_tables import HEADERS, plan_row

Evaluations = Mapping[str, Sequence[EpisodeRow]]
"""Name of a policy -> its rows, in the order of the table."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#!])")


@dataclass(frozen=True, slots=True)
class Table:
    """Headers and rows of text; the first column is left-aligned, all others are right-aligned."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_text(self) -> str:
        """Render for a terminal."""
        widths = [max(len(line[i]) for line in (self.headers, *self.rows)) for i in range(len(self.headers))]
        lines = [self.headers, tuple("-" * width for width in widths), *self.rows]
        return "\n".join("  ".join(_align(cell, widths[i], i) for i, cell in enumerate(line)).rstrip() for line in lines)

    def to_markdown(self) -> str:
        """Render as Markdown; cells are escaped, since names and answers come from outside."""
        ruler = ("---", *("---:" for _ in self.headers[1:]))
        lines = [tuple(map(escape_markdown, self.headers)), ruler, *(tuple(map(escape_markdown, row)) for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_records(self) -> list[dict[str, str]]:
        """List the rows as dictionaries, as table artifacts want them."""
        return [dict(zip(self.headers, row, strict=True)) for row in self.rows]


def escape_markdown(text: str) -> str:
    """Escape text for a Markdown table cell: one line, no links, images, HTML or column marks."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def results_table(evaluations: Evaluations, alpha: float = 0.05) -> Table:
    """Tabulate policies: accuracy with its interval, search, effort and how episodes ended; planners by what makes a planner."""
    if any(row.measured for rows in evaluations.values() for row in rows):
        return Table(HEADERS, tuple(plan_row(name, rows, alpha) for name, rows in evaluations.items()))
    headers = (
        "policy", "n", "exact match", f"{100 * (1 - alpha):g} % interval", "F1", "abstained", "calls", "malformed", "page, 1st search",
        "pages, any search", "sections read", "tokens", "seconds", "failed",
    )  # fmt: skip
    return Table(headers, tuple(_results_row(name, rows, alpha) for name, rows in evaluations.items()))


def _results_row(name: str, rows: Sequence[EpisodeRow], alpha: float) -> tuple[str, ...]:
    graded = [row for row in rows if not row.failed]
    metrics = summarise(rows)
    low, high = wilson_interval(round(sum(row.exact_match for row in graded)), len(graded), alpha)
    return (
        name,
        str(len(graded)),
        percent(metrics.get("answer/exact_match")),
        f"{percent(low)}-{percent(high)}" if graded else NONE,
        percent(metrics.get("answer/f1")),
        percent(metrics.get("answer/abstained_frac")),
        number(metrics.get("episode/tool_calls")),
        percent(metrics.get("stop/malformed")),
        percent(metrics.get("search/first_hit_frac")),
        percent(metrics.get("search/any_hit_frac")),
        percent(metrics.get("search/gold_read_frac")),
        number(metrics.get("episode/sampled_tokens"), 0),
        number(metrics.get("time/episode_s")),
        str(len(rows) - len(graded)),
    )


def slices_table(evaluations: Evaluations, alpha: float = 0.05) -> Table:
    """Tabulate exact match by slice, one column a policy, with Wilson intervals."""
    sliced = {name: {"all": list(rows), **slice_rows(rows)} for name, rows in evaluations.items()}
    names = list(dict.fromkeys(name for slices in sliced.values() for name in slices))
    sizes = {name: max(len(slices.get(name, ())) for slices in sliced.values()) for name in names}
    cells = tuple((name, str(sizes[name]), *(_share_cell(slices.get(name, ()), alpha) for slices in sliced.values())) for name in names)
    return Table(("slice", "n", *evaluations), cells)


def _share_cell(rows: Sequence[EpisodeRow], alpha: float) -> str:
    graded = [row for row in rows if not row.failed]
    if not graded:
        return NONE
    right = round(sum(row.exact_match for row in graded))
    low, high = wilson_interval(right, len(graded), alpha)
    return f"{percent(right / len(graded))} ({percent(low)}-{percent(high)})"


def failure_mode_table(rows: Sequence[EpisodeRow]) -> Table:
    """Count where wrong episodes broke, one column a kind of question."""
    kinds = sorted({row.kind for row in rows})
    counts = Counter((row.failure_mode, row.kind) for row in rows if row.failure_mode)
    names = dict.fromkeys([*(failure_mode.value for failure_mode in FailureMode), *(row.failure_mode for row in rows if row.failure_mode)])
    by_place = {name: [counts[name, kind] for kind in kinds] for name in names}
    places = sorted((place for place, numbers in by_place.items() if any(numbers)), key=lambda place: -sum(by_place[place]))
    by_place["all"] = [sum(numbers) for numbers in zip(*by_place.values(), strict=True)]
    lines = tuple((place, str(sum(by_place[place])), *map(str, by_place[place])) for place in (*places, "all"))
    return Table(("broke at", "all", *kinds), lines)


def comparison_table(comparison: Comparison) -> Table:
    """Tabulate a comparison: the whole and each slice, with intervals, p-values and vetoes."""
    whole = ("all", comparison.n, comparison.before, comparison.after, comparison.difference, None, False)
    parts = [(part.name, part.n, part.before, part.after, part.difference, part.p_holm, part.vetoes) for part in comparison.slices]
    rows = tuple(
        (
            name,
            str(n),
            f"{before:.3f}",
            f"{after:.3f}",
            f"{difference.mean:+.3f}",
            f"[{difference.low:+.3f}, {difference.high:+.3f}]",
            f"{difference.p:.4f}",
            NONE if p_holm is None else f"{p_holm:.4f}",
            "yes" if vetoes else "",
        )
        for name, n, before, after, difference, p_holm, vetoes in (whole, *parts)
    )
    return Table(("slice", "n", "before", "after", "difference", "interval", "p", "p (Holm)", "veto"), rows)


def describe_comparison(comparison: Comparison) -> str:
    """Say in a few lines what was compared, what came out and what was decided."""
    difference = comparison.difference
    lines = [
        f"{comparison.decision}: {comparison.reason}",
        f"{comparison.metric} {comparison.before:.3f} -> {comparison.after:.3f} on {comparison.n} paired questions"
        + (f" ({comparison.failed} left out as failed)" if comparison.failed else "")
        + f": {difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}], p {difference.p:.4f}.",
        f"Smallest difference this many questions would show: {comparison.mde:.3f} (power 0.8).",
    ]
    if comparison.mcnemar is not None:
        test = comparison.mcnemar
        lines.append(f"McNemar: {test.gained} questions gained, {test.lost} lost, exact p {test.p:.3g}.")
    return "\n".join(lines)


def _align(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)
