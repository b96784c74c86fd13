"""Training in a process of its own: start it, follow it, stop it, resume it.

The process is started by `accelerate launch`, frees the device when it ends, and cannot outlive its starter. A killed run goes on
from its last complete checkpoint when the same job is trained again; a finished one is only looked up. Light: neither torch nor
TRL is imported here.
"""

import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import slmsearch
from slmsearch.errors import SlmSearchError, TrainingError
from slmsearch.learn import guard
from slmsearch.learn.checkpoints import checkpoint_step, discard_after, file_hash, latest_complete_checkpoint, write_json
from slmsearch.learn.files import ACCELERATE, ADAPTER, CHECKPOINTS, ERROR, JOB, LOCK, LOG, MANIFEST, PREFLIGHT, STEPS, STOP
from slmsearch.learn.job import TrainJob, split_secrets
from slmsearch.learn.models import weights_file
from slmsearch.learn.reports import ReportTail, StepReport, truncate_reports

POLL_SECONDS = 0.2
"""Time between two looks at the reports."""
STOP_GRACE_SECONDS = 15.0
"""Time a training process has to save a checkpoint when it is asked to stop; below the 30 s orchestrators usually grant."""

logger = logging.getLogger(__name__)

OnStep = Callable[[StepReport], None]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """A finished training run."""

    adapter_dir: Path
    adapter_hash: str
    """sha256 of its weights."""
    steps: int
    seconds: float
    """Time spent in steps over all attempts, loading included for the last one."""
    resumed_from: int
    """Step the last attempt went on from; 0 if it started from the beginning."""
    steps_without_signal: int
    """Steps in which every group's rewards were all equal: nothing could be learnt from them."""
    spent: dict[str, float]
    """Seconds of the last attempt by purpose, as `spent.py` names them."""


def train(job: TrainJob, on_step: OnStep, resume: bool = True, after_step: int = 0) -> TrainResult:
    """Train in a child process, or look the result up if this job has been trained before.

    Args:
        job: what to train; equal jobs share a directory.
        on_step: called here, in order, once per step: also for the steps of earlier attempts that count, and for all steps of
            a job that is only looked up, so that a tracker can be filled from any state.
        resume: go on from the last complete checkpoint; False starts over.
        after_step: steps up to this one are not reported; a tracker passes the last step it has.

    Raises:
        TrainingError: another process trains this job, or training ended before its last step.
        SlmSearchError: what ended the training process, by its own class where that is known.
    """
    job.directory.mkdir(parents=True, exist_ok=True)
    with _locked(job.directory), _termination_raises():
        tail = ReportTail(job.directory / STEPS)
        if find_result(job) is None:
            _run(job, _prepare(job, resume), tail, on_step, after_step)
        _pass_on(tail, on_step, after_step)
        result = find_result(job)
    if result is None:
        raise TrainingError(f"training left no adapter; see {job.directory / LOG}")
    return result


def find_result(job: TrainJob) -> TrainResult | None:
    """Look up a finished run; None if this job is unfinished or its adapter no longer agrees with its manifest."""
    adapter = job.directory / ADAPTER
    try:
        manifest = json.loads((job.directory / MANIFEST).read_text(encoding="utf-8"))
        if file_hash(weights_file(adapter)) != manifest["adapter_hash"]:
            return None
    except (OSError, ValueError, KeyError):
        return None
    reports = ReportTail(job.directory / STEPS).poll()
    silent = sum(report.metrics.get("group/zero_advantage_frac") == 1.0 for report in reports)
    facts = (manifest["steps"], manifest["seconds"], manifest["resumed_from"])
    return TrainResult(adapter, manifest["adapter_hash"], *facts, silent, manifest["spent"])


def read_preflight(job: TrainJob) -> list[dict[str, Any]]:
    """Return what the pre-flight of a job found, one check each; empty where none was made."""
    try:
        checks: list[dict[str, Any]] = json.loads((job.directory / PREFLIGHT).read_text(encoding="utf-8"))
        return checks
    except (OSError, ValueError):
        return []


def _prepare(job: TrainJob, resume: bool) -> Path | None:
    """Bring the directory into the state of its last complete checkpoint and write the job; return that checkpoint."""
    checkpoints = job.directory / CHECKPOINTS
    checkpoint = latest_complete_checkpoint(checkpoints) if resume else None
    step = checkpoint_step(checkpoint) if checkpoint else 0
    discard_after(checkpoints, step)
    truncate_reports(job.directory / STEPS, step)
    for name in (ERROR, STOP, MANIFEST):
        (job.directory / name).unlink(missing_ok=True)
    (job.directory / JOB).write_text(job.to_json(), encoding="utf-8")
    on_cpu = job.config.policy.device == "cpu"
    settings = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "NO" if job.config.train.num_processes == 1 else "MULTI_CPU" if on_cpu else "MULTI_GPU",
        "num_processes": job.config.train.num_processes,
        "num_machines": 1,
        "mixed_precision": "no",
        "use_cpu": on_cpu,
    }
    write_json(job.directory / ACCELERATE, settings)
    return checkpoint


