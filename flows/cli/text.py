"""Text of results and nights for a terminal; `slmsearch/report` makes the tables."""

import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.runtime.links import short_path
from slmsearch.config import DecisionConfig, PathsConfig
from slmsearch.evaluate.compare import Comparison, compare, shared_rows
from slmsearch.evaluate.forecast import UNMEASURED, show_gain, show_time
from slmsearch.evaluate.nights import night_from_dict
from slmsearch.evaluate.store import load_rows
from slmsearch.intervals import show_interval
from slmsearch.report.night_tables import render_night
from slmsearch.report.tables import (
    Table,
    Trust,
    comparison_table,
    describe_comparison,
    failure_mode_table,
    points,
    results_table,
    slices_table,
    surest_table,
    trust_table,
)
from slmsearch.report.tables import difference as written


def render_result(result: Mapping[str, Any], paths: PathsConfig, decision: DecisionConfig) -> str:
    """Render the result of any flow run."""
    if "learnt" in result:
        return render_learnt(result, paths, decision)
    if "evaluations" in result:
        return render_summary(result, paths, decision)
    if "night" in result:
        return render_night(night_from_dict(result["night"]))
    if "policy" in result:
        return render_evaluation(str(result["policy"]), str(result["key"]), paths, result.get("trust"))
    return "\n".join(f"{name:<14} {value}" for name, value in result.items() if isinstance(value, str | int | float))


def render_evaluation(name: str, key: str, paths: PathsConfig, trust: Trust | None = None) -> str:
    """Render one evaluation: its metrics, the trust measured on twins and repeated episodes if any, and failure modes."""
    rows = load_rows(paths.evals / key)
    tables = [turned(results_table({name: rows})), *([trust_table({name: trust})] if trust else [])]
    tables += [slices_table({name: rows}), failure_mode_table(rows)]
    return "\n\n".join(table.to_text() for table in tables)


def render_summary(summary: Mapping[str, Any], paths: PathsConfig, decision: DecisionConfig) -> str:
    """Render the summary of a `train-and-eval`: all policies, before and after by kind, the effect of RL, times, the decision."""
    evaluations = {name: load_rows(paths.evals / key) for name, key in summary["evaluations"].items()}
    sides = {name: evaluations[name] for name in ("worker-alone", "before", "after", "sft-control") if name in evaluations}
    lines = [turned(results_table(evaluations)).to_text(), "", slices_table(sides).to_text(), ""]
    differences = {"before": summary["difference"]}
    training = summary["training"]
    times = f"GRPO {training['seconds']:.0f} s for {training['steps']} steps"
    if "rl_adds" in summary:
        differences["sft-control"] = summary["rl_adds"]
        times += f", SFT control {summary['control']['seconds']:.0f} s for {summary['control']['steps']} steps"
    for name in sorted(set(evaluations) - {"before", "after", "sft-control"}):
        differences[name] = asdict(compare(*shared_rows(evaluations[name], evaluations["after"]), decision).difference)
    width = max(len(f"after - {name}") for name in differences)
    for name, found in differences.items():
        lines.append(f"{f'after - {name}':<{width}}  {written(found['mean'], found['low'], found['high'], found['p'])}")
    lines += [f"{'training':<{width}}  {times}", f"{'GRPO, seconds':<{width}}  " + _render_seconds(training["spent"], width)]
    if card := training.get("card"):
        lines.append(f"{'card':<{width}}  " + _render_card(card, width))
    lines += [f"{'stages, seconds':<{width}}  " + _render_seconds(summary["seconds"], width)]
    if told := summary.get("forecast"):
        doubt = f" ({UNMEASURED.format(', '.join(told['beyond']))})" if told["beyond"] else ""
        lines.append(f"{'forecast':<{width}}  {show_gain(told['gain'])}, came {points(summary['difference']['mean'])}{doubt}")
    beside = [summary["beside_untrained"]] if "beside_untrained" in summary else []
    return "\n".join([*lines, "", f"{summary['decision']}: {summary['reason']}", *beside])


def render_forecast(told: Mapping[str, Any]) -> str:
    """Render a forecast, one figure a line."""
    start, training = told["start"], told["training"]
    tries, asked = len(start["counts"]) - 1, sum(start["counts"])
    figures = {
        "GRPO": f"{show_gain(told['gain'])} in {training['updates']} updates, some {show_time(told['seconds'])}",
        "SFT": f"{show_gain(told['sft_continued'])} in the same time",
        "headroom": f"{points(told['headroom'])} points: right in one of {tries} tries, not greedily",
        "start": f"{100 * start['greedy']:.1f} % of {asked} held-out questions",
        "signal": f"{100 * told['signal_frac']:.0f} % of groups of {training['group_size']} have right and wrong episodes",
        "worth it": {True: "yes", False: "no", None: UNMEASURED.format(", ".join(told["beyond"]))}[told["worth_it"]],
    }
    return "\n".join(f"{name:<10} {text}" for name, text in figures.items())


