"""The training process: `accelerate launch -m slmsearch.learn.worker JOB.json`.

Started by `launch.py`, never by hand. It says what happens through files in the job's directory (`files.py`) and its exit code,
and dies with the process that started it. The only variables it reads are those that its starter set.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from slmsearch.artifacts.files import replace_json
from slmsearch.errors import SlmSearchError
from slmsearch.learn.checkpoints import latest_complete_checkpoint
from slmsearch.learn.files import CHECKPOINTS, ERROR
from slmsearch.learn.job import TrainJob
from slmsearch.learn.process import ENV_SECRETS, wait_for_begin
from slmsearch.processes.watchdog import die_with_starter
from slmsearch.processor import settle


def main(argv: Sequence[str]) -> None:
    """Load the libraries, wait until the starter lets it begin, and run the job from its last complete checkpoint.

    Args:
        argv: the job's file, which need not be there before.
    """
    die_with_starter()
    secrets = json.loads(os.environ.pop(ENV_SECRETS, "{}"))
    settle()
    from slmsearch.learn.training import run_job

    wait_for_begin()
    job = TrainJob.from_json(Path(argv[0]).read_text(encoding="utf-8"), secrets)
    try:
        run_job(job, latest_complete_checkpoint(job.directory / CHECKPOINTS))
    except SlmSearchError as error:
        replace_json(job.directory / ERROR, {"boundary": error.boundary, "message": str(error)})
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
