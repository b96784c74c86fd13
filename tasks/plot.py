"""The figures of a run as files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slmsearch.config import RunConfig
from tasks.page import page_name
from tasks.runs import find_run, load_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from slmsearch.report.page import RunResults


def plot_run(name: str, config: RunConfig, output: Path | None = None) -> dict[str, Any]:
    """Write the figures of a run as PNG and SVG; the same results give the same bytes.

    Args:
        name: run as `find_run` takes it.
        config: where results lie.
        output: folder; None takes `<mlruns_dir>/plots/<run>`.

    Raises:
        EvaluationError: the run is not found or has left nothing to show.
        ServiceError: MLflow cannot be read.
    """
    from slmsearch.report.figures import write_figures

    run = find_run(name, config)
    results = load_results(run, config)
    folder = output or Path(config.paths.mlruns_dir) / "plots" / page_name([run]).removesuffix(".html")
    paths = write_figures(folder, run_figures(results), formats=("png", "svg"))
    return {"run_id": run.run_id, "folder": str(folder), "files": [str(path) for path in paths], "warnings": list(results.warnings)}


def run_figures(results: "RunResults") -> "Mapping[str, Figure]":
    """Draw what a run has: curves where it trained, the rest where policies were evaluated."""
    from slmsearch.report import figures

    drawn: dict[str, Figure] = {}
    if results.steps:
        steps = [(report.step, report.metrics) for report in results.steps]
        drawn |= {"reward": figures.draw_reward_curve(steps), "stop_reasons_over_training": figures.draw_stops_over_training(steps)}
        drawn["losses"] = figures.draw_losses(steps)
    if results.evaluations:
        rows = {name: evaluation.rows for name, evaluation in results.evaluations.items()}
        drawn |= {
            "accuracy_by_kind": figures.draw_accuracy_by_kind(rows, results.alpha),
            "stop_reasons": figures.draw_stop_reasons(rows),
            "failure_modes": figures.draw_failure_modes(rows),
        }
    return drawn
