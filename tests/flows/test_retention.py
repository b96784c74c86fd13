"""What is in use, after real flows over several corpora in one store."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slmsearch.config import RunConfig
from slmsearch.retrieval.versions import current_key
from slmsearch.training.files import LOCK
from tasks.retention import InUse, in_use, training_of
from tasks.tracking import CHAMPION, PREFIX, open_tracker
from tasks.tracking.champions import PROMOTION_EVAL
from tasks.tracking.service import KEY
from tests.flows.fakes import write_corpus
from tests.flows.plain import small_run, without_prefect


def run_on(home: Path, empty_store: Path, number: int) -> dict[str, Any]:
    """Train and evaluate on a corpus of its own."""
    from flows.train import train_and_eval

    def rename(questions: list[dict[str, Any]]) -> None:
        questions[0]["question"] = f"In which year was TownA0 founded, asked for the {number}th time?"

    config = small_run(home, empty_store, retrieval={"max_passage_chars": 500 + number})
    write_corpus(home / "corpus", rename)
    result: dict[str, Any] = train_and_eval.fn(config)
    return result


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[tuple[RunConfig, list[dict[str, Any]]]]:
    """Four runs on four corpora: the first promoted, the fourth current."""
    home = tmp_path_factory.mktemp("history")
    with pytest.MonkeyPatch.context() as patch:
        training = without_prefect(patch)
        runs = []
        for number in range(4):
            training.content = f"adapter {number}".encode()
            runs.append(run_on(home, empty_store, number))
        config = small_run(home, empty_store)
        open_tracker(config.paths, config.tracking).client.set_registered_model_alias(config.tracking.registered_model, CHAMPION, "1")
        yield config, runs


@pytest.fixture
def used(history: tuple[RunConfig, list[dict[str, Any]]]) -> InUse:
    return in_use(history[0], kept_versions=1)


def test_the_champions_whole_lineage_is_in_use(history: tuple[RunConfig, list[dict[str, Any]]], used: InUse) -> None:
    lineage = history[1][0]["lineage"]
    assert lineage["data_digest"] in used["corpora"]
    assert lineage["index_key"] in used["indexes"]
    assert lineage["train_key"] in used["trainings"]
    assert {value for name, value in lineage.items() if name.startswith("eval_key")} <= set(used["evals"])
    assert "is champion" in used["indexes"][lineage["index_key"]]
    assert history[1][0]["mlflow_run_id"] in used["runs"]


def test_what_nothing_needs_is_not_in_use(history: tuple[RunConfig, list[dict[str, Any]]], used: InUse) -> None:
    for run in history[1][1:3]:
        lineage = run["lineage"]
        assert lineage["index_key"] not in used["indexes"]
        assert lineage["train_key"] not in used["trainings"]
        assert lineage["eval_key_after"] not in used["evals"]
        assert run["mlflow_run_id"] not in used["runs"]
    assert history[1][2]["lineage"]["train_key"] in in_use(history[0], kept_versions=2)["trainings"]


def test_the_current_index_is_in_use_with_its_pages(history: tuple[RunConfig, list[dict[str, Any]]], used: InUse) -> None:
    config, runs = history
    current = current_key(config.paths.index)
    assert current == runs[3]["lineage"]["index_key"]
    assert used["indexes"][current]
    assert runs[3]["lineage"]["data_digest"] in used["corpora"]


def test_what_a_live_run_touches_is_in_use(history: tuple[RunConfig, list[dict[str, Any]]], tmp_path: Path) -> None:
    config, runs = history
    tracker = open_tracker(config.paths, config.tracking)
    parent = tracker.start_run("train-and-eval", "whole")
    finished = tracker.start_run("index", runs[1]["lineage"]["index_key"], parent)
    tracker.end_run(finished, "FINISHED")
    building = tracker.start_run("train", "a" * 20, parent)
    playing = tracker.start_run("evaluate-before", "b" * 20, parent)
    fresh = config.paths.evals / ("c" * 20)
    fresh.mkdir(parents=True)
    try:
        used = in_use(config, kept_versions=1)
        assert runs[1]["lineage"]["index_key"] in used["indexes"]
        assert "a" * 20 in used["trainings"] and "b" * 20 in used["evals"]
        assert fresh.name in used["evals"], "written since the run began"
        assert {parent, finished, building, playing} <= set(used["runs"])
    finally:
        fresh.rmdir()
        for run_id in (building, playing, parent):
            tracker.end_run(run_id, "FAILED")
    assert runs[1]["lineage"]["index_key"] not in in_use(config, kept_versions=1)["indexes"]


def test_a_training_that_a_process_holds_is_in_use_with_what_it_is_made_from(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, runs = history
    lineage = runs[2]["lineage"]
    lock = config.paths.training / lineage["train_key"] / LOCK
    lock.write_text(str(os.getpid()))
    try:
        used = in_use(config, kept_versions=1)
        assert lineage["train_key"] in used["trainings"] and lineage["index_key"] in used["indexes"]
    finally:
        lock.unlink()


def test_a_run_that_ended_lately_keeps_what_it_touched_however_long_ago_it_began(
    history: tuple[RunConfig, list[dict[str, Any]]],
) -> None:
    config, runs = history
    key, client = runs[1]["lineage"]["train_key"], open_tracker(config.paths, config.tracking).client
    found = client.search_runs([client.get_experiment_by_name(config.tracking.experiment).experiment_id], f"tags.`{KEY}` = '{key}'")
    began = client.create_run(found[0].info.experiment_id, start_time=1, tags={**found[0].data.tags, KEY: key}).info.run_id
    client.set_terminated(began, "KILLED", end_time=10**15)
    assert key in in_use(config, kept_versions=1, used_since=10**11)["trainings"]
    client.delete_run(began)
    assert key not in in_use(config, kept_versions=1, used_since=10**11)["trainings"]


def test_what_is_evaluated_and_what_a_champion_was_promoted_by_stay(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, runs = history
    tracker, key = open_tracker(config.paths, config.tracking), runs[1]["lineage"]["train_key"]
    adapter = str(config.paths.training / key / "adapter")
    for name in ("evaluate.policy", "learn.writer", "learn.reader"):
        assert key in in_use(config.changed({name: adapter}), kept_versions=1)["trainings"]
    assert training_of(config.paths, adapter).key == key
    playing = tracker.start_run("evaluate-policy", "e" * 20, tags={f"{PREFIX}train_key": key})
    assert key in in_use(config, kept_versions=1)["trainings"], "while it is played"
    tracker.end_run(playing, "FINISHED")
    assert key not in in_use(config, kept_versions=1)["trainings"]
    tracker.client.set_model_version_tag(config.tracking.registered_model, "1", PROMOTION_EVAL, "f" * 20)
    assert "f" * 20 in in_use(config, kept_versions=1)["evals"]
    tracker.client.delete_model_version_tag(config.tracking.registered_model, "1", PROMOTION_EVAL)


def test_a_start_that_a_training_in_use_was_made_from_is_in_use(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, runs = history
    start = config.paths.training / f"sft-{'d' * 20}"
    job = config.paths.training / runs[0]["lineage"]["train_key"] / "job.json"
    before = job.read_text()
    changed = json.loads(before)
    changed["config"]["policy"]["adapter"] = str(start / "adapter")
    job.write_text(json.dumps(changed))
    try:
        assert start.name in in_use(config, kept_versions=1)["trainings"]
    finally:
        job.write_text(before)


def test_what_the_configuration_names_is_in_use(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, runs = history
    key = runs[1]["lineage"]["train_key"]
    named = config.model_copy(update={"policy": config.policy.model_copy(update={"adapter": str(config.paths.training / key / "adapter")})})
    assert key in in_use(named, kept_versions=1)["trainings"]


def test_without_a_store_only_the_disk_speaks(tmp_path: Path) -> None:
    config = RunConfig.model_validate({"paths": {"data_dir": str(tmp_path / "data"), "mlruns_dir": str(tmp_path / "mlruns")}})
    assert not any(in_use(config).values())
    assert not (tmp_path / "mlruns").exists(), "reading creates nothing"
