"""What an installation keeps, file by file: sizes, the rate at which they grow, and the same records made a month older.

`python -m tests.e2e.growth HOME FIRST LAST`: rounds of flows in one process, each over its own world; a line of JSON after each flow.
"""

import json
import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from flows.ops.runner import run_flow
from flows.runtime.api import prefect_api
from flows.runtime.process_environment import prepare_process_environment
from flows.runtime.settings import load_config, read_environment
from slmsearch.config import RunConfig
from slmsearch.judge.cache import FILE as VERDICTS
from slmsearch.judge.cache import StoredVerdict, VerdictCache
from tests.e2e.stand import ROOT

DAY_S = 86_400
FLOWS = ("train-and-eval", "evaluate", "reindex", "validate")
SETTINGS = ["corpus.world.pages=60", 'evaluate.baselines=["random"]', "decision.min_questions=1", "decision.min_gain=-2"]
KEPT_VERSIONS = 3
VERDICTS_A_ROUND = 100


def play_rounds(home: Path, first: int, last: int) -> None:
    """Play rounds; say after each flow run how many flow runs there were and what everything takes."""
    places = [f"--paths.data_dir={home / 'data'}", f"--paths.mlruns_dir={home / 'mlruns'}"]
    quick = ROOT / "deployments" / "configs" / "quick.yaml"

    def load(world: int) -> RunConfig:
        seeds = [f"--corpus.world.seed={world}", f"--train.seed={world}"]
        return load_config([quick], [*places, *seeds, *(f"--{setting}" for setting in SETTINGS)])

    config = load(first)
    prepare_process_environment(config, read_environment())
    with prefect_api(config.paths):
        for world in range(first, last + 1):
            cache = VerdictCache(home / "data" / VERDICTS)
            cache.store([StoredVerdict(f"{world} {i}", True, "judge", "question", "[]", "answer") for i in range(VERDICTS_A_ROUND)])
            for number, flow in enumerate(FLOWS, 1 + (world - 1) * len(FLOWS)):
                run_flow(flow, load(world), lambda _: None, here=True)
                print(json.dumps({"runs": number, "sizes": sizes(home)}), flush=True)


def sizes(home: Path) -> dict[str, int]:
    """Return bytes by file or folder: databases (with what SQLite keeps beside them) by name, all else by its folder."""
    found: dict[str, int] = {}
    for path in home.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[_place(path.relative_to(home))] = found.get(_place(path.relative_to(home)), 0) + path.stat().st_size
    return found


def _place(path: Path) -> str:
    name = path.name.removesuffix("-wal").removesuffix("-shm").removesuffix("-journal")
    if name.endswith((".db", ".sqlite", ".jsonl", ".lock", ".toml")) and len(path.parts) <= 3:
        return str(path.with_name(name))
    return "/".join(path.parts[: 3 if path.parts[1] == "prefect" else 2]) + "/"


def fit(counts: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Fit a line by least squares; return its slope and how much of the variance it explains."""
    slope, intercept = np.polyfit(counts, values, 1)
    rest = np.asarray(values) - (slope * np.asarray(counts) + intercept)
    spread = float(np.var(values))
    return float(slope), 1.0 - float(np.var(rest)) / spread if spread else 1.0


def age(home: Path, days: float) -> None:
    """Make everything so many days older: rows of the databases, and files. Nothing may have them open."""
    for path in home.rglob("*.db"):
        with closing(sqlite3.connect(path)) as store:
            (_age_mlflow if path.name == "mlflow.db" else _age_prefect)(store, days)
            store.commit()
    for path in home.rglob("*.sqlite"):
        if path.parent.parent.name == "data":
            with closing(sqlite3.connect(path)) as store:
                _subtract(store, days * DAY_S, {"at"})
                store.commit()
    before = time.time() - days * DAY_S
    for path in home.rglob("*"):
        os.utime(path, (before, before))


def _age_mlflow(store: sqlite3.Connection, days: float) -> None:
    stamps = {"start_time", "end_time", "deleted_time", "timestamp_ms", "creation_time", "creation_timestamp", "last_updated_timestamp"}
    _subtract(store, days * DAY_S * 1000, stamps)
    store.execute("update tags set value = cast(value as integer) - ? where key = 'slmsearch.deleted'", (int(days * DAY_S),))


def _age_prefect(store: sqlite3.Connection, days: float) -> None:
    for table, column, kind in _columns(store):
        if "TIMESTAMP" in kind.upper() or "DATETIME" in kind.upper():
            moved = f"strftime('%Y-%m-%d %H:%M:%S', {column}, '-{days:g} days') || substr({column}, 20)"
            store.execute(f"update {table} set {column} = {moved} where {column} is not null")


def _subtract(store: sqlite3.Connection, amount: float, names: set[str]) -> None:
    for table, column, _ in _columns(store):
        if column in names:
            store.execute(f"update {table} set {column} = {column} - ? where {column} > ?", (int(amount), int(amount)))


def _columns(store: sqlite3.Connection) -> list[tuple[str, str, str]]:
    tables = [name for (name,) in store.execute("select name from sqlite_master where type = 'table'")]
    return [(f'"{table}"', str(row[1]), str(row[2])) for table in tables for row in store.execute(f'pragma table_info("{table}")')]


if __name__ == "__main__":
    play_rounds(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
