"""What is killed where: the cells of the kill table, how the moment of each is recognised from outside, and its preparation.

The cells of a chain follow each other: what one has killed is run again by the next, and killed in a later stage.
"""

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slmsearch.training.files import CHECKPOINTS, MANIFEST, checkpoint_step, latest_complete_checkpoint
from slmsearch.training.files import STEPS as STEPS_FILE
from tests.e2e.stand import Stand, wait_for

FLOW = "train-and-eval"
SETTINGS = ["--config", "quick", "--corpus.world.pages", "60", "--evaluate.baselines", '["random"]',
    "--decision.min_questions", "1", "--decision.min_gain", "-2", "--train.epochs", "4"]  # fmt: skip
"""Twelve steps with a checkpoint after each; whatever was trained is promoted."""
STEPS = list(range(1, 13))
STAGES = ("validate", "index", "baseline", "sampling", "update", "checkpoint", "compare", "promote")
SERVED_STAGES = ("index", "update", "promote")
"""Where worker and server are killed."""
SEVERAL = {"checkpoint": 3, "promote": 3}
"""Stages that are over in a moment: the flow is killed in them so often."""
PROMOTE_DELAYS = (0.0, 0.08, 0.2)
"""Seconds after the decision: before, while and after the alias is moved."""
BASELINE = "evaluate-random"
SIGN_SECONDS = 150.0
TRAINING = ("sampling", "update", "checkpoint")
SIGNALS = (signal.SIGTERM, signal.SIGKILL)


@dataclass(frozen=True)
class Cell:
    """One kill."""

    target: str
    """`flow`, `worker` or `server`."""
    stage: str
    signal: signal.Signals
    attempt: int = 1

    @property
    def name(self) -> str:
        several = self.target == "flow" and self.stage in SEVERAL
        return f"{self.target}-{self.signal.name}-{self.stage}" + (f"-{self.attempt}" if several else "")


def _chain(target: str, number: signal.Signals) -> list[Cell]:
    stages = STAGES if target == "flow" else SERVED_STAGES
    several = SEVERAL if target == "flow" else {}
    return [Cell(target, stage, number, attempt) for stage in stages for attempt in range(1, several.get(stage, 1) + 1)]


CHAINS = [_chain(target, number) for target in ("flow", "worker", "server") for number in SIGNALS]
CELLS = [cell for chain in CHAINS for cell in chain]


def comes_before(cell: Cell) -> str:
    """Name the cell whose killed flow run this one goes on with; empty for the first of a chain."""
    chain = next(chain for chain in CHAINS if cell in chain)
    return chain[chain.index(cell) - 1].name if cell is not chain[0] else ""


def is_last(cell: Cell) -> bool:
    """Say whether nothing goes on with the flow run of a cell."""
    return any(cell == chain[-1] for chain in CHAINS)


@dataclass(frozen=True)
class Golden:
    """What the run that nobody killed has left."""

    lineage: dict[str, str]
    tables: dict[str, int]
    """Rows by table, its name without the run."""
    keys: dict[str, str]
    """Content keys by stage."""
    sampling_s: float
    """Per step."""
    update_s: float

    @property
    def train_key(self) -> str:
        return self.lineage["slmsearch.train_key"]


KEPT = ("corpora", "index", "evals", "training")


def keep(stand: Stand, home: Path) -> None:
    """Put aside what the golden run has made."""
    for name in KEPT:
        shutil.copytree(stand.data / name, home / name)


def prepare(stand: Stand, home: Path, golden: Golden, cell: Cell) -> None:
    """Restore what was made, but for what this stage and those after it make."""
    for name in KEPT:
        shutil.rmtree(stand.data / name, ignore_errors=True)
        shutil.copytree(home / name, stand.data / name)
    evals = [stand.data / "evals" / golden.lineage[f"slmsearch.eval_key_{name}"] for name in ("before", "random")]
    made = {
        "validate": [stand.data / "corpora"],
        "index": [stand.data / "index", stand.data / "prefect" / "results"],
        "baseline": evals,
        "sampling": [stand.data / "training" / golden.train_key],
    }
    stages = [stage for stage in made if STAGES.index(stage) >= STAGES.index("sampling" if cell.stage in TRAINING else cell.stage)]
    for path in (path for stage in stages for path in made[stage]):
        shutil.rmtree(path, ignore_errors=True)


def sealed_step(stand: Stand, golden: Golden) -> int:
    """Return the step of the last checkpoint that counts, 0 where there is none."""
    found = latest_complete_checkpoint(stand.data / "training" / golden.train_key / CHECKPOINTS)
    return checkpoint_step(found) if found else 0


def wait_for_stage(stand: Stand, flow_run_id: str, golden: Golden, cell: Cell, begun_at: int) -> str:
    """Return as soon as a flow run is in the stage, with what was seen.

    Args:
        stand: where it runs.
        flow_run_id: the flow run.
        golden: what is known of a whole run.
        cell: says which stage.
        begun_at: step that training goes on from.
    """
    checkpoints = stand.data / "training" / golden.train_key / CHECKPOINTS

    def mlflow(stage: str, status: str) -> Callable[[], bool]:
        return lambda: stand.status_of(flow_run_id, stage) == status

    next_one, since = checkpoints / f"checkpoint-{begun_at + 1}", time.time()

    def begun() -> bool:
        """Whether it is being written; an earlier kill may have left a half of it."""
        with suppress(FileNotFoundError):
            return next_one.stat().st_mtime >= since
        return False

    there = "its MLflow run is there"
    signs: dict[str, tuple[str, Callable[[], bool], float]] = {
        "validate": (there, mlflow("validate", "RUNNING"), 0.3),
        "index": (there, mlflow("index", "RUNNING"), 0.3),
        "baseline": (f"{BASELINE} is there", mlflow(BASELINE, "RUNNING"), 0.15),
        "sampling": (f"checkpoint {begun_at + 1} is sealed", (next_one / MANIFEST).exists, golden.sampling_s / 3),
        "update": (f"checkpoint {begun_at + 1} is sealed", (next_one / MANIFEST).exists, golden.sampling_s + golden.update_s / 2),
        "checkpoint": (f"checkpoint {begun_at + 1} is begun", begun, 0.1 * (cell.attempt - 1)),
        "compare": (there, mlflow("compare", "RUNNING"), 0.0),
        "promote": ("the decision is taken", mlflow("compare", "FINISHED"), PROMOTE_DELAYS[cell.attempt - 1]),
    }
    seen, happened, delay_s = signs[cell.stage]
    wait_for(happened, SIGN_SECONDS, f"{cell.name}: {seen}\n{stand.tail()}")
    time.sleep(delay_s)
    return f"{seen} + {delay_s:.2f} s" if delay_s else seen


def where_it_stood(stand: Stand, golden: Golden, cell: Cell) -> str:
    """Say in a few words what was there when the blow fell."""
    training = stand.data / "training" / golden.train_key
    if cell.stage in TRAINING:
        steps = (training / STEPS_FILE).read_text().count("\n") if (training / STEPS_FILE).exists() else 0
        return f"{steps} steps, sealed at {sealed_step(stand, golden)}"
    return f"champion {stand.champion()[0] or 'none'}" if cell.stage == "promote" else ""
