"""A judge's qualification as a table."""

from collections.abc import Mapping
from typing import Any

from slmsearch.report.cells import NONE, share
from slmsearch.report.tables import Table


def qualification_table(summary: Mapping[str, Any]) -> Table:
    """Tabulate what `summarise_qualification` gives: shares with their intervals, by kind of case."""
    parts = ("accuracy", "false_accepts", "false_rejects")
    rows = tuple(
        (kind["kind"], str(kind["accuracy"]["n"] + kind["failed"]), *(_share(kind[part]) for part in parts), str(kind["failed"]))
        for kind in summary["kinds"]
    )
    return Table(("kind of case", "n", "right, %", "false accepts, %", "false rejects, %", "no verdict"), rows)


def render_qualification(summary: Mapping[str, Any]) -> str:
    """Render what `summarise_qualification` gives for a terminal."""
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


def _share(found: Mapping[str, Any]) -> str:
    return share(found["count"] / found["n"], found["low"], found["high"]) if found["n"] else NONE
