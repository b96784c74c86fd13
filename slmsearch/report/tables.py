"""Tables of evaluated rows, and of measurements of judge and retrieval, as plain text, Markdown or records.

Shares carry Wilson intervals; no decision rests on a number computed here (`evaluate/compare.py` computes those).
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slmsearch.environments.searcher.failure_modes import FailureMode
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.evaluate.compare import Comparison, SliceComparison
from slmsearch.evaluate.metrics import slice_rows, summarise
from slmsearch.evaluate.retrieval import METRICS, SHOWN
from slmsearch.evaluate.statistics import Difference
from slmsearch.evaluate.surest import rank_answers
from slmsearch.intervals import show_interval, wilson_interval

NONE = "-"
"""Text for a missing value."""
SUREST = (0.1, 0.25, 0.5, 0.75)
"""Shares of the questions whose surest answers are shown."""
Evaluations = Mapping[str, Sequence[EpisodeRow]]
"""Name of a policy -> its rows, in the order of the table."""


def percent(value: float | None) -> str:
    """Write a share as a percentage with one decimal; a missing value is a dash."""
    return NONE if value is None else f"{100 * value:.1f}"


def share(value: float, low: float, high: float) -> str:
    """Write a share with its interval."""
    return f"{percent(value)} ({percent(low)}-{percent(high)})"


def points(value: float | None) -> str:
    """Write a difference of shares in percentage points."""
    return NONE if value is None else f"{100 * value:+.1f}"


def number(value: float | None, digits: int = 1) -> str:
    """Write a number with `digits` decimals; a missing value is a dash."""
    return NONE if value is None else f"{value:.{digits}f}"


def whole(value: float | None) -> str:
    """Write a number without decimals; a missing value is a dash."""
    return number(value, 0)


def change(before: float, after: float, found: Difference) -> tuple[str, ...]:
    """Write two means, their difference, its interval and its p-value as five cells."""
    return (f"{before:.3f}", f"{after:.3f}", f"{found.mean:+.3f}", show_interval(found.low, found.high), f"{found.p:.4f}")


def difference(mean: float, low: float, high: float, p: float) -> str:
    """Write a mean difference with its interval and p-value."""
    return f"{mean:+.3f} {show_interval(low, high)}, p {p:.4f}"


Columns = tuple[tuple[str, str, Callable[[float | None], str]], ...]
"""Header, metric, and the function that writes a value."""
RIGHT = "answer/typed_match"
"""Headline metric: right by the rules of numbers, dates and names."""
COLUMNS: Columns = (
    ("exact match", "answer/exact_match", percent),
    ("F1", "answer/f1", percent),
    ("ROUGE-L", "answer/rouge_l", percent),
    ("abstained", "answer/abstained_frac", percent),
    ("calls", "episode/tool_calls", number),
    ("malformed", "stop/malformed", percent),
    ("page, 1st search", "search/first_hit_frac", percent),
    ("pages, any search", "search/any_hit_frac", percent),
    ("sections read", "search/gold_read_frac", percent),
    ("tokens", "episode/sampled_tokens", whole),
    ("seconds", "time/episode_s", number),
    ("gain over worker", "plan/gain", points),
    ("splits", "plan/decomposed_frac", percent),
    ("subproblems", "plan/subproblems", number),
    ("one part", "plan/single_frac", percent),
    ("independence", "plan/independence", lambda value: number(value, 2)),
    ("guarded", "plan/hacked_frac", percent),
    ("tokens, worker too", "plan/tokens", whole),
    ("tokens per solved", "plan/tokens_per_solved", whole),
)
"""Columns of the table of policies; a column is shown if some policy has a value."""

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
        return "\n".join("  ".join((cell.rjust if i else cell.ljust)(widths[i]) for i, cell in enumerate(line)).rstrip() for line in lines)

    def to_markdown(self) -> str:
        """Render as Markdown; cells are escaped, because names and answers come from outside."""
        ruler = ("---", *("---:" for _ in self.headers[1:]))
        lines = [tuple(map(escape_markdown, self.headers)), ruler, *(tuple(map(escape_markdown, row)) for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_records(self) -> list[dict[str, str]]:
        """List the rows as dictionaries, in the form of table artifacts."""
        return [dict(zip(self.headers, row, strict=True)) for row in self.rows]


def escape_markdown(text: str) -> str:
    """Escape text for a Markdown table cell: one line, no links, images, HTML or column marks."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def results_table(evaluations: Evaluations, alpha: float = 0.05) -> Table:
    """Tabulate policies: right answers with their interval, then the `COLUMNS` that have a value."""
    metrics = {name: summarise(rows) for name, rows in evaluations.items()}
    shown = [column for column in COLUMNS if any(column[1] in found for found in metrics.values())]
    lines = []
    for name, rows in evaluations.items():
        graded, found = [row for row in rows if not row.failed], metrics[name]
        low, high = wilson_interval(round(sum(row.typed_match for row in graded)), len(graded), alpha)
        interval = f"{percent(low)}-{percent(high)}" if graded else NONE
        cells = (write(found.get(key)) for _, key, write in shown)
        lines.append((name, str(len(graded)), percent(found.get(RIGHT)), interval, *cells, str(len(rows) - len(graded))))
    level = f"{100 * (1 - alpha):g} % interval"
    return Table(("policy", "n", "typed match", level, *(header for header, _, _ in shown), "failed"), tuple(lines))


