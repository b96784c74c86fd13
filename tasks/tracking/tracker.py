"""Writes of runs to MLflow, and reads by which runs resume.

Every call names its run: MLflow's fluent calls open a stray run if none is active, and its stack of active runs is per thread. Runs carry
the content key of their result (`slmsearch.key`) and the process that owns them, so that a re-run resumes the run of a killed process.
`tasks/traces.py` defines the traces of episodes.
"""

import functools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.entities.logged_model_input import LoggedModelInput
from mlflow.exceptions import MlflowException
from mlflow.prompt.constants import PROMPT_EXPERIMENT_IDS_TAG_KEY
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE
from mlflow.utils.validation import MAX_TAG_VAL_LENGTH

from slmsearch.config import PathsConfig, TrackingConfig
from slmsearch.errors import ServiceError
from slmsearch.foreign import cause_of, encodable
from tasks.owners import is_orphan, owner_tag
from tasks.traces import Assessment, Span
from tasks.tracking.run_registry import PARENT, name_run
from tasks.tracking.service import ENDED, KEY, OWNER, STAGE, as_service, tracking_uri
from tasks.tracking.trained_models import TrainedModels
from tasks.tracking.whole_traces import ASSESSMENT_ID, to_mlflow, write_traces

MAX_PARAM_CHARS = 6000
MAX_TAG_CHARS = 5000
PARAMS_PER_BATCH = 100
METRICS_PER_BATCH = 1000
TRACES_PER_LINK = 100
TRACE_IDENTITY = ("question_id", "step", "sample")
"""Tags that tell the traces of one evaluation or training apart; those of an evaluation have the first."""
TABLES = "mlflow.loggedArtifacts"
"""Tag of a run that names its tables to MLflow's UI."""


@functools.lru_cache(maxsize=8)
def open_tracker(paths: PathsConfig, tracking: TrackingConfig) -> "Tracker":
    """Open the store of runs; opened once per process and address.

    Raises:
        ServiceError: it cannot be reached or read.
    """
    return Tracker(tracking_uri(paths, tracking), tracking.experiment, Path(paths.mlruns_dir))


