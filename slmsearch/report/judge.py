"""What is shown of a judge: its qualification as a table, and when it judged as a figure."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from slmsearch.report.figures import COLOURS, INK, clean, new_figure, set_title
from slmsearch.report.tables import NONE, Table


def render_qualification(summary: Mapping[str, Any]) -> str:
    """Render what `summarise_qualification` gives for a terminal."""
    limits = summary["limits"]
    level = f"{100 * (1 - limits['alpha']):g} % interval"
    headers = ("kind", "n", "right, %", level, "false accepts, %", level, "false rejects, %", level, "failed")
    rows = []
    for kind in summary["kinds"]:
        shares = [cell for part in ("accuracy", "false_accepts", "false_rejects") for cell in _share(kind[part])]
        rows.append((kind["kind"], str(kind["accuracy"]["n"] + kind["failed"]), *shares, str(kind["failed"])))
    verdict = "passed" if summary["passed"] else "not passed: " + "; ".join(summary["shortfalls"])
    return "\n".join(
        [
            f"{summary['model']} ({summary['judge']}), prompt version {summary['prompt_version']}: {summary['cases']} cases, "
            f"{summary['asked']} of them asked, the rest decided by rule",
            "",
            Table(headers, tuple(rows)).to_text(),
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


def _share(share: Mapping[str, Any]) -> tuple[str, str]:
    if not share["n"]:
        return NONE, NONE
    return f"{100 * share['count'] / share['n']:.1f}", f"{100 * share['low']:.1f}-{100 * share['high']:.1f}"


def describe_timeline(timeline: Mapping[str, Any]) -> str:
    """Tabulate a step in Markdown: of each turn its seconds and the verdicts given meanwhile, and at last the time waited for the rest.

    Args:
        timeline: `turns` and `verdicts` as pairs of seconds, and `end`.
    """
    verdicts = timeline["verdicts"]
    rows, before = [], 0.0
    for number, (_, end) in enumerate(timeline["turns"], 1):
        given = sum(before < done <= end for _, done in verdicts)
        rows.append((f"turn {number}", f"{before:.2f}-{end:.2f}", str(given), str(sum(done <= end for _, done in verdicts))))
        before = end
    waited = sum(done > before for _, done in verdicts)
    rows.append(("waiting for the judge", f"{before:.2f}-{timeline['end']:.2f}", str(waited), str(len(verdicts))))
    return Table(("while", "seconds", "verdicts", "so far"), tuple(rows)).to_markdown()


def draw_timeline(timeline: Mapping[str, Any], slots: int) -> Figure:
    """Draw a step: the turns sampled, and below them the questions a judge was busy with, one line a slot.

    Args:
        timeline: as `describe_timeline` takes it.
        slots: questions asked at a time.
    """
    figure = new_figure(8.0, 1.6 + 0.16 * slots)
    axes = figure.add_subplot(1, 1, 1)
    clean(axes, grid="x")
    for number, (start, end) in enumerate(timeline["turns"]):
        axes.barh(0, end - start, left=start, height=0.8, color=COLOURS[1], alpha=1.0 if number % 2 else 0.6)
    free = [0.0] * slots
    for start, end in timeline["verdicts"]:
        slot = min(range(slots), key=lambda i: (free[i] > start, i))
        free[slot] = end
        axes.barh(1.6 + 0.5 * slot, end - start, left=start, height=0.4, color=COLOURS[2])
    sampled = timeline["turns"][-1][1]
    axes.axvline(sampled, color=INK, linewidth=0.8, linestyle=":")
    axes.axvline(timeline["end"], color=INK, linewidth=0.8)
    axes.set_yticks([0, 1.6 + 0.25 * (slots - 1)], ["turns", "verdicts"])
    axes.invert_yaxis()
    axes.set_xlabel("seconds of the step (dotted: sampling ends; line: the last verdict is there)")
    waited = timeline["end"] - sampled
    set_title(axes, f"{len(timeline['verdicts'])} verdicts beside {len(timeline['turns'])} turns; {waited:.2f} s waited at the end")
    return figure
