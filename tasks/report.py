"""Draw charts and tables of a run and store them in MLflow."""

from pathlib import Path
from tempfile import TemporaryDirectory

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.config import RunConfig
from slmsearch.report.tables import results_table, slices_table
from tasks.runs import find_run, load_results
from tasks.tracking import open_tracker


@task(name="report", cache_policy=NO_CACHE)
def report_task(run_id: str, config: RunConfig) -> list[dict[str, str]]:
    """Store charts and tables in a run whose summary is stored, and return the table of policies as rows."""
    from slmsearch.report.figures import run_charts, write_charts

    results = load_results(find_run(run_id, config), config)
    rows = {name: evaluation.rows for name, evaluation in results.evaluations.items()}
    tracker, table = open_tracker(config), results_table(rows)
    tracker.record_text(run_id, f"{table.to_markdown()}\n\n{slices_table(rows).to_markdown()}\n", "report.md")
    with TemporaryDirectory() as folder:
        for path in write_charts(Path(folder), run_charts(results)):
            tracker.record_file(run_id, path, "figures")
    return table.to_records()
