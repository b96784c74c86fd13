"""Training in a process of its own: start it, follow it, stop it, resume it.

The process is started by `accelerate launch`, frees the device when it ends, and cannot outlive its starter. A killed run goes on
from its last complete checkpoint when the same job is trained again; a finished one is only looked up. Light: neither torch nor
TRL is imported here.
"""

import fcntl
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
from slmsearch.errors import SlmSearchError, TrainingError, error_of
from slmsearch.learn.checkpoints import MANIFEST as CHECKPOINT_MANIFEST
from slmsearch.learn.checkpoints import checkpoint_step, discard_after, find_damage, latest_complete_checkpoint, list_checkpoints
from slmsearch.learn.files import CHECKPOINTS, ERROR, JOB, LOCK, LOG, MANIFEST, SOURCES, STEPS, STOP
from slmsearch.learn.job import Manifest, TrainJob, read_manifest, train_sources
from slmsearch.learn.process import TrainingProcess
from slmsearch.learn.reports import ReportTail, StepReport, truncate_reports

POLL_SECONDS = 0.2
"""Time between two looks at the reports, or at a lock."""

logger = logging.getLogger(__name__)

_waiting: dict[Path, TrainingProcess] = {}
"""Processes that get ready, by the directory of their job."""

OnStep = Callable[[StepReport], None]


def train(job: TrainJob, on_step: OnStep, after_step: int = 0) -> Manifest:
    """Train in a child process, or look the result up if this job has been trained before; return what says that it is done.

    Where another process trains the same job, its end is waited for; what it left is looked up, or gone on with.

    Args:
        job: what to train; equal jobs share a directory.
        on_step: called here, in order, once per step after `after_step`: also for the steps of earlier attempts that count, and for all
            steps of a job that is only looked up, so that a tracker can be filled from any state.
        after_step: the last step that a tracker has.

    Raises:
        TrainingError: training ended before its last step, or the directory's file system has no locks.
        SlmSearchError: what ended the training process, by its own class where that is known.
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
    """Bring the directory into the state of its last complete checkpoint, or of none, and write the job."""
    checkpoints = job.directory / CHECKPOINTS
    step = _resumable_step(job)
    # One without a manifest is what a kill leaves while it is written; one that had its manifest was whole.
    for later in list_checkpoints(checkpoints):
        if checkpoint_step(later) > step and (later / CHECKPOINT_MANIFEST).exists():
            logger.warning("%s is damaged (%s): training goes on from step %d", later, find_damage(later), step)
    discard_after(checkpoints, step)
    truncate_reports(job.directory / STEPS, step)
    for name in (ERROR, STOP, MANIFEST):
        (job.directory / name).unlink(missing_ok=True)
    (job.directory / JOB).write_text(job.to_json(), encoding="utf-8")
    # What the train key was hashed from, so that each part of it can be looked at later.
    replace_json(job.directory / SOURCES, train_sources(job.config, job.corpus_digest, job.index_key))


def _run(job: TrainJob, tail: ReportTail, on_step: OnStep, after_step: int) -> None:
    """Run the training process to its end, passing reports on."""
    process = _waiting.pop(job.directory, None) or TrainingProcess(job)
    try:
        process.begin()
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
    """Say in one line why the training process failed: in its own words, or by the last exception in its log."""
    where = f"resumable at step {_resumable_step(job)}; log: {job.directory / LOG}"
    told = read_json(job.directory / ERROR)
    if not told:
        return TrainingError(f"{find_cause(printed, signal.Signals(-code).name if code < 0 else '')}; {where}")
    return error_of(told["boundary"], f"{told['message']}; {where}", TrainingError)


def find_cause(printed: str, killed_by: str = "") -> str:
    """Find the cause of a failure in what the training process and its launcher printed, or the signal that ended the launcher."""
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
def getting_ready(job: TrainJob) -> Iterator[None]:
    """Have the process of an unfinished job load its libraries while something else is done; `train` then takes it.

    Call it in the thread that trains. The process waits without memory of the device or any state in the directory; it ends with
    this context where nobody has taken it.
    """
    if read_manifest(job.directory) is None:
        _waiting[job.directory] = TrainingProcess(job)
    try:
        yield
    finally:
        if (process := _waiting.pop(job.directory, None)) is not None:
            process.kill()


def is_held(directory: Path) -> bool:
    """Say whether the process that last trained in a directory still lives; trying the lock could get in the way of one that begins."""
    try:
        holder = (directory / LOCK).read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return holder.isdecimal() and bool(psutil.pid_exists(int(holder)))


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory for this process, once nobody else does; the lock goes with the process, whatever ends it."""
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
    """Turn SIGTERM into SystemExit, so that training is stopped in order; an orchestrator's own handler stays as it is."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
