"""The kill table: flow, worker and server, killed in every stage. Run it with `-m kill`; half an hour on two cores.

Every cell is one real kill under `slmsearch up`: what both trackers say must become true by itself, no process may be left, and
CURRENT must be valid. The next cell of its chain runs the same again, which must find the same keys up to where it is killed in
turn; the last run of a chain is left to its end, and must have made what a run made that nobody killed: the same keys, no point
and no row twice, the champion. Nothing is fixed by the test.

`--kill-table FILE` writes the table there (and its cells beside it, as JSON lines, so that a table can be made in several
sittings); `--kill-home DIR` keeps everything for the next sitting.
"""

import json
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from slmsearch.retrieval.versions import current_key, is_complete
from tests.e2e.cells import (
    CELLS,
    FLOW,
    SETTINGS,
    STEPS,
    TRAINING,
    Cell,
    Golden,
    comes_before,
    is_last,
    keep,
    prepare,
    sealed_step,
    wait_for_stage,
    where_it_stood,
)
from tests.e2e.stand import Stand, still_alive, wait_for
from tests.e2e.table import write_table

RUN_SECONDS = 240
END_SECONDS = 150
"""Time after a kill within which all states must be true; a flow run that goes on needs as long as it needs."""
STATES = {"FINISHED", "FAILED", "KILLED"}


@pytest.fixture(scope="module")
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = request.config.getoption("--kill-home")
    path = Path(kept).resolve() if kept else tmp_path_factory.mktemp("kills")
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="module")
def stand(home: Path) -> Iterator[Stand]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PREFECT_HOME", "PREFECT_API_URL"):
            patch.delenv(name, raising=False)
        started = Stand(home, SETTINGS)
        try:
            started.wait()
            yield started
        finally:
            started.stop()


@pytest.fixture(scope="module")
def golden(stand: Stand, home: Path) -> Golden:
    """What a run that nobody kills leaves; every cell begins with it, less what its stage makes."""
    record = home / "golden.json"
    if record.exists():
        return Golden(**json.loads(record.read_text()))
    flow_run = stand.submit(FLOW)
    assert stand.wait_until_final(flow_run, RUN_SECONDS)[0] == "COMPLETED", stand.tail()
    lineage, runs = stand.lineage(flow_run), stand.tracked(flow_run)
    manifest = json.loads((stand.data / "training" / lineage["slmsearch.train_key"] / "manifest.json").read_text())
    spent = {name: manifest["spent"][name] / len(STEPS) for name in ("sampling", "update")}
    tables = {name.partition("/")[2]: rows for name, rows in stand.tables([run.id for run in runs]).items()}
    found = Golden(lineage, tables, stand.keys(flow_run), spent["sampling"], spent["update"])
    shutil.rmtree(home / "kept", ignore_errors=True)
    keep(stand, home / "kept")
    record.write_text(json.dumps(asdict(found)))
    return found


@pytest.mark.kill
@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_whatever_is_killed_states_become_true_and_the_same_run_again_ends_the_same(
    stand: Stand, golden: Golden, home: Path, cell: Cell, request: pytest.FixtureRequest
) -> None:
    last = home / "last.json"
    before = json.loads(last.read_text()) if last.exists() else ""
    last.unlink(missing_ok=True)
    if not comes_before(cell):
        stand.restart()
    if not before or before != comes_before(cell):
        prepare(stand, home / "kept", golden, cell)
    if cell.stage == "promote":
        stand.unpromote()
    row: dict[str, Any] = {"cell": cell.name, "target": cell.target, "signal": cell.signal.name, "stage": cell.stage, "passed": False}
    try:
        kill(stand, golden, cell, row)
        check_truth(stand, golden, cell, row)
        if row["flow_run"] != "COMPLETED" and not is_last(cell):
            last.write_text(json.dumps(cell.name))
        else:
            again = row["id"] if row["flow_run"] == "COMPLETED" else stand.submit(FLOW)
            assert stand.wait_until_final(again, RUN_SECONDS)[0] == "COMPLETED", stand.tail()
            check_end(stand, golden, again)
        row["passed"] = True
    except AssertionError as error:
        row["broken"] = str(error)[:2000]
        raise
    finally:
        if table := request.config.getoption("--kill-table"):
            write_table(Path(table), row)


