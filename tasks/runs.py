"""Runs of flows by name, their results, and their report: a page kept in `mlruns/reports` and in MLflow, charts and tables as files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, get_args

from prefect import task
from prefect.cache_policies import NO_CACHE
from pydantic import ValidationError

from slmsearch.artifacts.files import read_json, replace_text
from slmsearch.config import DecisionConfig, PathsConfig, RunConfig, TrackingConfig
from slmsearch.environments.searcher.twins import Twin
from slmsearch.errors import EvaluationError, SlmSearchError
from slmsearch.evaluate.compare import Comparison, compare, shared_rows
from slmsearch.evaluate.forecast import UNMEASURED, show_gain
from slmsearch.evaluate.store import Evaluation, load_evaluation
from slmsearch.evaluate.trust import SAMPLED
from slmsearch.lineage.graph import flatten
from slmsearch.report.page.results import AFTER, BEFORE, RunResults
from slmsearch.training.files import JUDGE, STEPS
from slmsearch.training.reports import StepReport, read_reports
from tasks.lineage import TAUGHT
from tasks.tracking import FLOW_RUN_NAME, RunRecord, Tracker, open_tracker

FOLDER = "report"
"""Folder of the run's artifacts."""
PAGE = f"{FOLDER}/report.html"
LATEST = "latest"
FLOWS = ("train-and-eval", "learn", "train-planner", "evaluate", "train")
"""Flows whose runs have results to show."""
PREFIX_LENGTH = 4
"""Minimum number of characters of a run id that name a run."""
TRUST_FILE = "trust.json"
"""Results on twins and repeated episodes, by policy."""
EVAL_KEY, TAG = "eval_key_", "slmsearch."
LINEAGE = ("data_digest", "texts", "index_key", "train_key", "base_hash", "adapter_hash", "model_version", *TAUGHT)


class ReportPage(TypedDict):
    """A report page that was made."""

    page: str
    """File of the page."""
    bytes: int
    artifact: str
    """Path of the page in each run."""
    runs: list[dict[str, str]]
    warnings: list[str]


def find_run(tracker: Tracker, name: str) -> RunRecord:
    """Find a run of a flow by its MLflow id or the beginning of it, its name in Prefect or MLflow, or `latest`.

    Raises:
        EvaluationError: no run has that name, or several do.
        ServiceError: MLflow cannot be read.
    """
    runs = [run for run in tracker.runs() if run.stage in FLOWS and run.parent is None and run.experiment_id == tracker.experiment_id]
    if not runs:
        raise EvaluationError("MLflow holds no run of a flow yet; run `slmsearch run train-and-eval` first")
    if name == LATEST:
        finished = [run for run in runs if run.status == "FINISHED" and f"{TAG}decision" in run.tags]
        return (finished or runs)[0]
    named = [run for run in runs if name in (run.id, run.name, run.tags.get(FLOW_RUN_NAME))]
    named = named or [run for run in runs if len(name) >= PREFIX_LENGTH and run.id.startswith(name)]
    if not named and any(run.stage == name for run in runs):
        named = [next(run for run in runs if run.stage == name)]
    if len(named) == 1:
        return named[0]
    shown = ", ".join(f"{run.id[:8]} ({run.name})" for run in (named or runs)[:5])
    if named:
        raise EvaluationError(f"{name!r} may be {len(named)} runs: {shown}; give more of the id")
    raise EvaluationError(f"no run {name!r}; give {LATEST}, an MLflow run id or a flow run's name, such as {shown}")


