"""Import of runs from another machine's store: `slmsearch bundle import`.

It copies params, tags, every point of every curve and all artifacts, but neither traces nor registered models. A copied run names its
machine and its run there, so that a second import of the same run adds nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import ViewType

from slmsearch.errors import ServiceError
from tasks.tracking.local_store import SQLITE, make_store
from tasks.tracking.run_registry import PARENT
from tasks.tracking.service import KEY, OWNER, PREFIX, STAGE, as_service
from tasks.tracking.tracker import Tracker

BUNDLE = "bundle"
"""Stage of the run that represents a machine."""
MACHINE, COPIED_FROM = f"{PREFIX}machine", f"{PREFIX}copied_from"
"""Tags with the name of the machine and the run's id there."""
_PAGE = 1000


@as_service
def import_store(tracker: Tracker, facts: Mapping[str, Any], folder: Path, key: str) -> tuple[str, list[str]]:
    """Copy the runs of an unpacked archive of results; return the run that represents the machine, and the ids of the new ones.

    Args:
        tracker: the store to copy to.
        facts: facts of the machine and of the bundle's end there, as `results.json` holds them.
        folder: the unpacked archive.
        key: key of the bundle.

    Raises:
        ServiceError: the store of the archive cannot be read.
    """
    with FileLock(tracker.home / "import.lock"):  # a second import at a time would not find what this one copies
        return _import_store(tracker, facts, folder, key)


def _import_store(tracker: Tracker, facts: Mapping[str, Any], folder: Path, key: str) -> tuple[str, list[str]]:
    machine = str(facts["machine"])
    mine = f"tags.`{MACHINE}` = '{_quoted(machine)}'"
    known = {run.data.tags[COPIED_FROM]: run for run in _all_runs(tracker.client, [tracker.experiment_id], mine)}
    tags = {KEY: f"{key}-{machine}", STAGE: BUNDLE}
    root = known[key].info.run_id if key in known else _make(tracker, f"{BUNDLE} on {machine}", tags, machine, key)
    tracker.record_params(root, {name: value for name, value in facts.items() if isinstance(value, str | int | float | bool)})
    for name in ("results.json", "logs"):
        path = folder / name
        if path.is_dir():
            tracker.client.log_artifacts(root, str(path), name)
        elif path.is_file():
            tracker.client.log_artifact(root, str(path))
    new = []
    copies = {there: str(run.info.run_id) for there, run in known.items()}
    store = folder / "mlruns" / "mlflow.db"
    if store.is_file():
        make_store(f"{SQLITE}{store}")
        other = MlflowClient(tracking_uri=f"{SQLITE}{store}")
        runs = _all_runs(other, [found.experiment_id for found in other.search_experiments()], "")
        for run in sorted(runs, key=lambda run: int(run.info.start_time)):  # parents begin before their children
            there = str(run.info.run_id)
            if there not in known:
                name, parent = str(run.info.run_name), copies.get(run.data.tags.get(PARENT, ""), root)
                copies[there] = _make(tracker, name, {PARENT: parent}, machine, there, int(run.info.start_time))
                new.append(copies[there])
            if there not in known or known[there].info.status != "FINISHED":
                _fill(tracker, other, run, copies[there], folder, machine)
    tracker.client.set_terminated(root, "FINISHED" if facts.get("finished") else "FAILED")
    return root, new


def _fill(tracker: Tracker, other: MlflowClient, run: Any, copy: str, folder: Path, machine: str) -> None:
    """Copy the missing parts of a run from the other machine; its status comes last, so that a killed import is resumed."""
    tags = {name: value for name, value in run.data.tags.items() if name not in (OWNER, PARENT, "mlflow.runName")}
    if run.info.status != "FINISHED" and KEY in tags:  # no run of this machine resumes it
        tags[KEY] = f"{tags[KEY]}-{machine}"
    tracker.set_tags(copy, tags)
    tracker.record_params(copy, run.data.params)
    points: dict[tuple[int, int], dict[str, float]] = {}
    for name in run.data.metrics:
        steps = {point.step for point in tracker.client.get_metric_history(copy, name)}
        for point in other.get_metric_history(run.info.run_id, name):
            if point.step not in steps:
                points.setdefault((point.step, point.timestamp), {})[name] = point.value
    for (step, time_ms), values in sorted(points.items()):
        tracker.record_step(copy, step, values, time_ms / 1000)
    artifacts = folder / "mlruns" / "artifacts" / str(run.info.run_id) / "artifacts"
    if artifacts.is_dir():
        tracker.client.log_artifacts(copy, str(artifacts))
    for output in run.outputs.model_outputs if run.outputs else ():
        files = folder / "mlruns" / "artifacts" / "models" / output.model_id / "artifacts"
        if files.is_dir():
            tracker.client.log_artifacts(copy, str(files), "adapter")
    status = run.info.status if run.info.status in ("FINISHED", "FAILED") else "KILLED"
    tracker.client.set_terminated(copy, status, run.info.end_time or run.info.start_time)


def _make(tracker: Tracker, name: str, tags: Mapping[str, str], machine: str, came_from: str, started_ms: int | None = None) -> str:
    tags = {**tags, MACHINE: machine, COPIED_FROM: came_from}
    return str(tracker.client.create_run(tracker.experiment_id, started_ms, dict(tags), name).info.run_id)


def _all_runs(client: MlflowClient, experiments: list[str], wanted: str) -> list[Any]:
    found, token = list[Any](), None
    while experiments:
        page = client.search_runs(experiments, wanted, ViewType.ACTIVE_ONLY, _PAGE, page_token=token)
        found += page
        if not (token := page.token):
            break
    return found


def _quoted(text: str) -> str:
    if "'" in text:
        raise ServiceError(f"the machine is called {text!r}; a name has no quote")
    return text
