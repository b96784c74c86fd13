"""A judge's qualification as a table."""

from collections.abc import Mapping
from typing import Any

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
