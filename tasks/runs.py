"""Which run of a flow is meant, and what it left: evaluations, training reports, what was decided. Reads, changes nothing."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slmsearch.artifacts.files import read_json
from slmsearch.config import DecisionConfig, RunConfig
from slmsearch.errors import EvaluationError, SlmSearchError
from slmsearch.evaluate.compare import Comparison, compare
from slmsearch.evaluate.store import Evaluation, load_evaluation
from slmsearch.learn.files import JUDGE, STEPS
from slmsearch.learn.reports import StepReport, read_reports
from slmsearch.report.page.results import AFTER, BEFORE, RunResults
from tasks.paths import evals_dir, training_dir
from tasks.tracking import RunRecord, open_tracker

LATEST = "latest"
FLOWS = ("train-and-eval", "train-planner", "evaluate", "train")
"""Whose runs leave something to look at."""
PREFIX_LENGTH = 4
"""Fewest characters of a run id that name a run."""
EVAL_KEY, TAG = "eval_key_", "slmsearch."
LINEAGE = ("data_digest", "index_key", "train_key", "base_hash", "adapter_hash", "model_version", "control_key", "sft_key")


def find_run(name: str, config: RunConfig) -> RunRecord:
    """Find a run of a flow by its MLflow id or the beginning of it, its name in Prefect or MLflow, or `latest`.

    Raises:
        EvaluationError: there is none, or several are meant.
        ServiceError: MLflow cannot be read.
    """
    tracker = open_tracker(config)
    runs = [run for run in tracker.runs() if run.stage in FLOWS and run.parent is None and run.experiment_id == tracker.experiment_id]
    if not runs:
        raise EvaluationError("MLflow holds no run of a flow yet; run `slmsearch run train-and-eval` first")
    if name == LATEST:
        finished = [run for run in runs if run.status == "FINISHED" and f"{TAG}decision" in run.tags]
        return (finished or runs)[0]
    named = [run for run in runs if name in (run.id, run.tags.get("prefect.flow_run_name"))]
    named = named or [run for run in runs if len(name) >= PREFIX_LENGTH and run.id.startswith(name)]
    if not named and any(run.stage == name for run in runs):
        named = [next(run for run in runs if run.stage == name)]
    if len(named) == 1:
        return named[0]
    shown = ", ".join(f"{run.id[:8]} ({describe(run)})" for run in (named or runs)[:5])
    if named:
        raise EvaluationError(f"{name!r} may be {len(named)} runs: {shown}; give more of the id")
    raise EvaluationError(f"no run {name!r}; give {LATEST}, an MLflow run id or a flow run's name, such as {shown}")


def describe(run: RunRecord) -> str:
    """Name a run for people: its name in Prefect and its flow."""
    name = run.tags.get("prefect.flow_run_name")
    return f"{name}, {run.stage}" if name else run.stage


def load_results(run: RunRecord, config: RunConfig) -> RunResults:
    """Load everything stored of a run; what is missing is named in its warnings.

    Args:
        run: a run of a flow.
        config: where evaluations and training runs lie; the rule of the decision is the run's own.

    Raises:
        EvaluationError: the run has left neither evaluations nor steps.
    """
    tracker, warnings = open_tracker(config), list[str]()
    summary = tracker.read_json(run.id, "summary.json") or {}
    settings = tracker.read_json(run.id, "config.json") or {}
    decision = DecisionConfig.read_record(settings.get("decision", {}))
    lineage = summary.get("lineage") or {name.removeprefix(TAG): value for name, value in run.tags.items() if name.startswith(TAG)}
    directory = training_dir(config, lineage["train_key"]) if "train_key" in lineage else None
    evaluations = _load_evaluations(summary.get("evaluations") or _keys(lineage), config, warnings)
    steps = _load_steps(directory, warnings)
    if not evaluations and not steps:
        raise EvaluationError(
            f"run {run.id[:8]} ({describe(run)}, {run.status}) has left nothing to show: {'; '.join(warnings) or 'no keys'}"
        )
    return RunResults(
        run_id=run.id,
        name=run.tags.get("prefect.flow_run_name") or f"{run.stage} {run.id[:8]}",
        environment=str(settings.get("environment") or settings.get("system", "searcher")),
        status="FINISHED" if summary else run.status,  # the summary is written last, by a run that makes its own page
        started=datetime.fromtimestamp(run.started_s, UTC).isoformat(timespec="seconds"),
        evaluations=evaluations,
        comparisons=_compare_all(evaluations, decision, warnings),
        decision=str(summary.get("decision") or run.tags.get(f"{TAG}decision", "")),
        reason=str(summary.get("reason") or run.tags.get(f"{TAG}reason", "")),
        metric=decision.metric,
        alpha=decision.alpha,
        steps=steps,
        judge=read_json(directory / JUDGE) if directory else {},
        lineage={name: value for name, value in lineage.items() if name in LINEAGE or name.startswith(EVAL_KEY)},
        seconds=summary.get("seconds", {}),
        settings=_changed(settings),
        warnings=tuple(warnings),
    )


def _keys(lineage: Mapping[str, str]) -> dict[str, str]:
    """Return the evaluations that a run's lineage names; controls come first, then before and after."""
    found = {name.removeprefix(EVAL_KEY): key for name, key in lineage.items() if name.startswith(EVAL_KEY)}
    return dict(sorted(found.items(), key=lambda item: ((BEFORE, AFTER).index(item[0]) if item[0] in (BEFORE, AFTER) else -1, item[0])))


def _load_evaluations(keys: Mapping[str, str], config: RunConfig, warnings: list[str]) -> dict[str, Evaluation]:
    found = {}
    for name, key in keys.items():
        try:
            found[name] = load_evaluation(evals_dir(config), key)
        except SlmSearchError as error:
            warnings.append(f"evaluation of {name}: {error}")
    return found


def _load_steps(directory: Path | None, warnings: list[str]) -> Sequence[StepReport]:
    if directory is None:
        return ()
    if not directory.exists():
        warnings.append(f"training curves: {directory} is gone")
        return ()
    try:
        return read_reports(directory / STEPS)
    except SlmSearchError as error:
        warnings.append(f"training curves: {error}")
        return ()


def _compare_all(evaluations: Mapping[str, Evaluation], config: DecisionConfig, warnings: list[str]) -> dict[str, Comparison]:
    """Compare every policy with the trained one."""
    found = {}
    for name, evaluation in evaluations.items():
        if name == AFTER or AFTER not in evaluations:
            continue
        try:
            found[name] = compare(evaluation.rows, evaluations[AFTER].rows, config)
        except SlmSearchError as error:
            warnings.append(f"comparison with {name}: {error}")
    return found


def _changed(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the recorded settings that are not the default, flat; paths and addresses of this machine stay out."""
    defaults = _flatten(RunConfig().model_dump(mode="json"))
    return {
        name: json.dumps(value) if not isinstance(value, str) else value
        for name, value in _flatten(RunConfig.known_values(settings)).items()
        if defaults.get(name) != value and not name.startswith(("paths.", "tracking."))
    }


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat
