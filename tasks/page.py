"""The report page of runs, made from stored results, kept in `mlruns/reports` and in MLflow; its charts and tables as files."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.artifacts.files import replace_text
from slmsearch.config import RunConfig
from tasks.runs import find_run, load_results
from tasks.tracking import RunRecord, open_tracker

FOLDER = "report"
"""Of the run's artifacts."""
PAGE = "report.html"
_ODD = re.compile(r"[^\w.-]+")


@task(name="report-page", cache_policy=NO_CACHE)
def report_page_task(run_id: str, config: RunConfig) -> dict[str, Any]:
    """Make the page of a run and keep it; see `make_page`."""
    return make_page([run_id], config)


@task(name="report", cache_policy=NO_CACHE)
def report_task(run_id: str, config: RunConfig) -> list[dict[str, str]]:
    """Store charts and tables in a run whose summary is stored, and return the table of policies as rows."""
    from slmsearch.report.figures import run_charts, write_charts
    from slmsearch.report.tables import results_table, slices_table

    results = load_results(find_run(run_id, config), config)
    rows = {name: evaluation.rows for name, evaluation in results.evaluations.items()}
    tracker, table = open_tracker(config), results_table(rows)
    tracker.record_text(run_id, f"{table.to_markdown()}\n\n{slices_table(rows).to_markdown()}\n", "report.md")
    with TemporaryDirectory() as folder:
        for path in write_charts(Path(folder), run_charts(results)):
            tracker.record_file(run_id, path, "figures")
    return table.to_records()


def make_page(names: Sequence[str], config: RunConfig, output: Path | None = None, max_episodes: int | None = None) -> dict[str, Any]:
    """Make one page of runs, write it, and store it in each run; making it again replaces it.

    Args:
        names: runs as `find_run` takes them.
        config: where results lie.
        output: file to write; None takes `<mlruns_dir>/reports/<run>.html`.
        max_episodes: episodes that can be browsed; None takes the page's own limit.

    Returns:
        `page`, `bytes`, `artifact` (its path in each run), `runs` and `warnings`.

    Raises:
        EvaluationError: a run is not found or has left nothing to show.
        ServiceError: MLflow cannot be read or written.
    """
    from slmsearch.report.page import render_page
    from slmsearch.report.page.browse import MAX_EPISODES

    runs = list({run.id: run for run in (find_run(name, config) for name in names)}.values())
    results = [load_results(run, config) for run in runs]
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = render_page(results, made, MAX_EPISODES if max_episodes is None else max_episodes)
    path = output or Path(config.paths.mlruns_dir) / "reports" / page_name(runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, text)
    artifact = store_page(runs, text, config)
    return {
        "page": str(path),
        "bytes": len(text.encode()),
        "artifact": artifact,
        "runs": [{"run_id": result.run_id, "name": result.name, "decision": result.decision} for result in results],
        "warnings": [f"{result.name}: {warning}" for result in results for warning in result.warnings],
    }


def plot_run(name: str, config: RunConfig, output: Path | None = None) -> dict[str, Any]:
    """Write the charts of a run's page as SVG; the same results give the same bytes.

    Args:
        name: run as `find_run` takes it.
        config: where results lie.
        output: folder; None takes `<mlruns_dir>/plots/<run>`.

    Raises:
        EvaluationError: the run is not found or has left nothing to show.
        ServiceError: MLflow cannot be read.
    """
    from slmsearch.report.figures import run_charts, write_charts

    run = find_run(name, config)
    results = load_results(run, config)
    folder = output or Path(config.paths.mlruns_dir) / "plots" / page_name([run]).removesuffix(".html")
    paths = write_charts(folder, run_charts(results))
    return {"run_id": run.id, "folder": str(folder), "files": [str(path) for path in paths], "warnings": list(results.warnings)}


def page_name(runs: Sequence[RunRecord]) -> str:
    """Name the file of a page: a run's name and id, or the ids of several."""
    if len(runs) > 1:
        return f"{'-'.join(run.id[:8] for run in runs)}.html"
    called = _ODD.sub("-", runs[0].tags.get("prefect.flow_run_name", runs[0].stage))
    return f"{called}-{runs[0].id[:8]}.html"


def store_page(runs: Sequence[RunRecord], text: str, config: RunConfig) -> str:
    """Store a page in each of its runs under a name of its own, so that it replaces only itself; return its path there."""
    name = PAGE if len(runs) == 1 else f"beside-{page_name(runs)}"
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text, encoding="utf-8")
        for run in runs:
            open_tracker(config).record_file(run.id, Path(folder) / name, FOLDER)
    return f"{FOLDER}/{name}"
