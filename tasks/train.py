"""Training tasks: GRPO in a process of its own, and the SFT control."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NotRequired, TypedDict

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from slmsearch.artifacts.files import read_json
from slmsearch.config import RunConfig
from slmsearch.training.files import ADAPTER, JUDGE, PREFLIGHT, TREES
from slmsearch.training.job import TrainJob, make_job
from slmsearch.training.launch import train
from slmsearch.training.phase_timer import CardUse
from slmsearch.training.reports import HELD_OUT, StepReport
from tasks.child import end_child, in_child
from tasks.live import TrainingProgress
from tasks.progress import Progress
from tasks.record import name_judge, record_rollouts
from tasks.tracking import Tracker, open_tracker

CURVES = {"loss": "loss", "grad_norm": "optim/grad_norm", "learning_rate": "optim/learning_rate"}
CURVES |= {name: name for name in ("held_out/correct", "held_out/pass_at_k")}
"""Names in the logs of supervised training -> names of this project."""


class Trained(TypedDict):
    """Result of GRPO."""

    adapter: str
    """Directory of the adapter."""
    hash: str
    steps: int
    seconds: float
    spent: dict[str, float]
    """Seconds by phase."""
    card: NotRequired[dict[str, CardUse]]
    """Use of a CUDA card by phase, if there was one."""
    version: NotRequired[str]
    """Registered version; absent before the registration."""
    output: NotRequired[str]
    """Directory of the run, if the environment arranges one."""


class Control(TypedDict):
    """Result of supervised training."""

    model: str
    """Directory of the model."""
    steps: int
    seconds: float


@task(name="train", cache_policy=NO_CACHE)
def train_task(digest: str, index_key: str, run_id: str, config: RunConfig) -> Trained:
    """Train with GRPO, or look the finished training up, writing one point per step and metric, and some episodes, into an MLflow run.

    Call it directly, never `.submit()` it: it handles termination signals, which only the main thread can.
    """
    tracker, job = open_tracker(config.paths, config.tracking), make_job(config, digest, index_key)
    episodes = config.train.questions_per_step * config.train.group_size
    with TrainingProgress(config.train.steps, episodes) as progress:

        def on_step(report: StepReport) -> None:
            record_rollouts(tracker, run_id, job.train_key, report, name_judge(config.judge))
            checkpoint = tracker.record_checkpoint(run_id, report.step) if HELD_OUT in report.metrics else None
            tracker.record_step(run_id, report.step, report.metrics, report.time, checkpoint)
            progress.take(report)
            if (collapse := report.collapse) is not None:
                tracker.set_tags(run_id, {f"slmsearch.collapse.{report.step}": collapse.describe()})
                get_run_logger().warning("step %d: %s", report.step, collapse.describe())
                resource = {"prefect.resource.id": f"slmsearch.training.{job.train_key}", "prefect.resource.name": "training"}
                emit_event("slmsearch.train.collapsed", resource=resource, payload={"step": report.step, **asdict(collapse)})

        end_child()
        manifest = train(job, on_step, after_step=tracker.last_step(run_id))
    if (checks := job.directory / PREFLIGHT).exists():
        tracker.record_json(run_id, {"checks": json.loads(checks.read_text(encoding="utf-8"))}, "preflight.json")
    if trees := read_json(job.directory / TREES):
        tracker.record_json(run_id, trees, TREES)
    if state := read_json(job.directory / JUDGE):
        tracker.record_json(run_id, state, "judge.json")
        tracker.set_tags(run_id, {"slmsearch.judge": state["found"]})
    trained: Trained = {
        "adapter": str(job.directory / ADAPTER),
        "hash": manifest["adapter_hash"],
        "steps": manifest["steps"],
        "seconds": manifest["seconds"],
        "spent": manifest["spent"],
    }
    if "card" in manifest:
        trained["card"] = manifest["card"]
    return trained


@task(name="train-sft-control", cache_policy=NO_CACHE)
def train_control_task(key: str, seconds: float, digest: str, run_id: str, config: RunConfig) -> Control:
    """Continue supervised training from the policy's model, or look the control of a content key up; curves go to an MLflow run.

    `seconds` is the time of the training that it is compared with.
    """
    out = config.paths.training / f"control-{key}"
    with Progress("SFT control", "steps") as progress:
        told = {"on_log": _recording(open_tracker(config.paths, config.tracking), run_id), "on_phase": progress.phase}
        facts: Control = in_child("slmsearch.training.teach:train_control", config, out, seconds, **told, digest=digest)
    return {**facts, "model": str(out)}


@task(name="train-sft", cache_policy=NO_CACHE)
def train_start_task(key: str, sources: Sequence[str], digest: str, run_id: str, config: RunConfig) -> Control:
    """Train the supervised start of a run on examples of some sources, or look it up by its content key; curves go to an MLflow run."""
    out = config.paths.training / f"sft-{key}"
    with Progress("SFT", "steps") as progress:
        told = {"on_log": _recording(open_tracker(config.paths, config.tracking), run_id), "on_phase": progress.phase}
        facts: Control = in_child("slmsearch.training.teach:train_start", config, [*sources], out, **told, once=True, digest=digest)
    return {**facts, "model": str(out)}


@task(name="lay-out", cache_policy=NO_CACHE)
def lay_out_task(job: TrainJob, folder: Path) -> str:
    """Arrange the finished training run as one directory; return it."""
    from slmsearch.training.export import lay_out

    return str(lay_out(job, folder))


def _recording(tracker: Tracker, run_id: str) -> Callable[[int, dict[str, float]], None]:
    """Return a callback that writes the logs of supervised training into an MLflow run, from the first step that is missing there."""
    done = tracker.last_step(run_id)

    def on_log(step: int, logs: dict[str, float]) -> None:
        metrics = {name: logs[theirs] for theirs, name in CURVES.items() if theirs in logs}
        if step > done and metrics:
            tracker.record_step(run_id, step, metrics)

    return on_log