def load_results(tracker: Tracker, run: RunRecord, paths: PathsConfig) -> RunResults:
    """Load all stored results of a run of a flow; its warnings name missing ones. The rule of the decision is the run's own.

    Raises:
        EvaluationError: the run has left neither evaluations nor steps.
    """
    warnings = list[str]()
    summary = tracker.read_json(run.id, "summary.json") or {}
    settings = tracker.read_json(run.id, "config.json") or {}
    try:
        decision = DecisionConfig.model_validate(settings.get("decision", {}))
    except ValidationError as error:
        first = error.errors()[0]
        odd = f"decision.{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise EvaluationError(f"run {run.id} was recorded by another version of slmsearch ({odd}); report it with that version") from error
    lineage = summary.get("lineage") or {name.removeprefix(TAG): value for name, value in run.tags.items() if name.startswith(TAG)}
    directory = paths.training / lineage["train_key"] if "train_key" in lineage else None
    evaluations: dict[str, Evaluation] = {}
    for name, key in (summary.get("evaluations") or _keys(lineage)).items():
        with _noted(f"evaluation of {name}", warnings):
            evaluations[name] = load_evaluation(paths.evals, key)
    steps: Sequence[StepReport] = ()
    if directory is not None:
        with _noted("training curves", warnings):
            if not directory.exists():
                raise EvaluationError(f"{directory} does not exist any more")
            steps = read_reports(directory / STEPS)
    comparisons: dict[str, Comparison] = {}
    for name in (name for name in evaluations if name != AFTER and AFTER in evaluations):
        with _noted(f"comparison with {name}", warnings):
            comparisons[name] = compare(*shared_rows(evaluations[name].rows, evaluations[AFTER].rows), decision)
    if not evaluations and not steps:
        raise EvaluationError(f"run {run.id[:8]} ({run.name}, {run.status}) has left nothing to show: {'; '.join(warnings) or 'no keys'}")
    return RunResults(
        run_id=run.id,
        name=run.tags.get(FLOW_RUN_NAME) or f"{run.stage} {run.id[:8]}",
        environment=str(settings.get("environment") or settings.get("system", "searcher")),
        status="FINISHED" if summary else run.status,  # the summary is written last, by a run that makes its own page
        started=datetime.fromtimestamp(run.started_s, UTC).isoformat(timespec="seconds"),
        evaluations=evaluations,
        comparisons=comparisons,
        decision=str(summary.get("decision") or run.tags.get(f"{TAG}decision", "")),
        reason=" ".join(filter(None, [str(summary.get("reason") or run.tags.get(f"{TAG}reason", "")), *_told(summary)])),
        metric=decision.metric,
        alpha=decision.alpha,
        trust=tracker.read_json(run.id, TRUST_FILE) or {},
        steps=steps,
        judge=read_json(directory / JUDGE) if directory else {},
        lineage={name: value for name, value in lineage.items() if name in LINEAGE or name.startswith(EVAL_KEY)},
        seconds=summary.get("seconds", {}),
        settings=_changed(settings),
        warnings=tuple(warnings),
    )


def _told(summary: Mapping[str, Any]) -> Iterator[str]:
    """Return the sentences that a report adds to the reason of a decision."""
    yield summary.get("beside_untrained", "")
    if told := summary.get("forecast"):
        doubt = f" ({UNMEASURED.format(', '.join(told['beyond']))})" if told["beyond"] else ""
        yield f"GRPO was expected to bring {show_gain(told['gain'])}{doubt}, and brought {100 * summary['difference']['mean']:+.1f}."


def _keys(lineage: Mapping[str, str]) -> dict[str, str]:
    """Return the evaluations that a run's lineage names; controls come first, then before and after."""
    found = {name.removeprefix(EVAL_KEY): key for name, key in lineage.items() if name.startswith(EVAL_KEY)}
    beside = (*get_args(Twin), SAMPLED)
    found = {name: key for name, key in found.items() if name.rpartition("-")[2] not in beside and not name.startswith("forecast-")}
    return dict(sorted(found.items(), key=lambda item: ((BEFORE, AFTER).index(item[0]) if item[0] in (BEFORE, AFTER) else -1, item[0])))


@contextmanager
def _noted(what: str, warnings: list[str]) -> Iterator[None]:
    """Turn an error into a warning that names the missing part."""
    try:
        yield
    except SlmSearchError as error:
        warnings.append(f"{what}: {error}")


