"""One run of a flow: its MLflow run and those of its stages, its lineage, its seconds.

Prefect knows the MLflow run by a link artifact, MLflow the flow run by tags, and both hold the lineage: data digest -> index key
-> eval key -> train key -> adapter hash -> model version.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta

from prefect.client.orchestration import get_client
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from flows.runtime.api import find_pages, find_up
from flows.runtime.links import mlflow_run_url
from flows.runtime.settings import loggable, name_model, recordable
from flows.runtime.worker_secrets import settle
from flows.stages.artifacts import show_lineage, show_mlflow_run
from flows.stages.preflight import preflight
from slmsearch.config import RunConfig
from slmsearch.corpus.store import read_manifest
from slmsearch.environments.registry import environment_of
from slmsearch.errors import ServiceError
from slmsearch.keys import content_key
from slmsearch.report.tables import Trust
from tasks.child import keeping_child
from tasks.environment import describe_environment
from tasks.progress import Progress
from tasks.reconcile import label_flow_run
from tasks.tracking import FLOW_RUN, FLOW_RUN_NAME, PREFIX, Tracker, describe_stop, open_tracker

DAY = timedelta(days=1)
DEFAULTS = RunConfig()
"""Parameters of a flow run without any."""
USED_S = f"{PREFIX}used_s"
"""Tag: the seconds that all attempts of a run have used."""


@dataclass
class Pipeline:
    """State that the stages of one flow run share."""

    config: RunConfig
    key: str
    """Name of the run: same flow, settings and data give the same key."""
    tracker: Tracker
    run_id: str
    """MLflow parent run."""
    began: float
    """Value of `time.monotonic` at which the run began; a resumed one began earlier by the time that its killed attempts used."""
    lineage: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by stage."""
    trust: dict[str, Trust] = field(default_factory=dict)
    """Results on twins and repeated episodes, by policy, for those policies that played them."""

    @contextmanager
    def stage(self, name: str, key: str | None = None) -> Iterator[str]:
        """Hold a child run open for a stage and measure its time; its key is that of its result, or the pipeline's if it has none."""
        started = time.monotonic()
        try:
            stage = self.tracker.run(name, key or self.key, self.run_id, _flow_tags())
            with stage as run_id, Progress(name, on_tick=self.note_used):
                yield run_id
                self.tracker.set_tags(run_id, self._lineage_tags())
            self.note_used()
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - started, 2)

    def note_used(self) -> None:
        """Record the time that the run has used, for the process that resumes it if this one is killed."""
        with suppress(ServiceError):
            self.tracker.set_tags(self.run_id, {USED_S: f"{time.monotonic() - self.began:.1f}"})

    def note_keys(self, **keys: str) -> None:
        """Add keys to the lineage."""
        self.lineage |= keys

    def _lineage_tags(self) -> dict[str, str]:
        return {f"slmsearch.{name}": value for name, value in self.lineage.items()}

    @property
    def ids(self) -> dict[str, str]:
        """Return the ids of this run in both trackers."""
        return {"mlflow_run_id": self.run_id, "mlflow_experiment_id": self.tracker.experiment_id, "flow_run_id": str(flow_run.id)}

    def record_input(self, run_id: str, digest: str, context: str) -> None:
        """Record a corpus as a dataset input of a run, with its digest and counts."""
        source = environment_of(self.config).data(self.config).describe()
        manifest = asdict(read_manifest(self.config.paths.corpora / digest))
        profile = json.dumps({name: manifest[name] for name in ("pages", "questions", "pages_digest", "questions_digest")})
        self.tracker.record_dataset(run_id, "corpus", digest, source, profile, context)

    def describe(self, told: str, details: str = "", **files: str) -> None:
        """Show what happened first on the run's page in MLflow: a line, links to files and the flow run, then the details.

        Args:
            told: Markdown of one line, with untrusted text escaped; MLflow folds what does not fit into five.
            details: further Markdown.
            files: paths among the run's artifacts, by the words of their links.
        """
        place = f"#/experiments/{self.tracker.experiment_id}/runs/{self.run_id}/artifacts"
        links = [f"[{name}]({place}/{path})" for name, path in files.items()]
        if flow_run.id and (pages := find_pages(self.config.paths)):
            links.append(f"[flow run {flow_run.name}]({pages}/runs/flow-run/{flow_run.id})")
        self.tracker.describe_run(self.run_id, "\n\n".join(part for part in (told, ", ".join(links), details) if part))

    def finish(self) -> None:
        """Write the lineage to both trackers."""
        self.note_used()
        self.tracker.set_tags(self.run_id, self._lineage_tags())
        self.tracker.record_json(self.run_id, self.lineage, "lineage.json")
        show_lineage(self.lineage)


