"""Results as text for a terminal; the tables themselves are made in `slmsearch/report`."""

import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flows.cli.night_text import render_night
from slmsearch.config import RunConfig
from slmsearch.environments.rows import EpisodeRow
from slmsearch.evaluate.compare import Comparison, compare
from slmsearch.evaluate.nights import night_from_dict
from slmsearch.evaluate.store import load_rows
from slmsearch.report.cells import difference as written
from slmsearch.report.tables import Table, comparison_table, describe_comparison, failure_mode_table, results_table, slices_table
from tasks.paths import evals_dir

Evaluations = dict[str, list[EpisodeRow]]


def render_result(result: Mapping[str, Any], config: RunConfig) -> str:
    """Render the result of any flow run."""
    if "evaluations" in result:
        return render_summary(result, config)
    if "night" in result:
        return render_night(night_from_dict(result["night"]))
    if "policy" in result:
        return render_evaluation(str(result["policy"]), str(result["key"]), config)
    return "\n".join(f"{name:<14} {value}" for name, value in result.items() if isinstance(value, str | int | float))


def render_evaluation(name: str, key: str, config: RunConfig) -> str:
    """Render one evaluation: its metrics, and where wrong episodes broke."""
    rows = load_rows(evals_dir(config) / key)
    tables = [turned(results_table({name: rows})), slices_table({name: rows}), failure_mode_table(rows)]
    return "\n\n".join(table.to_text() for table in tables)


def render_summary(summary: Mapping[str, Any], config: RunConfig) -> str:
    """Render the summary of a `train-and-eval`: all policies, before and after by kind, what RL adds, times, the decision."""
    evaluations = {name: load_rows(evals_dir(config) / key) for name, key in summary["evaluations"].items()}
    sides = {name: evaluations[name] for name in ("worker-alone", "before", "after", "sft-control") if name in evaluations}
    lines = [turned(results_table(evaluations)).to_text(), "", slices_table(sides).to_text(), ""]
    differences = {"before": summary["difference"]}
    training = summary["training"]
    times = f"GRPO {training['seconds']:.0f} s for {training['steps']} steps"
    if "rl_adds" in summary:
        differences["sft-control"] = summary["rl_adds"]
        times += f", SFT control {summary['control']['seconds']:.0f} s for {summary['control']['steps']} steps"
    for name in sorted(set(evaluations) - {"before", "after", "sft-control"}):
        differences[name] = asdict(compare(evaluations[name], evaluations["after"], config.decision).difference)
    width = max(len(f"after - {name}") for name in differences)
    lines += [f"{f'after - {name}':<{width}}  {render_difference(difference)}" for name, difference in differences.items()]
    lines += [f"{'training':<{width}}  {times}", f"{'GRPO, seconds':<{width}}  " + _render_seconds(training["spent"], width)]
    lines += [f"{'stages, seconds':<{width}}  " + _render_seconds(summary["seconds"], width)]
    return "\n".join([*lines, "", f"{summary['decision']}: {summary['reason']}"])


def render_comparison(comparison: Comparison) -> str:
    """Render a comparison and its decision."""
    return f"{comparison_table(comparison).to_text()}\n\n{describe_comparison(comparison)}"


def render_difference(difference: Mapping[str, float]) -> str:
    """Render a mean difference with its interval and p-value."""
    return written(difference["mean"], difference["low"], difference["high"], difference["p"])


def turned(table: Table) -> Table:
    """Turn rows into columns: many measures of a few policies fit a terminal better that way."""
    columns = [table.headers, *table.rows]
    head, *rows = zip(*columns, strict=True)
    return Table(tuple(head), tuple(rows))


def _render_seconds(seconds: Mapping[str, float], indent: int) -> str:
    """Render stages and their seconds in lines that begin at a column."""
    text = ", ".join(f"{name}\0{value:.0f}" for name, value in seconds.items())
    return textwrap.fill(text, 110, subsequent_indent=" " * (indent + 2), break_on_hyphens=False).replace("\0", " ")
