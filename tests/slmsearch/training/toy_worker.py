"""The training process on the toy corpus: real model, real TRL; kills itself once when it has reported `DIES_AFTER` steps."""

import json
import os
import signal
import sys
from pathlib import Path

from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.processes.watchdog import die_with_starter
from slmsearch.training.files import CHECKPOINTS, STEPS, latest_complete_checkpoint
from slmsearch.training.job import TrainJob
from slmsearch.training.reports import read_reports

DIES_AFTER = 5


def main() -> None:
    die_with_starter()
    from slmsearch.corpus.library import Library
    from tests.slmsearch.training.conftest import PAGES, QUESTIONS, EveryPageIndex
    from tests.slmsearch.training.through import train_through

    job = TrainJob.from_json(Path(sys.argv[1]).read_text())

    class DyingToolbox(Toolbox):
        def serve(self, calls, views=()):
            marker = job.directory / "died.json"
            if not marker.exists() and len(read_reports(job.directory / STEPS)) == DIES_AFTER:
                marker.write_text(json.dumps(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return super().serve(calls, views)

    toolbox = DyingToolbox(Library(PAGES), EveryPageIndex(), 4, 1500)
    train_through(toolbox, QUESTIONS, job, latest_complete_checkpoint(job.directory / CHECKPOINTS))


if __name__ == "__main__":
    main()
