"""What a finished run leaves to look at: tables, charts, the report page. None of it may cost the run what it has achieved.

An error here is logged and named in the summary's `warnings`; the training, the decision and the numbers stand.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from prefect import get_run_logger
from prefect.exceptions import TerminationSignal

from flows.cli.look import mlflow_run_url
from flows.ops.api import find_up
from flows.stages.artifacts import show_evaluations, show_report
from flows.stages.pipeline import Pipeline
from tasks.runs import report_page_task, report_task


def leave_reports(run: Pipeline, summary: dict[str, object]) -> None:
    """Draw charts and tables of a recorded run, make its report page, and link both.

    The summary gets `report` and `warnings`, and is written again.
    """
    warnings = list[str]()
    summary["warnings"] = warnings
    with tolerated("tables and figures", warnings):
        show_evaluations(report_task(run.run_id, run.config))
    with tolerated("report page", warnings):
        made = report_page_task([run.run_id], run.config)
        warnings += made["warnings"]
        summary["report"] = {name: made[name] for name in ("page", "artifact", "bytes")}
        place = mlflow_run_url(run.config, run.tracker.experiment_id, run.run_id, find_up(run.config))
        show_report(f"{place}/artifacts/{made['artifact']}", run.run_id)
    run.tracker.record_json(run.run_id, summary, "summary.json")


@contextmanager
def tolerated(what: str, warnings: list[str]) -> Iterator[None]:
    """Turn an error into a warning that names what is missing; what came of being told to stop is raised."""
    stop = None
    try:
        yield
    except Exception as error:
        stop = find_stop(error)
        if stop is None:
            message = f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:300]}; make it again with `slmsearch report latest`"
            warnings.append(message)
            get_run_logger().warning(message, exc_info=True)
    if stop is not None:
        raise stop


def find_stop(error: BaseException) -> BaseException | None:
    """Find the signal to stop that an error came of; None where it came of none.

    A library in C that is told to stop while it is imported makes an `ImportError` of that.
    """
    while isinstance(error, Exception):
        cause = error.__cause__ or error.__context__
        if cause is None:
            return None
        error = cause
    return error if isinstance(error, TerminationSignal | KeyboardInterrupt) else None
