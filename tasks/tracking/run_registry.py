"""Records of all runs and model versions in the store, in every experiment, and their deletion.

Reading creates nothing: a missing store reads as an empty one.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import ViewType
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from slmsearch.config import PathsConfig, TrackingConfig
from slmsearch.errors import ModelError
from slmsearch.foreign import cause_of
from tasks.owners import is_orphan, require_reachable
from tasks.tracking.local_store import SQLITE, make_store
from tasks.tracking.service import DELETED, DOCUMENTS, ENDED, FLOW_RUN_NAME, KEY, OWNER, STAGE, as_service, if_there, tracking_uri

PARENT = "mlflow.parentRunId"
PAGE = 1000
TRACED_KEYS = ("eval_key", "train_key")
"""Tags of traces, one of them on each: the evaluation or the training it is a sample of."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Record of a run of this project in the store."""

    id: str
    experiment_id: str
    stage: str
    key: str
    """Content key of its result."""
    parent: str | None
    status: str
    started_s: float
    """Start time in seconds since the epoch."""
    ended_s: float | None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name in MLflow's list, unless a person has renamed it."""
        return name_run(self.stage, self.parent, self.tags)

    @property
    def is_live(self) -> bool:
        """True if it shows as running and its process on this machine has not ended."""
        return self.status == "RUNNING" and not is_orphan(self.tags.get(OWNER, ""))


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """Record of a version of a registered model."""

    name: str
    version: str
    aliases: tuple[str, ...]
    run_id: str
    """Run that made it; empty if none is named."""
    created_s: float
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Label for people: name and version."""
        return f"{self.name}/{self.version}"


def open_run_registry(paths: PathsConfig, tracking: TrackingConfig) -> "RunRegistry | None":
    """Open the store for reading; None if it is a local one that was never written.

    Raises:
        ServiceError: it cannot be reached.
    """
    uri = tracking_uri(paths, tracking)
    if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).is_file():
        return None
    return RunRegistry(uri, Path(paths.mlruns_dir))


class RunRegistry:
    """All runs and model versions of one store, to read and to delete; `Tracker` also writes them."""

    @as_service
    def __init__(self, uri: str, home: Path) -> None:
        """Connect, and make a local store or bring it to this MLflow's schema (`make_store`); processes that share `home` share a lock.

        Raises:
            ServiceError: the store cannot be reached or read, or is a newer MLflow's.
        """
        require_reachable(uri)
        mlflow.set_tracking_uri(uri)
        make_store(uri)
        self.uri, self.home = uri, home
        self.lock = FileLock(home / "promotion.lock")
        self.client = MlflowClient(tracking_uri=uri)

    @as_service
    def runs(self, wanted: str = "") -> list[RunRecord]:
        """Return every run of this project, the newest first; `wanted` is a filter of MLflow's."""
        return [_run_record(run) for run in self._pages(self._experiments(), wanted) if KEY in run.data.tags]

    def running(self) -> list[RunRecord]:
        """Return every run of this project that shows as running, the newest first."""
        return self.runs("attributes.status = 'RUNNING'")

    @as_service
    def end_dead_run(self, run: RunRecord, status: str, reason: str) -> bool:
        """End a run that shows as running, with the reason; return False if it has ended meanwhile, or another process goes on with it."""
        self.home.mkdir(parents=True, exist_ok=True)
        with self.lock:
            found = self.client.get_run(run.id)
            if found.info.status != "RUNNING" or found.data.tags.get(OWNER) != run.tags.get(OWNER):
                return False
            self.client.set_tag(run.id, ENDED, reason)
            self.client.set_terminated(run.id, status=status)
            return True

    def end_orphans(self) -> int:
        """End as KILLED every run whose process on this machine has ended; return their number."""
        orphans = [run for run in self.running() if not run.is_live]
        return sum(self.end_dead_run(run, "KILLED", "its process was gone") for run in orphans)

    def _experiments(self) -> list[str]:
        return [found.experiment_id for found in self.client.search_experiments()]

    def _pages(self, experiments: list[str], wanted: str = "", view: int = ViewType.ACTIVE_ONLY) -> Iterator[Any]:
        """Return the runs of experiments that pass a filter, the newest first."""
        newest = ["attributes.start_time DESC"]
        search = partial(self.client.search_runs, experiments, wanted, view, max_results=PAGE, order_by=newest)
        return _every_page(search) if experiments else iter(())

    @as_service
    def versions(self) -> list[VersionRecord]:
        """Return every version of every registered model, the newest first."""
        aliases: dict[tuple[str, str], list[str]] = {}
        for model in _every_page(partial(self.client.search_registered_models, max_results=PAGE)):
            for alias, version in model.aliases.items():
                aliases.setdefault((model.name, str(version)), []).append(alias)
        found = [_version_record(version, aliases) for version in _every_page(partial(self.client.search_model_versions, max_results=PAGE))]
        return sorted(found, key=lambda version: version.created_s, reverse=True)

    @as_service
    def documents(self, name: str) -> str:
        """Return what `Tracker.set_documents` recorded of a registered model last, empty if nothing."""
        found = if_there(lambda: self.client.get_registered_model(name))
        return str(found.tags.get(DOCUMENTS, "")) if found else ""

    @as_service
    def all_documents(self) -> dict[str, str]:
        """Return the same of all registered models that have it, by name."""
        models = _every_page(partial(self.client.search_registered_models, max_results=PAGE))
        return {str(model.name): str(model.tags[DOCUMENTS]) for model in models if DOCUMENTS in (model.tags or {})}

    @as_service
    def began_s(self, name: str, version: str) -> float:
        """Return when the flow's run that made a version began, in seconds since the epoch; 0 if it is not known."""
        run_id = self.maker_run(name, version)
        found = if_there(lambda: self.client.get_run(run_id)) if run_id else None
        return float(found.info.start_time) / 1000 if found else 0.0

    @as_service
    def maker_run(self, name: str, version: str) -> str | None:
        """Return the flow's run that made a version, None if it is not named."""
        found = if_there(lambda: self.client.get_model_version(name, version))
        made_by = found.run_id if found else None
        return self.find_tag(made_by, PARENT) or made_by if made_by else None

    @as_service
    def metrics(self, run_id: str) -> dict[str, float]:
        """Return the last value of every metric of a run."""
        return dict(self.client.get_run(run_id).data.metrics)

    @as_service
    def find_tag(self, run_id: str, name: str) -> str | None:
        """Return a tag of a run, None if the run or the tag does not exist."""
        run = if_there(lambda: self.client.get_run(run_id))
        return run.data.tags.get(name) if run else None

    @as_service
    def read_json(self, run_id: str, name: str) -> dict[str, Any] | None:
        """Return a JSON artifact of a run, None if it has none of that name that can be read."""
        if name not in {item.path for item in self.client.list_artifacts(run_id)}:
            return None
        try:
            with TemporaryDirectory() as folder:
                value = json.loads(Path(self.client.download_artifacts(run_id, name, folder)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    @as_service
    def fetch_adapter(self, name: str, version: str) -> Path:
        """Return a directory with the registered copy of a version's adapter; fetch it if the store is remote.

        Raises:
            ModelError: its files do not exist.
        """
        try:
            uri = self.client.get_model_version_download_uri(name, version)
            if (here := Path(uri.removeprefix("file://"))).is_dir():  # MLflow would copy what lies on this machine already
                return here
            return Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, tracking_uri=self.uri))
        except (OSError, MlflowException) as error:
            raise ModelError(f"adapter of {name} version {version} cannot be read ({cause_of(error)}); train and promote again") from error

    # Housekeeping

    @as_service
    def delete_run(self, run_id: str) -> None:
        """Mark a run as deleted, as MLflow's UI does, with the time. A run that does not exist is no error."""

        def delete() -> None:
            self.client.set_tag(run_id, DELETED, str(int(time.time())))
            run = self.client.get_run(run_id)
            for model in self.client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'"):
                self.client.delete_logged_model(model.model_id)
            self.client.delete_run(run_id)

        if_there(delete)

    @as_service
    def deleted(self) -> list[tuple[str, float]]:
        """Return the runs deleted by `delete_run` that `purge` can remove, and when; on a server its own `mlflow gc` removes them."""
        experiments = self._experiments() if self.uri.startswith(SQLITE) else []
        runs = self._pages(experiments, f"tags.`{DELETED}` != ''", ViewType.DELETED_ONLY)
        return [(str(run.info.run_id), float(run.data.tags[DELETED])) for run in runs]

    @as_service
    def purge(self, run_id: str) -> None:
        """Remove a deleted run, its models and their artifacts for good; `mlflow gc` would also remove others that a user has deleted."""
        run = self.client.get_run(run_id)
        home = Path(run.info.artifact_uri.removeprefix("file://")).parent
        store = SqlAlchemyStore(self.uri, str(home.parent))
        for output in run.outputs.model_outputs if run.outputs else ():
            model = if_there(partial(store.get_logged_model, output.model_id, allow_deleted=True))
            if model is not None and model.source_run_id == run_id:  # not that of a run which made the same adapter before
                shutil.rmtree(Path(model.artifact_location.removeprefix("file://")).parent, ignore_errors=True)
                store._hard_delete_logged_model(model.model_id)
        if home.name == run_id:
            shutil.rmtree(home, ignore_errors=True)
        store._hard_delete_run(run_id)

    @as_service
    def traces(self, before_s: float) -> list[tuple[str, str, str, float]]:
        """Return this project's traces older than a time that no person has judged; a server may hold those of others.

        Each is the experiment, the trace, the key of the evaluation or training it is a sample of, and the time in seconds.
        """
        older = f"attributes.timestamp_ms < {int(before_s * 1000)}"
        return [
            (
                experiment,
                str(info.trace_id),
                next((info.tags[kind] for kind in TRACED_KEYS if kind in info.tags), ""),
                info.timestamp_ms / 1000,
            )
            for experiment in self._experiments()
            for info in self.find_traces(experiment, older)
            if info.tags.get("source") == "service" or not info.tags.keys().isdisjoint(TRACED_KEYS)
            if not any(one.source.source_type == "HUMAN" for one in info.assessments)
        ]

    def find_traces(self, experiment_id: str, wanted: str) -> Iterator[Any]:
        """Return MLflow's record of each trace of an experiment that passes a filter of its own."""
        search = partial(self.client.search_traces, locations=[experiment_id], filter_string=wanted, max_results=100, include_spans=False)
        return (trace.info for trace in _every_page(search))

    @as_service
    def delete_trace(self, experiment_id: str, trace_id: str) -> None:
        """Delete a trace."""
        self.client.delete_traces(experiment_id, trace_ids=[trace_id])


def _every_page(search: Callable[..., Any]) -> Iterator[Any]:
    token: str | None = None
    while True:
        page = search(page_token=token)
        yield from page
        if not (token := page.token):
            return


def name_run(stage: str, parent: str | None, tags: Mapping[str, str]) -> str:
    """Return a run's name for MLflow: that of a flow also contains its flow run, so that runs can be told apart."""
    return stage if parent else f"{stage} {tags.get(FLOW_RUN_NAME, '')}".rstrip()


def _run_record(run: Any) -> RunRecord:
    info, tags = run.info, dict(run.data.tags)
    ended = info.end_time / 1000 if info.end_time else None
    names = (tags.get(STAGE, str(info.run_name)), tags[KEY], tags.get(PARENT))
    return RunRecord(str(info.run_id), str(info.experiment_id), *names, str(info.status), info.start_time / 1000, ended, tags)


def _version_record(found: Any, aliases: Mapping[tuple[str, str], list[str]]) -> VersionRecord:
    known = tuple(sorted(aliases.get((found.name, str(found.version)), ())))
    made = found.creation_timestamp / 1000
    return VersionRecord(found.name, str(found.version), known, found.run_id or "", made, dict(found.tags))
