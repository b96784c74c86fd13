"""Training in a process of its own: start it, follow it, stop it, resume it.

The process is `accelerate launch -m slmsearch.training.launch JOB.json`. It reports through files in the job's directory (`files.py`) and
its exit code, frees the device when it ends, and dies with the process that started it. It reads only variables that its starter set.
Training the same job again resumes a killed run from its last complete checkpoint, and only looks up a finished one. Neither torch nor
TRL is imported here before `main`.
"""

import fcntl
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.config.secrets import split_secrets
from slmsearch.errors import SlmSearchError, TrainingError, error_of
from slmsearch.processes.allocator import preload_variables
from slmsearch.processes.child import ChildProcess, ProcessSettings
from slmsearch.processes.noise import silence_noise
from slmsearch.processes.processor import settle
from slmsearch.processes.watchdog import die_with_starter
from slmsearch.training.files import (
    ACCELERATE,
    CHECKPOINTS,
    ERROR,
    JOB,
    LOCK,
    LOG,
    MANIFEST,
    SOURCES,
    STEPS,
    STOP,
    checkpoint_step,
    discard_after,
    find_damage,
    latest_complete_checkpoint,
    list_checkpoints,
)
from slmsearch.training.job import JobManifest, TrainJob, read_manifest, train_sources
from slmsearch.training.reports import ReportTail, StepReport, truncate_reports

ENV_SECRETS = "SLMSEARCH_TRAINING_SECRETS"
"""Secrets of the job as a JSON object, dotted path to value."""
STOP_GRACE_SECONDS = 15.0
"""Time that a training process has to save a checkpoint after a stop request, in seconds; below the 30 s orchestrators usually grant."""
POLL_SECONDS = 0.2
"""Time between two looks at the reports, or at a lock, in seconds."""

logger = logging.getLogger(__name__)

OnStep = Callable[[StepReport], None]


class TrainingProcess(ChildProcess):
    """A process that trains one job; it dies with the thread that started it."""

    def __init__(self, job: TrainJob) -> None:
        """Start the process; its job is in the directory."""
        self._directory = job.directory
        replace_json(job.directory / ACCELERATE, _accelerate_settings(job))
        log = job.directory / LOG
        self._log_start = log.stat().st_size if log.exists() else 0
        settings = ProcessSettings(_variables(job), num_processes=job.config.train.num_processes, same_code=True)
        super().__init__("training", [*launcher(job), str(job.directory / JOB)], log, settings)
        self.hang_up()

    def read_log(self) -> str:
        """Return the output of the process."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def save_and_stop(self) -> None:
        """Ask the process to save and end; kill it with its children if it takes too long or the wait is interrupted."""
        try:
            (self._directory / STOP).touch()
            if self.wait(STOP_GRACE_SECONDS) is None:
                logger.warning("training did not end within %g s and is killed", STOP_GRACE_SECONDS)
        finally:
            self.kill()


def launcher(job: TrainJob) -> list[str]:
    """Return the arguments with which Python starts the training process; the path of the job's file follows them."""
    settings = str(job.directory / ACCELERATE)
    return ["-m", "accelerate.commands.launch", "--config_file", settings, "-m", __name__]


def _accelerate_settings(job: TrainJob) -> dict[str, object]:
    """Return the settings of `accelerate launch`."""
    return {
        "compute_environment": "LOCAL_MACHINE",
        # On the CPU, too: accelerate's MULTI_CPU needs mpirun, and starts one process without it.
        "distributed_type": "NO" if job.config.train.num_processes == 1 else "MULTI_GPU",
        "main_process_port": 0,  # any free port
        "num_processes": job.config.train.num_processes,
        "num_machines": 1,
        "mixed_precision": "no",
        "use_cpu": job.config.policy.device == "cpu",
    }


def _variables(job: TrainJob) -> dict[str, str]:
    _, secrets = split_secrets(job.config)
    return {
        **preload_variables(),
        ENV_SECRETS: json.dumps(secrets),
        "PYTHONUNBUFFERED": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DISABLE_MLFLOW_INTEGRATION": "TRUE",  # TRL imports mlflow where it is installed, which takes seconds
    }


def train(job: TrainJob, on_step: OnStep, after_step: int = 0) -> JobManifest:
    """Train in a child process, or look up the result of a job that was trained before; return its manifest.

    If another process trains the same job, wait for it to end, then look up its result or resume from it.

    Args:
        job: training job; equal jobs share a directory.
        on_step: called here, in order, once per step after `after_step`: also for the steps of earlier attempts that count, and for all
            steps of a job that is only looked up, so that a tracker can be filled from any state.
        after_step: the last step that a tracker has.

    Raises:
        TrainingError: training ended before its last step, or the directory's file system has no locks.
        SlmSearchError: the error that ended the training process, in its own class where that is known.
    """
    job.directory.mkdir(parents=True, exist_ok=True)
    with _termination_raises(), _locked(job.directory):
        tail = ReportTail(job.directory / STEPS)
        if read_manifest(job.directory) is None:
            _prepare(job)
            _run(job, tail, on_step, after_step)
        _pass_on(tail, on_step, after_step)
        manifest = read_manifest(job.directory)
    if manifest is None:
        raise TrainingError(f"training left no adapter; see {job.directory / LOG}")
    return manifest


