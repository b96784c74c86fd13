"""Commands and addresses that show a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.runtime.api import UpRecord, find_pages, find_up
from slmsearch.config import PathsConfig, TrackingConfig
from slmsearch.foreign import without_credentials


def latest_name(environment: str) -> str:
    """Return the name of the file in `paths.mlruns_dir` with the summary of an environment's last finished training."""
    return "latest.json" if environment == "searcher" else f"latest-{environment}.json"


def where_to_look(paths: PathsConfig, tracking: TrackingConfig, result: Mapping[str, Any]) -> str:
    """Return how to see a run's results in MLflow and Prefect."""
    up = find_up(paths)
    lines = [f"MLflow   {mlflow_run_url(tracking, result['mlflow_experiment_id'], result['mlflow_run_id'], up)}"]
    if up is None and not _served_store(tracking):
        store = without_credentials(tracking.uri or "") or f"sqlite:///{paths.mlruns_dir}/mlflow.db"
        lines.append(f"         served by `slmsearch up`, or: mlflow server --backend-store-uri {store} --port 5000")
    pages = find_pages(paths)
    lines.append(f"Prefect  {pages or 'http://127.0.0.1:4200'}/runs/flow-run/{result['flow_run_id']}")
    if pages is None:
        lines.append("         served by `slmsearch up`")
    if page := result.get("report", {}).get("page"):
        lines.append(f"Report   {short_path(Path(page))}")
    for warning in result.get("warnings", ()):
        lines.append(f"warning  {warning}")
    if "before" in result:
        latest = Path(paths.mlruns_dir) / latest_name(result.get("environment", "searcher"))
        lines.append(f"Summary  {short_path(latest)}")
    return "\n".join(lines)


def mlflow_run_url(tracking: TrackingConfig, experiment_id: str, run_id: str, up: UpRecord | None) -> str:
    """Return the address of a run's page: on the configured server, or on the one that `slmsearch up` starts."""
    base = _served_store(tracking) or (up.mlflow if up else "http://127.0.0.1:5000")
    return f"{base.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def _served_store(tracking: TrackingConfig) -> str | None:
    uri = tracking.uri
    return without_credentials(uri) if uri and uri.startswith(("http://", "https://")) else None


def short_path(path: Path) -> str:
    """Return a path relative to the current folder if it lies in it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
