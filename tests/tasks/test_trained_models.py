"""Models that runs made, in a real SQLite store: checkpoints and registered adapters."""

import json
from pathlib import Path

import pytest

from tasks.tracking import ADAPTER_HASH, Tracker
from tests.tasks.test_tracking import MODEL, adapter, points


def test_a_checkpoint_is_a_model_of_its_run_with_the_metrics_of_its_step(tracker: Tracker, tmp_path: Path) -> None:
    with tracker.run("train", "key") as run_id:
        made = [tracker.record_checkpoint(run_id, step) for step in (5, 5, 10)]  # killed before its metrics, then again
        for step, checkpoint in ((4, None), (5, made[1]), (10, made[2])):
            tracker.record_step(run_id, step, {"reward/held_out": step / 10}, None, checkpoint)
        version = tracker.register_adapter(run_id, adapter(tmp_path / "a"), f"{MODEL}-checkpoints", {ADAPTER_HASH: "h1"})
    assert made[0] == made[1] != made[2] and version == "1"
    assert points(tracker, run_id, "reward/held_out") == [(4, 0.4), (5, 0.5), (10, 1.0)]
    outputs = tracker.client.get_run(run_id).outputs.model_outputs
    assert sorted((found.step, found.model_id) for found in outputs) == [
        (0, tracker.find_adapter(f"{MODEL}-checkpoints", "h1")),
        (5, made[0]),
        (10, made[2]),
    ]
    model = tracker.client.get_logged_model(made[2])
    assert (model.name, model.status, model.source_run_id) == ("step-10", "READY", run_id)
    assert [(metric.key, metric.value, metric.step) for metric in model.metrics] == [("reward/held_out", 1.0, 10)]


def test_an_adapter_is_registered_once_under_its_hash(tracker: Tracker, tmp_path: Path) -> None:
    name = f"{MODEL}-once"
    with tracker.run("train", "key") as run_id:
        tags = {ADAPTER_HASH: "h1", "slmsearch.train_key": "t1"}
        versions = [tracker.register_adapter(run_id, adapter(tmp_path / "a"), name, tags) for _ in range(2)]
        versions.append(tracker.register_adapter(run_id, adapter(tmp_path / "b"), name, {ADAPTER_HASH: "h2"}))
    assert versions == ["1", "1", "2"]
    fetched = tracker.fetch_adapter(name, "1")
    assert (fetched / "adapter_model.safetensors").read_bytes() == b"weights"
    models = [tracker.find_adapter(name, "h1"), tracker.find_adapter(name, "h2")]
    outputs = tracker.client.get_run(run_id).outputs.model_outputs
    assert sorted(found.model_id for found in outputs) == sorted(models) and tracker.find_adapter(name, "h3") is None
    known = tracker.client.get_logged_model(models[0]).tags
    assert known["slmsearch.train_key"] == "t1" and json.loads(known["mlflow.modelVersions"]) == [{"name": name, "version": "1"}]
    assert len(tracker.client.search_runs([tracker.experiment_id])) == 1, "no stray run"


def test_a_checkpoint_whose_record_was_killed_is_recorded(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with tracker.run("train", "key") as run_id:
        for call in ("log_outputs", "finalize_logged_model"):
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(tracker.client, call, killed)
                tracker.record_checkpoint(run_id, 5)
        made = tracker.record_checkpoint(run_id, 5)
    assert [found.model_id for found in tracker.client.get_run(run_id).outputs.model_outputs] == [made]
    assert tracker.client.get_logged_model(made).status == "READY"


def test_an_adapter_that_two_runs_made_is_a_model_of_both(tracker: Tracker, tmp_path: Path) -> None:
    name, tags = f"{MODEL}-both", {ADAPTER_HASH: "h1"}
    made = []
    for key in ("first", "second"):
        with tracker.run("train", key) as run_id:
            assert tracker.register_adapter(run_id, adapter(tmp_path / "a"), name, tags) == "1"
        made.append(run_id)
    with tracker.run("evaluate", "key") as run_id:
        for value in (0.5, 0.75):
            tracker.record_metrics(run_id, {"answer/f1": value}, tracker.find_adapter(name, "h1"))
    runs = [tracker.client.get_run(each) for each in (*made, run_id)]
    [model] = {found.model_id for run in runs[:2] for found in run.outputs.model_outputs}
    assert [found.model_id for found in runs[2].inputs.model_inputs] == [model]
    recorded = tracker.client.get_logged_model(model)
    assert [(one.key, one.value, one.run_id) for one in recorded.metrics] == [("answer/f1", 0.5, run_id)]
    assert (recorded.source_run_id, recorded.status, recorded.model_type) == (made[0], "READY", "adapter")


def test_an_adapter_whose_registration_was_killed_is_registered_with_all_its_files(
    tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, tags = f"{MODEL}-killed", {ADAPTER_HASH: "h1"}

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with tracker.run("train", "key") as run_id:
        for call in ("log_outputs", "log_model_artifacts", "finalize_logged_model", "create_model_version", "set_logged_model_tags"):
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(tracker.client, call, killed)
                tracker.register_adapter(run_id, adapter(tmp_path / "a"), name, tags)
        assert tracker.register_adapter(run_id, adapter(tmp_path / "a"), name, tags) == "1"
    assert len(tracker.client.search_logged_models([tracker.experiment_id], f"source_run_id = '{run_id}'")) == 1
    assert (tracker.fetch_adapter(name, "1") / "adapter_model.safetensors").read_bytes() == b"weights"


def test_a_purged_run_takes_its_models_along_but_not_that_of_another_run(tracker: Tracker, tmp_path: Path) -> None:
    made = {}
    for key, weights in (("kept", b"same"), ("purged", b"same"), ("purged", b"own")):
        with tracker.run("train", key) as run_id:
            tags = {ADAPTER_HASH: weights.decode()}
            version = tracker.register_adapter(run_id, adapter(tmp_path / weights.decode(), weights), f"{MODEL}-purged", tags)
            made[key] = (run_id, tracker.fetch_adapter(f"{MODEL}-purged", version))
            tracker.end_run(run_id, "FAILED")  # is resumed
    [(_, kept), (run_id, gone)] = made.values()
    tracker.client.delete_model_version(f"{MODEL}-purged", "2")
    tracker.delete_run(run_id)
    assert gone.is_dir(), "it can be restored"
    tracker.purge(run_id)
    assert not gone.parent.exists() and (kept / "adapter_model.safetensors").read_bytes() == b"same"
    assert tracker.find_adapter(f"{MODEL}-purged", "same") and tracker.find_adapter(f"{MODEL}-purged", "own") is None
