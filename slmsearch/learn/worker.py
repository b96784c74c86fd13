"""The training process: `accelerate launch -m slmsearch.learn.worker JOB.json [CHECKPOINT]`.

Started by `launch.py`, never by hand. It says what happens through files in the job's directory (`files.py`) and its exit code,
and dies with the process that started it. The only variables it reads are the two that `guard.py` set.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from slmsearch.errors import SlmSearchError
from slmsearch.learn.checkpoints import write_json
from slmsearch.learn.files import ERROR
from slmsearch.learn.guard import ENV_SECRETS, ENV_STARTER, die_with_parent
from slmsearch.learn.job import TrainJob
from slmsearch.processor import settle


def main(argv: Sequence[str]) -> None:
    """Run a job.

    Args:
        argv: the job's file, and the checkpoint to resume from if there is one.
    """
    die_with_parent(int(os.environ[ENV_STARTER]))
    secrets = json.loads(os.environ.pop(ENV_SECRETS, "{}"))
    settle()
    job = TrainJob.from_json(Path(argv[0]).read_text(encoding="utf-8"), secrets)
    try:
        from slmsearch.learn.training import run_job

        run_job(job, Path(argv[1]) if len(argv) > 1 else None)
    except SlmSearchError as error:
        write_json(job.directory / ERROR, {"boundary": error.boundary, "message": str(error)})
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
