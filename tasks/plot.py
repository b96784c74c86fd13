"""The charts of a run as files."""

from pathlib import Path
from typing import Any

from slmsearch.config import RunConfig
from tasks.page import page_name
from tasks.runs import find_run, load_results


def plot_run(name: str, config: RunConfig, output: Path | None = None) -> dict[str, Any]:
    """Write the charts of a run as SVG; the same results give the same bytes.

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
    return {"run_id": run.run_id, "folder": str(folder), "files": [str(path) for path in paths], "warnings": list(results.warnings)}
