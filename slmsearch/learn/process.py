"""One training process: started ahead of its work, told to begin, waited for, stopped.

It is started by `accelerate launch`, which on a small machine needs 15 to 20 seconds to load torch, and TRL after it;
then it waits for a word on its standard input, so that this time can be used for something else.
"""

import json
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import slmsearch
from slmsearch.artifacts.files import replace_json
from slmsearch.config.secrets import split_secrets
from slmsearch.learn import guard
from slmsearch.learn.files import ACCELERATE, JOB, LOG, STOP
from slmsearch.learn.job import TrainJob

STOP_GRACE_SECONDS = 15.0
"""Time a training process has to save a checkpoint when it is asked to stop; below the 30 s orchestrators usually grant."""

logger = logging.getLogger(__name__)


class TrainingProcess:
    """A process that trains one job; it dies with the thread that started it."""

    def __init__(self, job: TrainJob) -> None:
        """Start it; it loads its libraries and waits.

        Args:
            job: its directory takes the log; the job itself is read when the process begins.
        """
        self._directory, self._num_processes = job.directory, job.config.train.num_processes
        job.directory.mkdir(parents=True, exist_ok=True)
        replace_json(job.directory / ACCELERATE, _settings(job))
        command = [sys.executable, "-P", guard.__file__, *launcher(job), str(job.directory / JOB)]
        with (job.directory / LOG).open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        self._tell(json.dumps(_environment(job)).encode() + b"\n")

    def begin(self) -> None:
        """Let it read its job and train."""
        self._tell(guard.BEGIN * self._num_processes)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its exit code, negative for a signal, or None if it goes on."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def read_log(self) -> str:
        """Return what it has printed."""
        return (self._directory / LOG).read_bytes()[self._log_start :].decode(errors="replace")

    def stop(self) -> None:
        """Ask it to save and end; kill it, and all it started, when it takes too long or we are hurried."""
        try:
            (self._directory / STOP).touch()
            if self.wait(STOP_GRACE_SECONDS) is None:
                logger.warning("training did not end within %g s and is killed", STOP_GRACE_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it, and all it started, if it runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _tell(self, words: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which `wait` tells
            self._process.stdin.write(words)
            self._process.stdin.flush()


def launcher(job: TrainJob) -> list[str]:
    """Arguments for Python that start the training process; the job's file follows."""
    settings = str(job.directory / ACCELERATE)
    processes = str(job.config.train.num_processes)
    return ["-m", "accelerate.commands.launch", "--config_file", settings, "--num_processes", processes, "-m", "slmsearch.learn.worker"]


def _settings(job: TrainJob) -> dict[str, object]:
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


def _environment(job: TrainJob) -> dict[str, object]:
    """What `guard.make_environment` is told."""
    _, secrets = split_secrets(job.config)
    variables = {
        guard.ENV_STARTER: str(os.getpid()),
        guard.ENV_SECRETS: json.dumps(secrets),
        "PYTHONUNBUFFERED": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DISABLE_MLFLOW_INTEGRATION": "TRUE",  # TRL imports mlflow where it is installed, which takes seconds
    }
    return {"variables": variables, "num_processes": job.config.train.num_processes, "import_from": str(Path(slmsearch.__path__[0]).parent)}