@pytest.mark.kill
def test_where_nobody_is_left_to_say_so_the_automation_ends_what_has_no_heartbeat(stand: Stand) -> None:
    begun = time.monotonic()
    flow_run = stand.beat_once(FLOW)
    state, message = stand.wait_until_final(flow_run, RUN_SECONDS)
    took_s = time.monotonic() - begun
    print(f"no heartbeat: {state} after {took_s:.0f} s")
    assert (state, message) == ("CRASHED", "no heartbeat for 90 s")
    assert took_s > 85, "a healthy run has three heartbeats in that time"


def kill(stand: Stand, golden: Golden, cell: Cell, row: dict[str, Any]) -> None:
    """Start a flow run, kill what the cell says when it is in the stage, wait until all states are final, and note what was seen."""
    begun_at = sealed_step(stand, golden)
    killed = row["id"] = stand.submit(FLOW)
    engine = stand.engine(killed)
    row["moment"] = wait_for_stage(stand, killed, golden, cell, begun_at)
    family = [engine, *engine.children(recursive=True)]
    victim = {"flow": lambda: engine, "worker": stand.worker, "server": stand.server}[cell.target]()
    blow = time.monotonic()
    victim.send_signal(cell.signal)
    row["stood"] = where_it_stood(stand, golden, cell)
    row["flow_run"], row["message"] = stand.wait_until_final(killed, RUN_SECONDS)
    row["flow_run_s"] = round(time.monotonic() - blow, 1)
    wait_for(lambda: not stand.running(), END_SECONDS, f"no MLflow run shows as running\n{stand.tail()}", 0.1)
    row["states_s"] = round(time.monotonic() - blow, 1)
    row["left"] = [process.pid for process in still_alive([*family, victim])]
    row["mlflow"] = sorted({run.status for run in stand.tracked(killed)})
    if cell.stage in TRAINING:
        row["resumable_at"] = sealed_step(stand, golden)
    unfinished = [name for name, state in stand.task_runs(killed).items() if state in ("RUNNING", "PENDING")]
    row["tasks_left"] = len(unfinished)
    found = stand.keys(killed)
    row["same"] = found == {name: key for name, key in golden.keys.items() if name in found}


def check_truth(stand: Stand, golden: Golden, cell: Cell, row: dict[str, Any]) -> None:
    """What both trackers say after the kill, and what is left of it."""
    runs = stand.tracked(row["id"])
    assert not row["left"], "no process is left"
    assert {run.status for run in runs} <= STATES
    if cell.target == "flow":
        assert row["flow_run"] in ("CRASHED", "FAILED"), "a killed flow run has not completed"
    if row["flow_run"] == "COMPLETED":
        assert row["mlflow"] == ["FINISHED"]
    else:
        assert row["mlflow"] != ["FINISHED"], "the flow's own run has not finished"
        assert all(run.ended for run in runs if run.status != "FINISHED"), "every run says why it ended"
        assert row["message"], "the flow run says why it ended"
    if cell.stage in TRAINING and cell.signal == signal.SIGTERM and cell.target == "flow":
        assert any(f"resumable at step {row['resumable_at']}" in run.ended for run in runs if run.stage == "train")
    if cell.stage in TRAINING and row["flow_run"] != "COMPLETED":
        assert row["resumable_at"] >= 1
    assert row["same"], "the keys are those of a run that nobody killed"
    key = current_key(stand.data / "index")
    assert key is None or is_complete(stand.data / "index" / key), "CURRENT is valid"
    assert not stand.doubled()
    version = golden.lineage["slmsearch.model_version"]
    assert stand.champion() in ((version, 1), ("", 1) if cell.stage == "promote" else (version, 1)), "the alias is where it was, or moved"


def check_end(stand: Stand, golden: Golden, flow_run: str) -> None:
    """What the completed run has left is what the run left that nobody killed."""
    runs = stand.tracked(flow_run)
    assert {run.status for run in runs} == {"FINISHED"}
    assert not stand.running()
    assert stand.lineage(flow_run) == golden.lineage
    assert not stand.doubled()
    assert [stand.curve(run.id, "reward/mean") for run in runs if run.stage == "train"] == [STEPS]
    assert {name.partition("/")[2]: rows for name, rows in stand.tables([run.id for run in runs]).items()} == golden.tables
    assert stand.champion() == (golden.lineage["slmsearch.model_version"], 1)
