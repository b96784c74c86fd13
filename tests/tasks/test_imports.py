"""Runs of another machine's store, copied into this one: real SQLite stores."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient

from slmsearch.errors import ServiceError
from tasks.tracking import ADAPTER_HASH, KEY, OWNER, Tracker
from tasks.tracking.imports import COPIED_FROM, MACHINE, import_store
from tasks.tracking.run_registry import PARENT

FACTS = {"machine": "node", "gpu": "a card", "bundle": "b" * 64, "finished": True, "cores": 16, "outcome": {"n": 2}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked archive: a flow's run, a training that ended below it, and one that was killed."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "logs").mkdir()
    (folder / "logs" / "run.log").write_text("said")
    (folder / "results.json").write_text("{}")
    there = Tracker(f"sqlite:///{folder}/mlruns/mlflow.db", "slmsearch", folder / "mlruns")
    flow = there.start_run("train-and-eval", "key-flow")
    train = there.start_run("train", "key-train", flow)
    there.record_params(train, {"train.steps": 2})
    for step in (1, 2):
        there.record_step(train, step, {"reward/mean": step / 10}, time_s=1_000_000 + step)
    adapter = folder / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(b"weights")
    there.register_adapter(train, adapter, "searcher.v1", {ADAPTER_HASH: "h1"})
    there.end_run(train, "FINISHED")
    there.start_run("evaluate-after", "key-after", flow)
    there.end_run(flow, "FINISHED")
    return folder


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[Tracker]:
    mlflow.set_tracking_uri(None)
    yield Tracker(f"sqlite:///{tmp_path}/mlflow.db", "home", tmp_path)


def runs(tracker: Tracker) -> dict[str, Any]:
    return {run.info.run_name.split(" ")[0]: run for run in tracker.client.search_runs([tracker.experiment_id])}


def test_curves_params_artifacts_and_order_are_those_of_the_other_machine(tracker: Tracker, results: Path) -> None:
    root, new = import_store(tracker, FACTS, results, "b" * 64)
    found = runs(tracker)
    assert len(new) == 3 and set(found) == {"bundle", "train-and-eval", "train", "evaluate-after"}
    train = found["train"]
    assert train.data.params == {"train.steps": "2"}
    history = tracker.client.get_metric_history(train.info.run_id, "reward/mean")
    assert [(point.step, point.value, point.timestamp) for point in history] == [(1, 0.1, 1_000_001_000), (2, 0.2, 1_000_002_000)]
    assert [item.path for item in tracker.client.list_artifacts(train.info.run_id, "adapter")] == ["adapter/adapter_model.safetensors"]
    assert train.data.tags[PARENT] == found["train-and-eval"].info.run_id
    assert found["train-and-eval"].data.tags[PARENT] == root == found["bundle"].info.run_id
    assert {run.data.tags[MACHINE] for run in found.values()} == {"node"}
    assert not [run for run in found.values() if OWNER in run.data.tags]
    assert found["bundle"].data.params["gpu"] == "a card" and found["bundle"].info.status == "FINISHED"
    assert import_store(tracker, FACTS, results, "b" * 64) == (root, [])


def test_nothing_here_goes_on_with_what_did_not_finish_there(tracker: Tracker, results: Path) -> None:
    import_store(tracker, FACTS, results, "b" * 64)
    after = runs(tracker)["evaluate-after"]
    assert (after.info.status, after.data.tags[KEY]) == ("KILLED", "key-after-node")
    assert tracker.start_run("evaluate-after", "key-after") != after.info.run_id


def test_an_import_that_was_killed_is_made_whole(tracker: Tracker, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tracker, "record_step", fail)
        with pytest.raises(KeyboardInterrupt):
            import_store(tracker, FACTS, results, "b" * 64)
    import_store(tracker, FACTS, results, "b" * 64)
    found = tracker.client.search_runs([tracker.experiment_id])
    assert len(found) == 4
    assert len({run.data.tags[COPIED_FROM] for run in found}) == 4
    assert len(tracker.client.get_metric_history(runs(tracker)["train"].info.run_id, "reward/mean")) == 2


def test_a_later_archive_of_the_same_bundle_adds_what_is_new(tracker: Tracker, results: Path, tmp_path: Path) -> None:
    root, _ = import_store(tracker, {**FACTS, "finished": False}, results, "b" * 64)
    before = runs(tracker)
    assert (before["bundle"].info.status, before["evaluate-after"].info.status) == ("FAILED", "KILLED")
    later = tmp_path / "later"
    shutil.copytree(results, later)
    there = MlflowClient(f"sqlite:///{later}/mlruns/mlflow.db")
    (ended,) = [run for run in there.search_runs(["1"]) if run.info.run_name == "evaluate-after"]
    there.log_metric(ended.info.run_id, "answer/f1", 0.5)
    there.set_terminated(ended.info.run_id, "FINISHED")
    assert import_store(tracker, FACTS, later, "b" * 64) == (root, [])
    after = runs(tracker)
    assert {name: run.info.run_id for name, run in after.items()} == {name: run.info.run_id for name, run in before.items()}
    assert {run.info.status for run in after.values()} == {"FINISHED"}
    assert after["evaluate-after"].data.tags[KEY] == "key-after" and after["evaluate-after"].data.metrics == {"answer/f1": 0.5}


def test_a_store_that_cannot_be_read_is_said(tracker: Tracker, tmp_path: Path) -> None:
    (tmp_path / "other" / "mlruns").mkdir(parents=True)
    (tmp_path / "other" / "mlruns" / "mlflow.db").write_bytes(b"no database" * 100)
    with pytest.raises(ServiceError):
        import_store(tracker, FACTS, tmp_path / "other", "b" * 64)