def render_history(found: Mapping[str, Any]) -> str:
    """Render earlier forecasts beside what came of them."""
    rows = [
        (one["name"], show_gain(one["gain"]), points(one["outcome"]), "not measured" if one["beyond"] else "yes" if one["inside"] else "no")
        for one in found["forecasts"]
    ]
    if not rows:
        return "no forecast yet whose training ended; `slmsearch run train-and-eval` makes one"
    table = Table(("run", "forecast", "came", "inside"), tuple(rows))
    if found["covered_frac"] is None:
        return f"{table.to_text()}\n\nno training like these was measured before them"
    told = sum(not one["beyond"] for one in found["forecasts"])
    return f"{table.to_text()}\n\n{100 * found['covered_frac']:.0f} % of {told} outcomes are in their intervals"


def render_learnt(result: Mapping[str, Any], paths: PathsConfig, decision: DecisionConfig) -> str:
    """Render the result of `learn`: its summary, then the figures a user needs first."""
    learnt, right, unknown = result["learnt"], result["learnt"]["right"], result["learnt"]["unknown"]
    asked, settings = learnt["questions"], shlex.quote(short_path(Path(learnt["settings"])))
    sides = [name for name in ("after", "reader", "retrieve-then-answer") if name in result["evaluations"]]
    surest = surest_table({name: load_rows(paths.evals / result["evaluations"][name]) for name in sides}, decision.alpha)
    lines = [
        render_summary(result, paths, decision),
        *(["", surest.to_text()] if surest else []),
        "",
        f"right answers     {_percent(right)} of {right['n']} questions about pages it never trained on",
        f"time              {learnt['question_s']:.1f} s for one question",
        f"learnt from       {asked['count']} questions, {asked['kept']} of them made before",
    ]
    if asked["unasked"]:
        lines.append(f"not asked about   {asked['unasked']} sections, for lack of time: the next run asks about them")
    if unknown:
        spread = _percent(unknown)
        lines.append(f'"I don\'t know"    said for {spread} of {unknown["n"]:.0f} questions whose answer is not there')
    if asked["corrections"]:
        told = ", ".join(f"{count} {state}" for state, count in asked["corrections"].items())
        moved = f"; {asked['left_test']} questions about their pages are trained on now" if asked["left_test"] else ""
        lines.append(f"corrections       {told}{moved}")
    if result["decision"] != "promote":
        version = f"slmsearch-{Path(learnt['settings']).parent.name}/{result['training']['version']}"
        lines.append("not promoted      the commands below play the champion, or the untrained model if there is none; to play this one:")
        lines.append(f'                  slmsearch promote {version} --reason "..."')
    lines += [
        f'ask               slmsearch ask --config {settings} "..."',
        f"serve             slmsearch serve searcher --config {settings}",
    ]
    return "\n".join(lines)


def _percent(share: Mapping[str, float]) -> str:
    return f"{100 * share['value']:.0f} % {show_interval(100 * share['low'], 100 * share['high'], '.0f')}"


def render_comparison(comparison: Comparison) -> str:
    """Render a comparison and its decision."""
    return f"{comparison_table(comparison).to_text()}\n\n{describe_comparison(comparison)}"


def turned(table: Table) -> Table:
    """Swap rows and columns: many measures of a few policies fit a terminal better that way."""
    columns = [table.headers, *table.rows]
    head, *rows = zip(*columns, strict=True)
    return Table(tuple(head), tuple(rows))


def _render_seconds(seconds: Mapping[str, float], indent: int) -> str:
    """Render stages and their seconds in lines that begin at a column."""
    text = ", ".join(f"{name}\0{value:.0f}" for name, value in seconds.items())
    return textwrap.fill(text, 110, subsequent_indent=" " * (indent + 2), break_on_hyphens=False).replace("\0", " ")


def _render_card(card: Mapping[str, Mapping[str, float]], indent: int) -> str:
    """Render the use of a CUDA card by phase, in lines that begin at a column."""

    def render(phase: str, use: Mapping[str, float]) -> str:
        busy = f"{100 * use['busy_frac']:.0f} % busy, " if "busy_frac" in use else ""
        return f"{phase} {busy}{use['allocated_gib']:.1f} GiB".replace(" ", "\0")

    text = "; ".join(render(phase, use) for phase, use in card.items())
    return textwrap.fill(text, 110, subsequent_indent=" " * (indent + 2), break_on_hyphens=False).replace("\0", " ")
