"""One training process: started ahead of its work, told to begin, waited for, stopped.

It is `accelerate launch -m slmsearch.learn.process JOB.json`, which on a small machine needs 15 to 20 seconds to load torch, and TRL
after it; then it waits for a word on its standard input, so that this time can be used for something else. It says what happens
through files in the job's directory (`files.py`) and its exit code, and dies with the process that started it. The only variables it
reads are those that its starter set.
"""

import json
import logging
import os
import sys
from pathlib import Path

from slmsearch.artifacts.files import replace_json
from slmsearch.config.secrets import split_secrets
from slmsearch.errors import SlmSearchError
from slmsearch.learn.checkpoints import latest_complete_checkpoint
from slmsearch.learn.files import ACCELERATE, CHECKPOINTS, ERROR, JOB, LOG, STOP
from slmsearch.learn.job import TrainJob
from slmsearch.processes.child import ChildProcess, ProcessSettings
from slmsearch.processes.watchdog import die_with_starter
from slmsearch.processor import settle

ENV_SECRETS = "SLMSEARCH_TRAINING_SECRETS"
"""Secrets of the job as a JSON object, dotted path to value."""
STOP_GRACE_SECONDS = 15.0
"""Time a training process has to save a checkpoint when it is asked to stop; below the 30 s orchestrators usually grant."""
_BEGIN = b"begin\n"

logger = logging.getLogger(__name__)


class TrainingProcess(ChildProcess):
    """A process that trains one job; it dies with the thread that started it."""

    def __init__(self, job: TrainJob) -> None:
        """Start it; it loads its libraries and waits, and reads its job when it begins."""
        self._directory, self._num_processes = job.directory, job.config.train.num_processes
        job.directory.mkdir(parents=True, exist_ok=True)
        replace_json(job.directory / ACCELERATE, _accelerate_settings(job))
        log = job.directory / LOG
        self._log_start = log.stat().st_size if log.exists() else 0
        settings = ProcessSettings(_variables(job), num_processes=self._num_processes, same_code=True)
        super().__init__("training", [*launcher(job), str(job.directory / JOB)], log, settings)

    def begin(self) -> None:
        """Let it read its job and train."""
        self.tell(_BEGIN * self._num_processes)

    def read_log(self) -> str:
        """Return what it has printed."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def save_and_stop(self) -> None:
        """Ask it to save and end; kill it, and all it started, when it takes too long or we are hurried."""
        try:
            (self._directory / STOP).touch()
            if self.wait(STOP_GRACE_SECONDS) is None:
                logger.warning("training did not end within %g s and is killed", STOP_GRACE_SECONDS)
        finally:
            self.kill()


def wait_for_begin() -> None:
    """In the training process: wait until the starter lets it begin; end it if the starter is gone before."""
    if os.read(0, len(_BEGIN)) != _BEGIN:
        os._exit(1)


def launcher(job: TrainJob) -> list[str]:
    """Arguments for Python that start the training process; the job's file follows."""
    settings = str(job.directory / ACCELERATE)
    processes = str(job.config.train.num_processes)
    return ["-m", "accelerate.commands.launch", "--config_file", settings, "--num_processes", processes, "-m", "slmsearch.learn.process"]


def _accelerate_settings(job: TrainJob) -> dict[str, object]:
    """Settings of `accelerate launch`."""
    on_cpu = job.config.policy.device == "cpu"
    return {
        "compute_environment": "LOCAL_MACHINE",
        # On the CPU, too: what accelerate calls MULTI_CPU is for mpirun, and starts one process without it.
        "distributed_type": "NO" if job.config.train.num_processes == 1 else "MULTI_GPU",
        "main_process_port": 0,  # any that is free
        "num_processes": job.config.train.num_processes,
        "num_machines": 1,
        "mixed_precision": "no",
        "use_cpu": on_cpu,
    }


def _variables(job: TrainJob) -> dict[str, str]:
    _, secrets = split_secrets(job.config)
    return {
        ENV_SECRETS: json.dumps(secrets),
        "PYTHONUNBUFFERED": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DISABLE_MLFLOW_INTEGRATION": "TRUE",  # TRL imports mlflow where it is installed, which takes seconds
    }


def main(path: Path) -> None:
    """Load the libraries, wait until the starter lets it begin, and run the job in a file from its last complete checkpoint."""
    die_with_starter()
    secrets = json.loads(os.environ.pop(ENV_SECRETS, "{}"))
    settle()
    from slmsearch.learn.training import run_job

    wait_for_begin()
    job = TrainJob.from_json(path.read_text(encoding="utf-8"), secrets)
    try:
        run_job(job, latest_complete_checkpoint(job.directory / CHECKPOINTS))
    except SlmSearchError as error:
        replace_json(job.directory / ERROR, {"boundary": error.boundary, "message": str(error)})
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
