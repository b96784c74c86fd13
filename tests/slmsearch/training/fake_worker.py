"""A training process without a model: it reports steps, seals checkpoints and ends as its job's seed says."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from slmsearch.artifacts.files import file_hash, replace_json
from slmsearch.errors import JudgeError
from slmsearch.processes.watchdog import die_with_starter
from slmsearch.training.files import (
    ADAPTER,
    CHECKPOINTS,
    ERROR,
    MANIFEST,
    STEPS,
    STOP,
    checkpoint_step,
    latest_complete_checkpoint,
    seal_checkpoint,
)
from slmsearch.training.job import TrainJob
from slmsearch.training.launch import ENV_SECRETS
from slmsearch.training.reports import append_report, make_report

FINISH, RAISE, TELL, DIE, WAIT = range(5)
"""What to do after step 3, as the seed of the job."""


def main() -> None:
    die_with_starter()
    job = TrainJob.from_json(Path(sys.argv[1]).read_text(), json.loads(os.environ[ENV_SECRETS]))
    checkpoint = latest_complete_checkpoint(job.directory / CHECKPOINTS)
    start = checkpoint_step(checkpoint) if checkpoint else 0
    key = job.config.judge.api_key
    replace_json(job.directory / "seen.json", {"pid": os.getpid(), "judge_key": key and key.get_secret_value(), "start": start})
    for step in range(start + 1, job.config.train.steps + 1):
        append_report(job.directory / STEPS, make_report(step, {"loss": float(step), "group/zero_advantage_frac": step % 2}))
        if step % 2 == 0:
            save(job, step)
        if step == 3:
            act(job)
    (job.directory / ADAPTER).mkdir(exist_ok=True)
    weights = job.directory / ADAPTER / "adapter_model.safetensors"
    weights.write_text("weights")
    facts = {"adapter_hash": file_hash(weights), "steps": 4, "seconds": 1.0, "resumed_from": start, "spent": {"other": 1.0}}
    replace_json(job.directory / MANIFEST, facts)


def save(job: TrainJob, step: int) -> None:
    checkpoint = job.directory / CHECKPOINTS / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state").write_text(str(step))
    seal_checkpoint(checkpoint, step)


def act(job: TrainJob) -> None:
    seed = job.config.train.seed
    if seed == RAISE:
        raise RuntimeError("the loss went up the wall")
    if seed == TELL:
        error = JudgeError("judge is gone: start it")
        replace_json(job.directory / ERROR, {"boundary": error.boundary, "message": str(error)})
        raise error
    if seed == DIE:
        os.kill(os.getpid(), signal.SIGKILL)
    while seed == WAIT:
        if (job.directory / STOP).exists():
            save(job, 3)
            sys.exit(1)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