def _prepare(job: TrainJob) -> None:
    """Restore the directory to the state of its last complete checkpoint, or of none, and write the job."""
    checkpoints = job.directory / CHECKPOINTS
    step = _resumable_step(job)
    # A kill during writing leaves a checkpoint without a manifest; one with a manifest was complete.
    for later in list_checkpoints(checkpoints):
        if checkpoint_step(later) > step and (later / MANIFEST).exists():
            logger.warning("%s is damaged (%s): training goes on from step %d", later, find_damage(later), step)
    discard_after(checkpoints, step)
    truncate_reports(job.directory / STEPS, step)
    for name in (ERROR, STOP, MANIFEST):
        (job.directory / name).unlink(missing_ok=True)
    (job.directory / JOB).write_text(job.to_json(), encoding="utf-8")
    # The parts that the train key was hashed from, for later inspection.
    replace_json(job.directory / SOURCES, train_sources(job.config, job.corpus_digest, job.index_key))


def _run(job: TrainJob, tail: ReportTail, on_step: OnStep, after_step: int) -> None:
    """Run the training process to its end, passing reports on."""
    process = TrainingProcess(job)
    try:
        while (code := process.wait(POLL_SECONDS)) is None:
            _pass_on(tail, on_step, after_step)
    except BaseException as error:
        process.save_and_stop()
        message = f"training stopped; resumable at step {_resumable_step(job)} by running the same command"
        logger.warning(message)
        error.add_note(message)
        raise
    if code != 0:
        _pass_on(tail, on_step, after_step)
        raise _explain(job, code, process.read_log())


def _pass_on(tail: ReportTail, on_step: OnStep, after_step: int) -> None:
    for report in tail.poll():
        if report.step > after_step:
            on_step(report)


def _resumable_step(job: TrainJob) -> int:
    checkpoint = latest_complete_checkpoint(job.directory / CHECKPOINTS)
    return checkpoint_step(checkpoint) if checkpoint else 0


def _explain(job: TrainJob, code: int, printed: str) -> SlmSearchError:
    """Return the cause of a failed training process in one line: its own message, or the last exception in its log."""
    where = f"resumable at step {_resumable_step(job)}; log: {job.directory / LOG}"
    told = read_json(job.directory / ERROR)
    if not told:
        return TrainingError(f"{find_cause(printed, signal.Signals(-code).name if code < 0 else '')}; {where}")
    return error_of(told["boundary"], f"{told['message']}; {where}", TrainingError)


def find_cause(printed: str, killed_by: str = "") -> str:
    """Find the cause of a failure in the output of the training process and its launcher, or the signal that ended the launcher."""
    killed = re.search(r"died with <Signals\.(\w+)", printed)
    if name := killed[1] if killed else killed_by:
        hint = ": out of memory? `slmsearch preflight` says which setting takes most" if name == "SIGKILL" else ""
        return f"the training process was killed by {name}{hint}"
    raised = [line for line in printed.splitlines() if re.match(r"[\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    causes = [line for line in raised if "CalledProcessError" not in line]
    if not causes:
        return "the training process failed without a word"
    hint = "; `slmsearch preflight` says which setting takes most" if "out of memory" in causes[-1] else ""
    return f"the training process failed: {causes[-1][:300]}{hint}"


def is_held(directory: Path) -> bool:
    """Return whether the process that last trained in a directory still lives; trying the lock could disturb one that begins."""
    try:
        holder = (directory / LOCK).read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return holder.isdecimal() and bool(psutil.pid_exists(int(holder)))


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, once it is free; the operating system releases it when the process ends."""
    with (directory / LOCK).open("a+", encoding="utf-8") as file:
        told = False
        while not _try_lock(file):
            if not told:
                file.seek(0)
                logger.warning("process %s is training the same in %s: waiting for its end", file.read().strip() or "?", directory)
                told = True
            time.sleep(POLL_SECONDS)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise TrainingError(f"{file.name} cannot be locked ({error}): set paths.data_dir to a file system that has locks") from error
    return True


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, so that training stops in order; an orchestrator's own handler stays in place."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def main(path: Path) -> None:
    """Run the job in a file from its last complete checkpoint, in the training process."""
    die_with_starter()
    secrets = json.loads(os.environ.pop(ENV_SECRETS, "{}"))
    settle()
    silence_noise()
    import torch

    from slmsearch.training.training_run import run_job

    job = TrainJob.from_json(path.read_text(encoding="utf-8"), secrets)
    if job.config.policy.device != "cpu" and torch.cuda.is_available() and (rank := os.environ.get("LOCAL_RANK")):
        torch.cuda.set_device(int(rank))  # before anything asks the first card for its memory
    try:
        run_job(job, latest_complete_checkpoint(job.directory / CHECKPOINTS))
    except SlmSearchError as error:
        replace_json(job.directory / ERROR, {"boundary": error.boundary, "message": str(error)})
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