class Tracker(TrainedModels):
    """One experiment of one MLflow store."""

    @as_service
    def __init__(self, uri: str, experiment: str, mlruns_dir: Path) -> None:
        """Connect, and create the experiment if it is missing.

        Raises:
            ServiceError: the store cannot be reached or read.
        """
        mlruns_dir.mkdir(parents=True, exist_ok=True)
        super().__init__(uri, mlruns_dir)
        location = str(mlruns_dir.resolve() / "artifacts") if uri.startswith("sqlite") else None
        self.experiment_id = self._find_experiment(experiment, location)

    def _find_experiment(self, name: str, location: str | None) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return self.client.create_experiment(name, artifact_location=location)
            except MlflowException:  # another process was faster
                found = self.client.get_experiment_by_name(name)
        if found is None or found.lifecycle_stage != "active":
            raise ServiceError(f"experiment {name!r} was deleted in MLflow; restore it or choose another with tracking.experiment")
        return str(found.experiment_id)

    # Runs

    @as_service
    def start_run(self, stage: str, key: str, parent: str | None = None, tags: Mapping[str, str] | None = None) -> str:
        """Start a run of a stage, or resume the unfinished one of the same stage and content key."""
        wanted = {**(tags or {}), STAGE: stage, KEY: key, OWNER: owner_tag()}
        if parent:
            wanted[PARENT] = parent
        name = name_run(stage, parent, wanted)
        with self.lock:  # two runs of the same at a time must not both go on with it
            unfinished = self._unfinished(stage, key)
            if unfinished is None:
                return str(self.client.create_run(self.experiment_id, run_name=name, tags=wanted).info.run_id)
            self.client.update_run(unfinished, status="RUNNING", name=name)
            self.set_tags(unfinished, wanted)
            return unfinished

    def _unfinished(self, stage: str, key: str) -> str | None:
        mine = f"tags.`{KEY}` = '{key}' and tags.`{STAGE}` = '{stage}'"
        for run in self.client.search_runs([self.experiment_id], mine, order_by=["attributes.start_time DESC"], max_results=20):
            if run.info.status in ("FAILED", "KILLED") or (run.info.status == "RUNNING" and is_orphan(run.data.tags.get(OWNER, ""))):
                return str(run.info.run_id)
        return None

    @as_service
    def end_run(self, run_id: str, status: str, reason: str = "") -> None:
        """End a run as FINISHED, FAILED or KILLED, with the reason if it did not finish."""
        if reason:
            self.set_tags(run_id, {ENDED: reason})
        elif ENDED in self.client.get_run(run_id).data.tags:  # why an earlier attempt ended
            self.client.delete_tag(run_id, ENDED)
        self.client.set_terminated(run_id, status=status)

    @contextmanager
    def run(self, stage: str, key: str, parent: str | None = None, tags: Mapping[str, str] | None = None) -> Iterator[str]:
        """Hold a run open: FINISHED at the end, FAILED on an error, KILLED when the process is terminated."""
        run_id = self.start_run(stage, key, parent, tags)
        try:
            yield run_id
        except Exception as error:
            self.end_run(run_id, "FAILED", f"{type(error).__name__}: {cause_of(error)}")
            raise
        except BaseException as error:  # SIGTERM and cancellation reach a flow as these
            self.end_run(run_id, "KILLED", describe_stop(error))
            raise
        self.end_run(run_id, "FINISHED")

    # What a run records

    @as_service
    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags, the last value wins."""
        self.client.log_batch(run_id, tags=[RunTag(name, str(value)[:MAX_TAG_CHARS]) for name, value in tags.items()])

    @as_service
    def describe_run(self, run_id: str, markdown: str) -> None:
        """Set the description that MLflow shows first on a run's page, cut to what a tag holds."""
        self.client.set_tag(run_id, MLFLOW_RUN_NOTE, encodable(markdown)[:MAX_TAG_VAL_LENGTH])

    @as_service
    def record_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        """Record params that the run does not have yet; MLflow does not let them change."""
        known = self.client.get_run(run_id).data.params
        fresh = [Param(name, str(value)[:MAX_PARAM_CHARS]) for name, value in params.items() if name not in known]
        for i in range(0, len(fresh), PARAMS_PER_BATCH):
            self.client.log_batch(run_id, params=fresh[i : i + PARAMS_PER_BATCH])

    @as_service
    def record_json(self, run_id: str, value: Mapping[str, Any], name: str) -> None:
        """Store a JSON artifact; replace one of that name."""
        self.client.log_dict(run_id, dict(value), name)

    @as_service
    def record_text(self, run_id: str, text: str, name: str) -> None:
        """Store a text artifact; replace one of that name."""
        self.client.log_text(run_id, text, name)

    @as_service
    def record_folder(self, run_id: str, folder: Path, name: str) -> None:
        """Store the files of a directory under a folder of the run's artifacts."""
        self.client.log_artifacts(run_id, str(folder), name)

    @as_service
    def record_dataset(self, run_id: str, name: str, digest: str, source: str, profile: str, context: str) -> None:
        """Record a data set as input of the run; a repetition changes nothing."""
        dataset = Dataset(name=name, digest=digest, source_type="local", source=json.dumps({"uri": source}), profile=profile)
        self.link_dataset(run_id, dataset, context)

    def link_dataset(self, run_id: str, dataset: Dataset, context: str) -> None:
        """Link a run to a data set as what it was used for, such as "evaluation"; MLflow keeps one of each name and digest."""
        inputs = [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])]
        try:
            self.client.log_inputs(run_id, datasets=inputs)
        except MlflowException:  # it looks for the data set before it adds it, and another process was faster: now it is there
            self.client.log_inputs(run_id, datasets=inputs)

    @as_service
    def record_prompt(self, run_id: str, name: str, messages: Sequence[Mapping[str, str]]) -> str:
        """Link a run to the version of a prompt that has these messages, a new one if none of the newest 100 has; return it."""
        template = [{part: encodable(message[part]) for part in ("role", "content")} for message in messages]
        with self.lock:  # two runs that begin together must not both find it new
            # register_prompt and load_prompt would have a thread tag the prompt with another experiment, while this tags it
            prompt = self.client.get_prompt(name) or self.client.create_prompt(name)
            same = [known for known in self.client.search_prompt_versions(name) if known.template == template]
            version = same[0] if same else self.client.create_prompt_version(name, template)
            self.client.link_prompt_version_to_run(run_id, version)
            shown = prompt.tags.get(PROMPT_EXPERIMENT_IDS_TAG_KEY, ",")
            if f",{self.experiment_id}," not in shown:  # MLflow's page of an experiment lists those that name it
                self.client.set_prompt_tag(name, PROMPT_EXPERIMENT_IDS_TAG_KEY, f"{shown}{self.experiment_id},")
        return str(version.version)

    @as_service
    def record_metrics(self, run_id: str, metrics: Mapping[str, float], model: str | None = None) -> None:
        """Record metrics that the run does not have yet, and the model that has them, as an input of the run."""
        known = self.client.get_run(run_id).data.metrics
        self.record_step(run_id, 0, {name: value for name, value in metrics.items() if name not in known}, model=model)
        if model:
            self.client.log_inputs(run_id, models=[LoggedModelInput(model)])

    @as_service
    def record_step(
        self, run_id: str, step: int, metrics: Mapping[str, float], time_s: float | None = None, model: str | None = None
    ) -> None:
        """Record a point of curves in one write; see `last_step` for resuming a curve.

        Args:
            run_id: run that they belong to.
            step: step of the training, from 1.
            metrics: values by name.
            time_s: time of the step, in seconds since the epoch; None: now.
            model: id of the model that has them as its metrics, too; see `record_checkpoint` and `find_adapter`.
        """
        at_ms = int((time_s or time.time()) * 1000)
        points = [Metric(name, float(value), at_ms, step, model) for name, value in metrics.items()]
        for i in range(0, len(points), METRICS_PER_BATCH):
            self.client.log_batch(run_id, metrics=points[i : i + METRICS_PER_BATCH])

    @as_service
    def last_step(self, run_id: str) -> int:
        """Return the highest step that any metric of the run has, 0 if it has none."""
        names = self.client.get_run(run_id).data.metrics
        return max((point.step for name in names for point in self.client.get_metric_history(run_id, name)), default=0)

    @as_service
    def record_table(self, run_id: str, rows: Sequence[Mapping[str, Any]], name: str) -> None:
        """Store rows as a table that MLflow's UI shows; an existing table stays, since MLflow would append to it."""
        folder, told = name.rpartition("/")[0], json.loads(self.client.get_run(run_id).data.tags.get(TABLES, "[]"))
        if not rows or any(table["path"] == name for table in told):
            return
        if name in {item.path for item in self.client.list_artifacts(run_id, folder)}:  # a kill came before the tag for MLflow's UI was set
            self.client.set_tag(run_id, TABLES, json.dumps([*told, {"path": name, "type": "table"}]))
            return
        columns = {column: [_cell(row[column]) for row in rows] for column in rows[0]}
        self.client.log_table(run_id, columns, name)

    @as_service
    def record_traces(self, run_id: str, key: str, traces: Sequence[tuple[Span, Mapping[str, str]]], kind: str = "eval_key") -> None:
        """Record traces, root span and tags of each, and link them to a run; traces recorded before under the same key are only linked.

        The key is that of the evaluation or training they are a sample of; `kind` is the tag that holds it, one of `TRACED_KEYS`. The tags
        in `TRACE_IDENTITY` tell the traces of a key apart.
        """
        with self.lock:  # two runs of the same at a time must not both write them
            stored = self.find_traces(self.experiment_id, f"tags.{kind} = '{key}'")
            known = {_identity(info.tags): info.trace_id for info in stored}
            trace_ids = [known[_identity(tags)] for _, tags in traces if _identity(tags) in known]
            new = [(root, {**tags, kind: key}) for root, tags in traces if _identity(tags) not in known]
            trace_ids += write_traces(self.uri, self.experiment_id, new)
        for i in range(0, len(trace_ids), TRACES_PER_LINK):
            self.client.link_traces_to_run(trace_ids[i : i + TRACES_PER_LINK], run_id)

    @as_service
    def record_trace(self, root: Span, tags: Mapping[str, str]) -> None:
        """Record the trace of an episode that just ended and belongs to no run."""
        write_traces(self.uri, self.experiment_id, [(root, tags)])

    @as_service
    def assess(self, question_id: str, assessments: Sequence[Assessment]) -> bool:
        """Add to the trace of a question those of some assessments that it lacks, by their ids; return whether there is such a trace."""
        found = next(iter(self.find_traces(self.experiment_id, f"tags.question_id = '{question_id}'")), None)
        if found is None:
            return False
        known = {(one.name, (one.metadata or {}).get(ASSESSMENT_ID)) for one in found.assessments}
        for one in assessments:
            if (one.name, one.id) not in known:
                mlflow.log_assessment(found.trace_id, to_mlflow(one))
        return True


def describe_stop(error: BaseException) -> str:
    """Describe in one line why a run was terminated, with the notes on its way: where it can be resumed."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"told to stop ({type(error).__name__}){': ' if notes else ''}{notes}"


def _identity(tags: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(tags.get(name, "") for name in TRACE_IDENTITY)


def _cell(value: Any) -> Any:
    return encodable(value) if isinstance(value, str) else value
