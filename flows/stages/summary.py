"""What a finished run leaves for people and machines: `latest*.json`, Prefect's tables, the flow's return value."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.cli.reporting import leave_reports
from flows.stages.artifacts import escape, show_comparison
from flows.stages.pipeline import Pipeline
from slmsearch.artifacts.files import replace_text
from slmsearch.evaluate.compare import replay
from slmsearch.report.tables import comparison_table, describe_comparison
from tasks.paths import evals_dir

LATEST, LATEST_PLANNER = "latest.json", "latest-planner.json"
"""In `paths.mlruns_dir`: the summary of the last finished `train-and-eval`, and `train-planner`."""
TRAINING = ("steps", "seconds", "spent", "hash", "version", "output")
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What the stages of a flow that trains came to."""

    policies: Mapping[str, Result]
    """Evaluations by name, in the order they are shown; `before` and `after` among them."""
    trained: Result
    comparison: Result
    """Of before with after."""
    decision: Mapping[str, str]
    more: Mapping[str, Any]
    """What the summary of this flow alone holds."""


def conclude(run: Pipeline, outcome: Outcome, latest: str = LATEST) -> dict[str, Any]:
    """Write the summary of a finished run to a file and to both trackers, and return it."""
    with run.stage("report"):
        summary = summarise_run(run, outcome)
        show_comparison(render_comparison(run, outcome))
        run.tracker.record_metrics(run.run_id, {f"eval/{name}": value for name, value in summary["after"].items()})
        run.tracker.record_json(run.run_id, summary, "summary.json")
        leave_reports(run, summary)
    replace_text(Path(run.config.paths.mlruns_dir) / latest, json.dumps(summary, indent=2) + "\n")
    return summary


def summarise_run(run: Pipeline, outcome: Outcome) -> dict[str, Any]:
    """Return what machines read of a run."""
    before, after = outcome.policies["before"], outcome.policies["after"]
    return {
        "n": outcome.comparison["n"],
        "metric": outcome.comparison["metric"],
        "before": before["metrics"],
        "after": after["metrics"],
        "difference": difference(outcome.comparison),
        **outcome.decision,
        "slices": {"before": before["slices"], "after": after["slices"]},
        "training": {name: outcome.trained[name] for name in TRAINING if name in outcome.trained},
        "seconds": run.seconds,
        "lineage": run.lineage,
        "evaluations": {name: found["key"] for name, found in outcome.policies.items()},
        **run.ids,
        **outcome.more,
    }


def render_comparison(run: Pipeline, outcome: Outcome) -> str:
    """Render before, after and the decision as Markdown."""
    before, after = (evals_dir(run.config) / outcome.policies[name]["key"] for name in ("before", "after"))
    comparison = replay(before, after, run.config.decision)
    told = escape(describe_comparison(comparison))
    decided = f"**{outcome.decision['decision']}**: {escape(outcome.decision['reason'])}"
    return "\n\n".join([comparison_table(comparison).to_markdown(), told, decided])


def difference(comparison: Result) -> dict[str, float]:
    """Return what a summary holds of a comparison."""
    return {part: comparison["difference"][part] for part in ("mean", "low", "high", "p")}
