"""Results as text for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = {
    "answer/exact_match": "exact match",
    "answer/f1": "F1",
    "answer/abstained_frac": "abstains",
    "search/first_hit_frac": "1st search",
    "search/any_hit_frac": "any search",
    "search/gold_read_frac": "gold read",
    "episode/tool_calls": "calls",
    "stop/malformed": "malformed",
}
"""Metrics in tables, and their headings."""


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render rows under a head, the first column to the left, the others to the right."""
    table = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def render_metrics(policies: Mapping[str, Mapping[str, float]], n: int) -> str:
    """Render the metrics of policies as a table, one policy a row."""
    rows = [[name, *(_number(metrics.get(metric)) for metric in COLUMNS)] for name, metrics in policies.items()]
    return f"{render_table(['policy', *COLUMNS.values()], rows)}\n{n} questions"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def render_difference(difference: Mapping[str, float]) -> str:
    """Render a mean difference with interval and p-value."""
    return f"{difference['mean']:+.3f}  95 % [{difference['low']:+.3f}, {difference['high']:+.3f}]  p {difference['p']:.4f}"


def render_comparison(comparison: Mapping[str, Any]) -> str:
    """Render a comparison: both means, the interval, the slices, the decision."""
    rows = [
        [part["name"], str(part["n"]), f"{part['before']:.3f}", f"{part['after']:.3f}", f"{part['difference']['mean']:+.3f}"]
        for part in comparison["slices"]
    ]
    rows.insert(0, ["all", str(comparison["n"]), *(f"{comparison[side]:.3f}" for side in ("before", "after")), _gain(comparison)])
    lines = [render_table(["slice", "n", "before", "after", "difference"], rows)]
    lines.append(f"{comparison['metric']}: {render_difference(comparison['difference'])}, smallest detectable {comparison['mde']:.3f}")
    if mcnemar := comparison["mcnemar"]:
        lines.append(f"McNemar: {mcnemar['gained']} gained, {mcnemar['lost']} lost, p {mcnemar['p']:.4f}")
    return "\n".join([*lines, f"{comparison['decision']}: {comparison['reason']}"])


def _gain(comparison: Mapping[str, Any]) -> str:
    return f"{comparison['difference']['mean']:+.3f}"


def render_result(result: Mapping[str, Any]) -> str:
    """Render the result of a flow run."""
    if "before" in result:
        return render_summary(result)
    if "policy" in result:
        return render_metrics({result["policy"]: result["metrics"]}, result["n"])
    return "\n".join(f"{name:<14} {value}" for name, value in result.items() if isinstance(value, str | int | float))


def render_summary(summary: Mapping[str, Any]) -> str:
    """Render the summary of a `train-and-eval`."""
    control = {"SFT control": summary["control"]} if "control" in summary else {}
    policies = {"before": summary["before"], "after (GRPO)": summary["after"], **control, **summary["baselines"]}
    training = summary["training"]
    lines = [render_metrics(policies, summary["n"]), ""]
    lines.append(f"after - before     {render_difference(summary['difference'])}")
    if "rl_adds" in summary:
        lines.append(f"GRPO - SFT control {render_difference(summary['rl_adds'])}")
        control_s = summary["control"]["seconds"]
        lines.append(f"training time      GRPO {training['seconds']:.0f} s ({training['steps']} steps), SFT control {control_s:.0f} s")
    slices = summary["slices"]
    for name in slices["before"]:
        before, after = (slices[side].get(name, {}).get("answer/exact_match") for side in ("before", "after"))
        lines.append(f"{name:<18} {_number(before)} -> {_number(after)}")
    lines.append("seconds            " + ", ".join(f"{name} {value:.0f}" for name, value in summary["seconds"].items()))
    return "\n".join([*lines, "", f"{summary['decision']}: {summary['reason']}"])