def _changed(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the recorded settings that differ from the default, flat, without paths and addresses of this machine."""
    defaults, recorded = flatten(RunConfig().model_dump(mode="json")), flatten(settings)
    return {name: value for name, value in recorded.items() if defaults.get(name) != value and not name.startswith(("paths.", "tracking."))}


@task(name="report", cache_policy=NO_CACHE)
def report_task(run_id: str, paths: PathsConfig, tracking: TrackingConfig) -> list[dict[str, str]]:
    """Store charts and tables in a run whose summary is stored, and return the table of policies as rows."""
    from slmsearch.report.page.render import run_charts, write_charts
    from slmsearch.report.tables import results_table, slices_table

    tracker = open_tracker(paths, tracking)
    results = load_results(tracker, find_run(tracker, run_id), paths)
    rows = {name: evaluation.rows for name, evaluation in results.evaluations.items()}
    table = results_table(rows)
    tracker.record_text(run_id, f"{table.to_markdown()}\n\n{slices_table(rows).to_markdown()}\n", "report.md")
    with TemporaryDirectory() as folder:
        write_charts(Path(folder), run_charts(results))
        tracker.record_folder(run_id, Path(folder), "figures")
    return table.to_records()


def make_page(
    names: Sequence[str], paths: PathsConfig, tracking: TrackingConfig, output: Path | None = None, max_episodes: int | None = None
) -> ReportPage:
    """Make one page of runs, write it, and store it in each run; a second call replaces it.

    Args:
        names: runs as `find_run` takes them.
        paths, tracking: name the places of results.
        output: file to write; None takes `<mlruns_dir>/reports/<run>.html`.
        max_episodes: episodes that can be browsed; None takes the page's own limit.

    Raises:
        EvaluationError: a run is not found or has no results.
        ServiceError: MLflow cannot be read or written.
    """
    from slmsearch.report.page.browse import MAX_EPISODES
    from slmsearch.report.page.render import render_page

    tracker = open_tracker(paths, tracking)
    runs = _find_runs(tracker, names)
    results = [load_results(tracker, run, paths) for run in runs]
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = render_page(results, made, MAX_EPISODES if max_episodes is None else max_episodes)
    path = output or Path(paths.mlruns_dir) / "reports" / page_name(runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, text)
    artifact = PAGE if len(runs) == 1 else f"{FOLDER}/beside-{page_name(runs)}"  # a page of its own, which replaces only itself
    for run in runs:
        tracker.record_text(run.id, text, artifact)
    return {
        "page": str(path),
        "bytes": len(text.encode()),
        "artifact": artifact,
        "runs": [{"run_id": result.run_id, "name": result.name, "decision": result.decision} for result in results],
        "warnings": [f"{result.name}: {warning}" for result in results for warning in result.warnings],
    }


def _find_runs(tracker: Tracker, names: Sequence[str]) -> list[RunRecord]:
    return list({run.id: run for run in (find_run(tracker, name) for name in names)}.values())


def make_figure(names: Sequence[str], paths: PathsConfig, tracking: TrackingConfig, figure: Path) -> dict[str, object]:
    """Draw the training curves of runs, named as `find_run` takes them, as a picture.

    Raises:
        ConfigError: the file's suffix is not that of a picture.
        EvaluationError: a run is not found or has not trained.
        ServiceError: MLflow cannot be read.
    """
    from slmsearch.report.figure import check_suffix, draw_curves

    check_suffix(figure)
    tracker = open_tracker(paths, tracking)
    results = [load_results(tracker, run, paths) for run in _find_runs(tracker, names)]
    draw_curves(results, figure)
    runs = [{"run_id": result.run_id, "name": result.name, "steps": len(result.steps)} for result in results]
    return {"figure": str(figure), "bytes": figure.stat().st_size, "runs": runs}


report_page_task = task(name="report-page", cache_policy=NO_CACHE)(make_page)


def page_name(runs: Sequence[RunRecord]) -> str:
    """Name the file of a page: a run's name and id, or the ids of several."""
    if len(runs) > 1:
        return f"{'-'.join(run.id[:8] for run in runs)}.html"
    called = re.sub(r"[^\w.-]+", "-", runs[0].tags.get(FLOW_RUN_NAME, runs[0].stage))
    return f"{called}-{runs[0].id[:8]}.html"
