"""Draw figures and tables of a run and store them in MLflow."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.config import RunConfig
from slmsearch.evaluate.store import load_rows
from slmsearch.learn.files import STEPS
from slmsearch.learn.reports import read_reports
from slmsearch.report.tables import results_table, slices_table
from tasks.paths import evals_dir, training_dir
from tasks.tracking import open_tracker


@task(name="report", cache_policy=NO_CACHE)
def report_task(run_id: str, evaluations: Mapping[str, str], train_key: str, config: RunConfig) -> list[dict[str, str]]:
    """Store figures and tables in a run and return the table of policies as rows.

    Args:
        run_id: MLflow run.
        evaluations: name -> key, in the order of the tables.
        train_key: training run whose curves are drawn.
        config: run.
    """
    from slmsearch.report.figures import draw_accuracy_by_kind, draw_failure_modes, draw_reward_curve, draw_stop_reasons, write_figures

    rows = {name: load_rows(evals_dir(config) / key) for name, key in evaluations.items()}
    steps = [(report.step, report.metrics) for report in read_reports(training_dir(config, train_key) / STEPS)]
    figures = {
        "reward": draw_reward_curve(steps),
        "accuracy_by_kind": draw_accuracy_by_kind(rows),
        "stop_reasons": draw_stop_reasons(rows),
        "failure_modes": draw_failure_modes(rows),
    }
    tracker, table = open_tracker(config), results_table(rows)
    tracker.record_text(run_id, f"{table.to_markdown()}\n\n{slices_table(rows).to_markdown()}\n", "report.md")
    with TemporaryDirectory() as folder:
        for path in write_figures(Path(folder), figures):
            tracker.record_file(run_id, path, "figures")
    return table.to_records()