@contextmanager
def open_pipeline(name: str, config: RunConfig, trains: bool = False) -> Iterator[Pipeline]:
    """Start a run of a flow: resolve paths, check what can be checked, open its MLflow run; end it with its true state.

    Raises:
        ConfigError, ModelError, ServiceError: the run lacks something it needs.
    """
    began = time.monotonic()
    config = settle(name_model(config), () if name == "nightly" else ("nightly.",))
    own_flow_run()
    preflight(config, trains)
    data = environment_of(config).data(config)
    parts = data.key_parts()
    source = None if parts is None else content_key(**parts)
    settings = {leaf: value for leaf, value in loggable(config).items() if not leaf.startswith(data.unused)}
    deciding = {leaf: value for leaf, value in settings.items() if not leaf.startswith(("paths.", "tracking.", "nightly."))}
    key = content_key(flow=name, source=source, config=deciding)
    tracker = open_tracker(config.paths, config.tracking)
    tracker.end_orphans()
    with tracker.run(name, key, tags=_flow_tags()) as run_id, keeping_child():
        tracker.record_params(run_id, settings)
        tracker.record_json(run_id, recorded := recordable(config), "config.json")
        tracker.record_json(run_id, describe_environment(), "environment.json")
        show_mlflow_run(mlflow_run_url(config.tracking, tracker.experiment_id, run_id, find_up(config.paths)), run_id)
        pipeline = Pipeline(config, key, tracker, run_id, began - float(tracker.find_tag(run_id, USED_S) or 0.0))
        pipeline.note_keys(source_key=source or "", config_hash=content_key(config=recorded))
        try:
            yield pipeline
        except Exception:
            pipeline.began = time.monotonic()  # an error is no kill: the next attempt has the whole time
            raise
        except BaseException as error:
            get_run_logger().warning("%s", describe_stop(error))
            raise
        finally:
            pipeline.finish()


def leave_out_late() -> dict[str, object] | None:
    """Return the result of a daily flow run that begins a day late, and so has a later one after it; None if it begins in time.

    After days off, a worker takes all the runs that Prefect had scheduled ahead.
    """
    scheduled = flow_run.scheduled_start_time if flow_run.id else None
    if scheduled is None or datetime.now(UTC) - scheduled < DAY:
        return None
    message = f"left out: it was to begin on {scheduled:%d %B at %H:%M} UTC, and a later one is due"
    get_run_logger().warning("%s", message)
    return {"message": message, "state": "left out"}


def own_flow_run() -> None:
    """Record in Prefect which process runs this flow run, so that its end is noticed in every case."""
    if flow_run.id is not None:
        with get_client(sync_client=True) as client:
            label_flow_run(client, str(flow_run.id))


def _flow_tags() -> dict[str, str]:
    if flow_run.id is None:
        return {}
    tags = {FLOW_RUN: flow_run.id, FLOW_RUN_NAME: flow_run.name, "prefect.flow_run_url": flow_run.ui_url}
    return {name: str(value) for name, value in tags.items() if value}
