"""What a finished `train-planner` leaves for people and machines: `latest-planner.json`, Prefect's tables, the flow's return value."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.cli.reporting import leave_reports
from flows.stages.artifacts import escape, show_comparison
from flows.stages.pipeline import Pipeline
from flows.stages.summary import DIFFERENCE, Result
from slmsearch.artifacts.files import replace_text
from slmsearch.evaluate.compare import replay
from slmsearch.evaluate.policies import WORKER_ALONE
from slmsearch.report.tables import comparison_table, describe_comparison
from tasks.paths import evals_dir

LATEST_PLANNER = "latest-planner.json"
"""In `paths.mlruns_dir`: the summary of the last finished `train-planner`."""


@dataclass(frozen=True)
class PlannerOutcome:
    """What the stages of a `train-planner` came to."""

    alone: Result
    """The worker alone."""
    before: Result
    """The SFT start."""
    after: Result
    """GRPO."""
    controls: Mapping[str, Result]
    trained: Result
    comparison: Result
    gain: Result
    """Comparison of the worker alone with GRPO."""
    decision: Mapping[str, str]


def conclude_planner(run: Pipeline, outcome: PlannerOutcome) -> dict[str, Any]:
    """Write the summary of a finished run to `latest-planner.json` and to both trackers, and return it."""
    with run.stage("report"):
        summary = summarise_planner(run, outcome)
        paths = [evals_dir(run.config) / found["key"] for found in (outcome.before, outcome.after)]
        comparison = replay(paths[0], paths[1], run.config.decision)
        decided = f"**{outcome.decision['decision']}**: {escape(outcome.decision['reason'])}"
        show_comparison("\n\n".join([comparison_table(comparison).to_markdown(), escape(describe_comparison(comparison)), decided]))
        run.tracker.record_metrics(run.run_id, {f"eval/{name}": value for name, value in outcome.after["metrics"].items()})
        run.tracker.record_json(run.run_id, summary, "summary.json")
        leave_reports(run, summary)
    replace_text(Path(run.config.paths.mlruns_dir) / LATEST_PLANNER, json.dumps(summary, indent=2) + "\n")
    return summary


def summarise_planner(run: Pipeline, outcome: PlannerOutcome) -> dict[str, Any]:
    """Return what machines read of a run."""
    policies = {WORKER_ALONE: outcome.alone, "before": outcome.before, "after": outcome.after, **outcome.controls}
    return {
        "n": outcome.comparison["n"],
        "metric": outcome.comparison["metric"],
        "before": outcome.before["metrics"],
        "after": outcome.after["metrics"],
        "worker_alone": outcome.alone["metrics"],
        "difference": {part: outcome.comparison["difference"][part] for part in DIFFERENCE},
        "gain": {part: outcome.gain["difference"][part] for part in DIFFERENCE},
        **outcome.decision,
        "controls": {name: found["metrics"] for name, found in outcome.controls.items()},
        "slices": {"before": outcome.before["slices"], "after": outcome.after["slices"]},
        "training": {name: outcome.trained[name] for name in ("steps", "seconds", "spent", "hash", "version", "output")},
        "seconds": run.seconds,
        "lineage": run.lineage,
        "evaluations": {name: found["key"] for name, found in policies.items()},
        **run.ids,
    }