def _run(job: TrainJob, checkpoint: Path | None, tail: ReportTail, on_step: OnStep, after_step: int) -> None:
    """Run the training process to its end, passing reports on."""
    log = job.directory / LOG
    with log.open("ab") as file:
        log_start = file.tell()
        process = _start(job, checkpoint, file.fileno())
        try:
            while True:
                try:
                    code = process.wait(POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    _pass_on(tail, on_step, after_step)
        except BaseException as error:
            _stop(process, job.directory)
            message = f"training stopped; resumable at step {_resumable_step(job)} by running the same command"
            logger.warning(message)
            error.add_note(message)
            raise
    if code != 0:
        _pass_on(tail, on_step, after_step)
        raise _explain(job, code, log, log_start)


def _start(job: TrainJob, checkpoint: Path | None, log: int) -> "subprocess.Popen[bytes]":
    _, secrets = split_secrets(job.config)
    variables = {
        guard.ENV_STARTER: str(os.getpid()),
        guard.ENV_SECRETS: json.dumps(secrets),
        "PYTHONUNBUFFERED": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DISABLE_MLFLOW_INTEGRATION": "TRUE",  # TRL imports mlflow where it is installed, which takes seconds
    }
    command = [sys.executable, "-P", guard.__file__, *launcher(job), str(job.directory / JOB)]
    command += [str(checkpoint)] if checkpoint else []
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
    assert process.stdin is not None
    told = {"variables": variables, "num_processes": job.config.train.num_processes, "import_from": str(Path(slmsearch.__path__[0]).parent)}
    process.stdin.write(json.dumps(told).encode())
    process.stdin.close()
    return process


def launcher(job: TrainJob) -> list[str]:
    """Arguments for Python that start the training process; the job's file follows."""
    settings = job.config.train.accelerate_config or str(job.directory / ACCELERATE)
    processes = str(job.config.train.num_processes)
    return ["-m", "accelerate.commands.launch", "--config_file", settings, "--num_processes", processes, "-m", "slmsearch.learn.worker"]


def _pass_on(tail: ReportTail, on_step: OnStep, after_step: int) -> None:
    for report in tail.poll():
        if report.step > after_step:
            on_step(report)


def _stop(process: "subprocess.Popen[bytes]", directory: Path) -> None:
    """Ask the training process to save and end; kill it, and all it started, when it takes too long or we are hurried."""
    try:
        (directory / STOP).touch()
        process.wait(STOP_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        logger.warning("training did not end within %g s and is killed", STOP_GRACE_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _resumable_step(job: TrainJob) -> int:
    checkpoint = latest_complete_checkpoint(job.directory / CHECKPOINTS)
    return checkpoint_step(checkpoint) if checkpoint else 0


def _explain(job: TrainJob, code: int, log: Path, log_start: int) -> SlmSearchError:
    """Say in one line why the training process failed: in its own words, or by the last exception in its log."""
    where = f"resumable at step {_resumable_step(job)}; log: {log}"
    try:
        told = json.loads((job.directory / ERROR).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        printed = log.read_bytes()[log_start:].decode(errors="replace")
        return TrainingError(f"{find_cause(printed, signal.Signals(-code).name if code < 0 else '')}; {where}")
    classes = {kind.boundary: kind for kind in SlmSearchError.__subclasses__()}
    return classes.get(told["boundary"], TrainingError)(f"{told['message']}; {where}")


def find_cause(printed: str, killed_by: str = "") -> str:
    """Find the cause of a failure.

    Args:
        printed: what the training process and its launcher printed.
        killed_by: name of the signal that ended the launcher, if one did.
    """
    killed = re.search(r"died with <Signals\.(\w+)", printed)
    if name := killed[1] if killed else killed_by:
        hint = ": out of memory? Raise train.accumulation or lower train.group_size" if name == "SIGKILL" else ""
        return f"the training process was killed by {name}{hint}"
    raised = [line for line in printed.splitlines() if re.match(r"[\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    causes = [line for line in raised if "CalledProcessError" not in line]
    if not causes:
        return "the training process failed without a word"
    hint = "; raise train.accumulation or lower train.group_size" if "out of memory" in causes[-1] else ""
    return f"the training process failed: {causes[-1][:300]}{hint}"


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory for this process; the lock goes with the process, whatever ends it."""
    with (directory / LOCK).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise TrainingError(f"process {file.read().strip() or '?'} is training {directory}: wait for it or stop it") from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, so that training is stopped in order; an orchestrator's own handler stays as it is."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, _raise_exit)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise_exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
