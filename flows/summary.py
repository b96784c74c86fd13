"""What a finished run leaves for people and machines: `latest.json`, Prefect's tables, the flow's return value."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.runtime import flow_run

from flows.artifacts import show_comparison, show_evaluations
from flows.pipeline import Pipeline
from slmsearch.staging import replace_text

LATEST = "latest.json"
"""In `paths.mlruns_dir`: the summary of the last finished `train-and-eval`."""
DIFFERENCE = ("mean", "low", "high", "p")
SHOWN = ("answer/exact_match", "answer/f1", "search/gold_read_frac", "episode/tool_calls", "stop/malformed", "reward/mean")
"""Metrics in the tables of Prefect's UI."""

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What the stages of a `train-and-eval` came to."""

    before: Result
    after: Result
    baselines: Mapping[str, Result]
    trained: Result
    control: Result | None
    """Evaluation of the SFT control; None where it was not wanted."""
    comparison: Result
    rl_adds: Result | None
    """Comparison of the SFT control with GRPO."""
    decision: Mapping[str, str]


def conclude(run: Pipeline, outcome: Outcome) -> dict[str, Any]:
    """Write the summary of a finished run to `latest.json` and to both trackers, and return it."""
    summary = summarise_run(run, outcome)
    policies = {"before": outcome.before, "after": outcome.after, **({"sft-control": outcome.control} if outcome.control else {})}
    show_evaluations({name: _shown(found["metrics"]) for name, found in {**policies, **outcome.baselines}.items()})
    show_comparison(render_comparison(summary))
    run.tracker.record_json(run.run_id, summary, "summary.json")
    prefixed = {f"eval/{name}": value for name, value in outcome.after["metrics"].items()}
    run.tracker.record_metrics(run.run_id, prefixed)
    replace_text(Path(run.config.paths.mlruns_dir) / LATEST, json.dumps(summary, indent=2) + "\n")
    return summary


def summarise_run(run: Pipeline, outcome: Outcome) -> dict[str, Any]:
    """Return what machines read of a run."""
    summary: dict[str, Any] = {
        "n": outcome.comparison["n"],
        "metric": outcome.comparison["metric"],
        "before": outcome.before["metrics"],
        "after": outcome.after["metrics"],
        "difference": _difference(outcome.comparison),
        "decision": outcome.decision["decision"],
        "reason": outcome.decision["reason"],
        "slices": {"before": outcome.before["slices"], "after": outcome.after["slices"]},
        "baselines": {name: found["metrics"] for name, found in outcome.baselines.items()},
        "training": {name: outcome.trained[name] for name in ("steps", "seconds", "hash", "version")},
        "seconds": run.seconds,
        "lineage": run.lineage,
        "mlflow_run_id": run.run_id,
        "flow_run_id": str(flow_run.id),
    }
    if outcome.control and outcome.rl_adds:
        summary["control"] = {**outcome.control["metrics"], "seconds": outcome.control["training_s"], "steps": outcome.control["steps"]}
        summary["rl_adds"] = _difference(outcome.rl_adds)
    return summary


def render_comparison(summary: Result) -> str:
    """Render before, after and the decision as Markdown."""
    lines = ["| metric | before | after |", "|---|---|---|"]
    shown = [name for name in SHOWN if name in summary["before"] and name in summary["after"]]
    lines += [f"| {name} | {summary['before'][name]:.3f} | {summary['after'][name]:.3f} |" for name in shown]
    difference = summary["difference"]
    interval = f"{difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}], p {difference['p']:.4f}"
    lines += ["", f"{summary['metric']}: {interval}, n {summary['n']}.", "", f"**{summary['decision']}**: {summary['reason']}"]
    return "\n".join(lines)


def _difference(comparison: Result) -> dict[str, float]:
    return {part: comparison["difference"][part] for part in DIFFERENCE}


def _shown(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in SHOWN if name in metrics}
