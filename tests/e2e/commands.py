"""Commands in a data directory of their own: several at a time, killed at an exact moment, and what they leave."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from slmsearch.evaluate.store import has_evaluation
from tests.e2e.stand import ROOT, still_alive

QUICK = ["--config", "quick", "--corpus.world.pages", "60"]
EVALUATE = ["evaluate", *QUICK, "--policy", "untrained"]
STRUCK = Path(__file__).parent / "struck"
LIMIT_S = 300


@dataclass(frozen=True)
class Moment:
    """When to kill: before what an audit event of Python announces is done; see `struck/sitecustomize.py`."""

    name: str
    event: str
    pattern: str


class Home:
    """A data directory, the commands that work in it, and what they have left there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.mlruns = folder, folder / "data", folder / "mlruns"

    def start(self, *arguments: str, moment: Moment | None = None) -> "subprocess.Popen[str]":
        """Start a command, to be killed at a moment where one is given."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        kept |= {"SLMSEARCH_PATHS__DATA_DIR": str(self.data), "SLMSEARCH_PATHS__MLRUNS_DIR": str(self.mlruns)}
        if moment is not None:
            path = os.pathsep.join([str(STRUCK), *filter(None, [os.environ.get("PYTHONPATH")])])
            kept |= {"PYTHONPATH": path, "STRIKE_AT": f"{moment.event} {moment.pattern}", "STRUCK": str(self.struck(moment))}
        command = [sys.executable, "-m", "flows", *arguments, "--json"]
        return subprocess.Popen(command, cwd=ROOT, env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def struck(self, moment: Moment) -> Path:
        """Return the file that says that a command was killed."""
        return self.folder / f"struck {moment.name}"

    def run(self, *arguments: str) -> dict[str, Any]:
        """Run a command to its end; return its result."""
        process = self.start(*arguments)
        output, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, (output, said)
        result: dict[str, Any] = json.loads(output)
        return result

    def kill(self, moment: Moment, *arguments: str) -> None:
        """Run a command that is killed at a moment; nothing of it may live on, and nothing half-written may look whole."""
        process = self.start(*arguments, moment=moment)
        _, said = process.communicate(timeout=LIMIT_S)  # its children hold its stderr: it is closed when the last has ended
        assert self.struck(moment).exists() and process.returncode == -signal.SIGKILL, said
        assert not still_alive(self.processes()), moment
        self.check_whole()

    def processes(self) -> list[psutil.Process]:
        """Return the processes that work in the data directory."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("SLMSEARCH_PATHS__DATA_DIR") == str(self.data):
                    found.append(process)
        return found

    def check_whole(self) -> None:
        """Whatever stands under its own name is complete."""
        for kind in ("corpora", "index", "evals"):
            for manifest in (self.data / kind).glob("[!.]*/manifest.json"):
                assert kind != "evals" or has_evaluation(self.data / kind, manifest.parent.name)
                json.loads(manifest.read_text())
        for table in self.mlruns.glob("artifacts/*/artifacts/**/[!.]*.json"):
            json.loads(table.read_text())
        for page in [*self.mlruns.glob("reports/[!.]*.html"), *self.mlruns.glob("artifacts/*/artifacts/report/[!.]*.html")]:
            assert page.read_text().rstrip().endswith("</html>"), page

    def ask(self, question: str, store: str = "mlflow") -> list[tuple[Any, ...]]:
        """Ask a store as it lies on disk."""
        path = {"mlflow": self.mlruns / "mlflow.db", "prefect": self.data / "prefect" / "prefect.db"}[store]
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=20)) as opened:
            return opened.execute(question).fetchall()

    def check_truth(self, completed: int) -> None:
        """No run shows as running, as many flow runs as given have completed, and the last has finished in MLflow with all its stages."""
        states = [state for (state,) in self.ask("select state_type from flow_run", "prefect")]
        assert states.count("COMPLETED") == completed and set(states) <= {"COMPLETED", "CRASHED"}, states
        assert not self.ask("select name from runs where status = 'RUNNING'")
        assert not self.ask("select run_uuid, key, step from metrics group by run_uuid, key, step having count(*) > 1")

    def recorded(self, run_id: str) -> dict[str, Any]:
        """Return what an evaluation has left in MLflow; what a killed one had finished is looked up by the next, in a stage of its own."""
        runs = f"(select '{run_id}' union select run_uuid from tags where key = 'mlflow.parentRunId' and value = '{run_id}')"
        stage = "(select value from tags where key = 'slmsearch.stage' and tags.run_uuid = runs.run_uuid)"
        stages = self.ask(f"select run_uuid, {stage}, status from runs where run_uuid in {runs} order by 2")
        metrics = self.ask(f"select distinct key, value from metrics where run_uuid in {runs} order by key, value")
        files = {f"{name}/{path.relative_to(home)}": path
            for run, name, _ in stages for home in [self.mlruns / "artifacts" / run / "artifacts"]
            for path in home.rglob("[!.]*") if path.is_file()}  # fmt: skip
        questions = "select value from trace_tags where key = 'question_id' order by value"
        return {
            "stages": sorted({stage[1:] for stage in stages}),
            "metrics": [metric for metric in metrics if "seconds" not in metric[0] and not metric[0].startswith("time/")],
            "tables": {name: len(json.loads(path.read_text())["data"]) for name, path in files.items() if "/eval/" in name},
            "listed": self.ask(
                f"select distinct value from tags where key = 'mlflow.loggedArtifacts' and run_uuid in {runs} order by value"
            ),
            "files": sorted(files),
            "traces": self.ask(questions),
        }