Trust = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Measure -> slice -> share, from `evaluate.trust.measure_trust`."""
TRUST = {
    "twins/both_right": "question and twin right",
    "twins/unknown_right": '"I don\'t know" on twins',
    "answer/grounded_frac": "right answers that are grounded",
    "answer/pass_at_k": "any of k samples right",
    "answer/majority_at_k": "most of k samples right",
}


def trust_table(policies: Mapping[str, Trust]) -> Table:
    """Tabulate the measures of twins and repeated episodes, one column per policy, by slice, with intervals; `n` of each if they differ."""
    keys = list(dict.fromkeys((name, part) for trust in policies.values() for name, slices in trust.items() for part in slices))
    lines = []
    for name, part in keys:
        found = [trust.get(name, {}).get(part) for trust in policies.values()]
        measure, _, twin = (name, "", "") if name in TRUST else name.rpartition("/")
        label = ", ".join(filter(None, (TRUST[measure], twin, "" if part == "all" else part)))
        cells = (share(one["value"], one["low"], one["high"]) if one else NONE for one in found)
        sizes = [f"{one['n']:.0f}" for one in found if one]
        lines.append((label, ", ".join(sizes if len(set(sizes)) > 1 else sizes[:1]), *cells))
    return Table(("measure", "n", *policies), tuple(lines))


def surest_table(evaluations: Evaluations, alpha: float = 0.05) -> Table | None:
    """Tabulate the share of wrong ones among the surest answers, by the share of questions that they answer; None if nothing ranks them."""
    ranked = {name: found for name, rows in evaluations.items() if (found := rank_answers(rows, alpha))}
    lines = []
    for name, found in ranked.items():
        chosen = [next((one for one in found if one.answered_frac >= part), None) for part in SUREST]
        cells = (share(one.wrong_frac, one.low, one.high) if one else NONE for one in (*chosen, found[-1]))
        lines.append((name, *cells, percent(found[-1].answered_frac)))
    headers = ("wrong, % of the surest", *(f"{part:.0%}" for part in SUREST), "all answers", "answered, %")
    return Table(headers, tuple(lines)) if lines else None


def slices_table(evaluations: Evaluations, alpha: float = 0.05) -> Table:
    """Tabulate typed match by slice with Wilson intervals, exact match beside it, and ROUGE-L where gold answers are long, by policy."""
    beside = ["exact", *(["ROUGE-L"] if any(row.rouge_l is not None for rows in evaluations.values() for row in rows) else [])]
    sliced = {name: {"all": list(rows), **slice_rows(rows)} for name, rows in evaluations.items()}
    names = list(dict.fromkeys(name for slices in sliced.values() for name in slices))
    sizes = {name: max(len(slices.get(name, ())) for slices in sliced.values()) for name in names}
    lines = []
    for name in names:
        cells = (cell for slices in sliced.values() for cell in _match_cells(slices.get(name, ()), alpha)[: 1 + len(beside)])
        lines.append((name, str(sizes[name]), *cells))
    headers = (header for name in evaluations for header in (name, *(f"{name} ({one})" for one in beside)))
    return Table(("slice", "n", *headers), tuple(lines))


def _match_cells(rows: Sequence[EpisodeRow], alpha: float) -> tuple[str, str, str]:
    graded, found = [row for row in rows if not row.failed], summarise(rows)
    right = round(sum(row.typed_match for row in graded))
    typed = share(right / len(graded), *wilson_interval(right, len(graded), alpha)) if graded else NONE
    return typed, percent(found.get("answer/exact_match")), percent(found.get("answer/rouge_l"))


def failure_mode_table(rows: Sequence[EpisodeRow]) -> Table:
    """Count the failure modes of wrong episodes, one column per kind of question."""
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
    rows = [_comparison_cells("all", comparison, None, False)]
    rows += [_comparison_cells(part.name, part, part.p_holm, part.vetoes) for part in comparison.slices]
    headers = ("slice", "n", "before", "after", "difference", "interval", "p", "p (Holm)", "veto", "exact match", "ROUGE-L")
    shown = len(headers) if comparison.rouge_l_before is not None else -1  # without long gold answers no row has ROUGE-L
    return Table(headers[:shown], tuple(row[:shown] for row in rows))


def _comparison_cells(name: str, part: Comparison | SliceComparison, p_holm: float | None, vetoes: bool) -> tuple[str, ...]:
    shown, exact = change(part.before, part.after, part.difference), f"{part.exact_before:.3f} -> {part.exact_after:.3f}"
    corrected, veto = NONE if p_holm is None else f"{p_holm:.4f}", "yes" if vetoes else ""
    return (name, str(part.n), *shown, corrected, veto, exact, _change_of_rouge_l(part))


def _change_of_rouge_l(part: Comparison | SliceComparison) -> str:
    return f"{number(part.rouge_l_before, 3)} -> {number(part.rouge_l_after, 3)}"


def describe_comparison(comparison: Comparison) -> str:
    """Describe a comparison in a few lines: the policies, the result and the decision."""
    found, left_out = comparison.difference, f" ({comparison.failed} left out as failed)" if comparison.failed else ""
    lines = [
        f"{comparison.decision}: {comparison.reason}",
        f"{comparison.metric} {comparison.before:.3f} -> {comparison.after:.3f} on {comparison.n} paired questions{left_out}: "
        f"{difference(found.mean, found.low, found.high, found.p)}.",
        f"SQuAD's exact match, which decides nothing: {comparison.exact_before:.3f} -> {comparison.exact_after:.3f}.",
    ]
    if comparison.rouge_l_before is not None:
        lines.append(f"ROUGE-L of long answers, which decides nothing: {_change_of_rouge_l(comparison)}.")
    lines.append(f"Smallest difference this many questions would show: {comparison.mde:.3f} (power 0.8).")
    if comparison.mcnemar is not None:
        test = comparison.mcnemar
        lines.append(f"McNemar: {test.gained} questions gained, {test.lost} lost, exact p {test.p:.3g}.")
    return "\n".join(lines)


def qualification_table(summary: Mapping[str, Any]) -> Table:
    """Tabulate the result of `summarise_qualification`: shares with their intervals, by kind of case."""
    parts = ("accuracy", "false_accepts", "false_rejects")
    rows = tuple(
        (kind["kind"], str(kind["accuracy"]["n"] + kind["failed"]), *(_qualified(kind[part]) for part in parts), str(kind["failed"]))
        for kind in summary["kinds"]
    )
    return Table(("kind of case", "n", "right, %", "false accepts, %", "false rejects, %", "no verdict"), rows)


def render_qualification(summary: Mapping[str, Any]) -> str:
    """Render the result of `summarise_qualification` for a terminal."""
    limits = summary["limits"]
    verdict = "passed" if summary["passed"] else "not passed: " + "; ".join(summary["shortfalls"])
    return "\n".join(
        [
            f"{summary['model']} ({summary['judge']}), prompt version {summary['prompt_version']}: {summary['cases']} cases, "
            f"{summary['asked']} of them asked, the rest decided by rule; {100 * (1 - limits['alpha']):g} % intervals",
            "",
            qualification_table(summary).to_text(),
            "",
            f"kappa with the exact judge {summary['kappa_exact']:.2f}, with the known verdicts {summary['kappa_known']:.2f}",
            f"{summary['verdict_s']:.3f} s a verdict (median), {summary['verdicts_per_s']:.1f} verdicts/s with "
            f"{summary['concurrency']} at a time",
            f"to pass: accuracy surely above {limits['min_accuracy']:.0%}, false accepts surely below {limits['max_false_accepts']:.0%} "
            f"(in any one kind {limits['max_false_accepts_of_kind']:.0%} at most), "
            f"false rejects surely below {limits['max_false_rejects']:.0%}, no case without a verdict",
            verdict,
        ]
    )


def _qualified(found: Mapping[str, Any]) -> str:
    return share(found["count"] / found["n"], found["low"], found["high"]) if found["n"] else NONE


TITLES = {
    "page_at_1": "gold page first",
    "page_at_5": "gold page in 5",
    "all_pages_at_5": "all gold pages in 5",
    "all_pages_at_10": "all gold pages in 10",
    "section_at_1": "gold section first",
    "section_at_5": "gold section in 5",
    "mrr": "MRR of the page",
    "all_pages_shown": "all gold pages",
    "all_text_shown": "text of all gold sections",
    "answer_shown": "the answer",
}


def render_retrieval(result: Mapping[str, Any]) -> str:
    """Render the result of `summarise_ranks` for a terminal, that of `summarise_shown` in it as `first_search`, with n of each figure."""
    level = f"{100 * (1 - result['alpha']):g} %"
    left_out = "".join(f", {count} {reason} left out" for reason, count in result.get("left_out", {}).items())
    lines = [f"{result['n']} questions{left_out}; percentages with {level} intervals, among the first {result['depth']} hits", ""]
    lines += _retrieval_tables(result, "retrievers", "measure", tuple(zip(METRICS[::2], METRICS[1::2], strict=True)), ("mrr",))
    if shown := result.get("first_search"):
        lines += ["", f"Shown by the first search, for the question's own words, of {shown['top_k']} pages, by `searcher.shows`", ""]
        lines += _retrieval_tables(shown, "forms", "shown", [(metric,) for metric in SHOWN])
    gains = {metric: gain for metric, gain in result["gains"].items() if gain is not None}
    lines += [""] if gains else []
    for metric, gain in gains.items():
        told = difference(gain["mean"], gain["low"], gain["high"], gain["p"])
        lines.append(f"{TITLES[metric]:<20} hybrid - {gain['over']:<8} {told}, n {gain['n']}")
    return "\n".join(lines)


def _retrieval_tables(
    found: Mapping[str, Any], columns: str, title: str, metrics: Sequence[tuple[str, ...]], ungrouped: tuple[str, ...] = ()
) -> list[str]:
    """Render the table of metrics, one column per ranking or form, and the tables by group, one for the metrics that stand together."""
    sides, rows = found[columns], []
    for metric in [*(metric for together in metrics for metric in together), *ungrouped]:
        rows.append((TITLES[metric], str(found["counts"][metric]), *(_found(of, metric) for of in sides.values())))
    grouped = filter(None, (_retrieval_groups(found["groups"], sides, *together) for together in metrics))
    return [Table((title, "n", *sides), tuple(rows)).to_text(), *(f"\n{table.to_text()}" for table in grouped)]


def _found(of: Mapping[str, Any], metric: str) -> str:
    if metric == "mrr":
        return number(of[metric], 3)
    return NONE if of[metric] is None else share(of[metric], *of["intervals"][metric])


def _retrieval_groups(groups: Mapping[str, Any], sides: Mapping[str, Any], *metrics: str) -> Table | None:
    """Tabulate measures of the same questions by group, without groups that have none; None where no group is left."""
    rows = []
    for group, counts in groups.items():
        if count := counts[metrics[0]]:
            cells = [percent(of["groups"][group][metric]) for metric in metrics for of in sides.values()]
            rows.append((group, str(count), *cells))
    what = TITLES[metrics[0]].removesuffix(" first").removesuffix(" in 5")
    headers = [f"{name}: {TITLES[metric].removeprefix(f'{what} ')}" if metrics[1:] else name for metric in metrics for name in sides]
    return Table((f"{what}, %", "n", *headers), tuple(rows)) if rows else None
