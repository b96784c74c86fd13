"""Where to look at a run: the exact commands and addresses."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.api import find_up
from flows.settings import find_project_root
from slmsearch.config import RunConfig

DEFAULT_UI = "http://127.0.0.1:4200"
DEFAULT_MLFLOW = "http://127.0.0.1:5000"


def where_to_look(config: RunConfig, result: Mapping[str, Any]) -> str:
    """Return how to see a run's results in MLflow and Prefect."""
    from tasks.tracking import open_tracker, tracking_uri

    up = find_up(config)
    uri = tracking_uri(config)
    is_served = uri.startswith(("http://", "https://"))
    base = uri if is_served else up.mlflow if up else DEFAULT_MLFLOW
    lines = [f"MLflow   {base.rstrip('/')}/#/experiments/{open_tracker(config).experiment_id}/runs/{result['mlflow_run_id']}"]
    if not is_served and up is None:
        lines.append(f"         served by `slmsearch up`, or: mlflow server --backend-store-uri {uri} --port 5000")
    if flow_run_id := result.get("flow_run_id"):
        lines.append(f"Prefect  {up.ui if up else DEFAULT_UI}/runs/flow-run/{flow_run_id}{'' if up else '  (served by `slmsearch up`)'}")
    if "before" in result:
        lines.append(f"Summary  {_short(Path(config.paths.mlruns_dir) / 'latest.json')}")
    return "\n".join(lines)


def _short(path: Path) -> str:
    root = find_project_root()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
