"""Against a real SQLite store in a temporary folder."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from flows.runtime.links import mlflow_run_url
from slmsearch.config import PathsConfig, RunConfig, TrackingConfig
from slmsearch.errors import ServiceError
from tasks import owners, tracking
from tasks.owners import RUN_VARIABLE, require_reachable
from tasks.tracking import ADAPTER_HASH, FLOW_RUN_NAME, OWNER, RunRegistry, Tracker
from tests.root import ROOT

MODEL = "searcher"


def points(tracker: Tracker, run_id: str, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in tracker.client.get_metric_history(run_id, name)]


def status(tracker: Tracker, run_id: str) -> str:
    return str(tracker.client.get_run(run_id).info.status)


def adapter(folder: Path, content: bytes = b"weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(content)
    return folder


def test_the_default_store_is_sqlite_beside_its_artifacts(tmp_path: Path) -> None:
    config = RunConfig(paths=PathsConfig(mlruns_dir=str(tmp_path)))
    assert tracking.tracking_uri(config.paths, config.tracking) == f"sqlite:///{tmp_path}/mlflow.db"
    assert tracking.tracking_uri(PathsConfig(), TrackingConfig(uri="http://host:1")) == "http://host:1"


def test_user_and_password_of_an_mlflow_server_go_to_mlflow_by_its_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    config = RunConfig(tracking=TrackingConfig(uri="http://me:a%40b@host:1/mlflow"))
    assert tracking.tracking_uri(config.paths, config.tracking) == "http://host:1/mlflow"
    assert (os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]) == ("me", "a@b")
    assert mlflow_run_url(config.tracking, "1", "r", None) == "http://host:1/mlflow/#/experiments/1/runs/r"


def test_artifacts_lie_where_the_store_is_whatever_the_current_directory(tracker: Tracker, store: Path) -> None:
    with tracker.run("stage", "key") as run_id:
        tracker.record_json(run_id, {"a": 1}, "config.json")
    assert (store / "artifacts" / run_id / "artifacts" / "config.json").is_file()


def test_a_text_is_one_version_of_a_prompt_however_often_it_opens_an_episode(tracker: Tracker, store: Path) -> None:
    def opening(system: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": system, "tools": "[]"}, {"role": "user", "content": "{{question}}"}]

    with tracker.run("train", "key") as run_id:
        texts = ("Search {it}.", "Read.", "Read.", "Search {it}.")
        versions = [tracker.record_prompt(run_id, "opening-prompt", opening(text)) for text in texts]
    assert versions == ["1", "2", "2", "1"]
    found = tracker.client.get_prompt_version("opening-prompt", 1)
    assert found is not None
    assert found.format(question="Who?") == [{"role": "system", "content": "Search {it}."}, {"role": "user", "content": "Who?"}]
    linked = json.loads(tracker.client.get_run(run_id).data.tags["mlflow.linkedPrompts"])
    assert sorted(prompt["version"] for prompt in linked) == ["1", "2"]
    other = Tracker(f"sqlite:///{store}/mlflow.db", "another", store)
    with other.run("train", "key") as run_id:
        other.record_prompt(run_id, "opening-prompt", opening("Read."))
    for experiment_id in (tracker.experiment_id, other.experiment_id):  # MLflow's page of an experiment asks so
        assert [prompt.name for prompt in tracker.client.search_prompts(f'experiment_id = "{experiment_id}"')] == ["opening-prompt"]
    default = tracker.client.get_experiment_by_name("Default")
    assert default is not None
    assert not tracker.client.search_prompts(f'experiment_id = "{default.experiment_id}"')


def test_runs_end_as_what_happened(tracker: Tracker) -> None:
    ids = {}
    with tracker.run("good", "1") as ids["FINISHED"]:
        pass
    with pytest.raises(ValueError), tracker.run("bad", "2") as ids["FAILED"]:
        raise ValueError
    with pytest.raises(SystemExit), tracker.run("stopped", "3") as ids["KILLED"]:
        raise SystemExit(143)
    assert {name: status(tracker, run_id) for name, run_id in ids.items()} == {name: name for name in ids}


def test_an_unfinished_run_is_gone_on_with_and_a_finished_one_is_not(tracker: Tracker) -> None:
    with pytest.raises(ValueError), tracker.run("train", "key") as first:
        raise ValueError
    with tracker.run("train", "key") as second:
        assert status(tracker, second) == "RUNNING"
    with tracker.run("train", "key") as third, tracker.run("train", "other") as fourth, tracker.run("evaluate", "key") as fifth:
        pass
    assert first == second
    assert len({second, third, fourth, fifth}) == 4


def test_a_flows_run_is_named_after_its_flow_run_also_where_another_goes_on_with_it(tracker: Tracker) -> None:
    def name(run_id: str) -> str:
        return str(tracker.client.get_run(run_id).info.run_name)

    with pytest.raises(ValueError), tracker.run("train-and-eval", "key", tags={FLOW_RUN_NAME: "jade-dove"}) as first:
        stage = tracker.start_run("train", "key", first, {FLOW_RUN_NAME: "jade-dove"})
        assert (name(first), name(stage)) == ("train-and-eval jade-dove", "train")
        raise ValueError
    assert tracker.start_run("train-and-eval", "key", tags={FLOW_RUN_NAME: "brave-newt"}) == first
    assert name(first) == "train-and-eval brave-newt"
    recorded = {run.id: run.name for run in tracker.runs()}
    assert (recorded[first], recorded[stage]) == ("train-and-eval brave-newt", "train")


def test_a_run_whose_process_lives_is_left_alone(tracker: Tracker) -> None:
    running = tracker.start_run("train", "key")
    assert tracker.start_run("train", "key") != running
    assert tracker.end_orphans() == 0
    assert status(tracker, running) == "RUNNING"


def test_a_run_whose_process_is_gone_is_ended_or_gone_on_with(tracker: Tracker) -> None:
    lost, other = tracker.start_run("train", "key"), tracker.start_run("evaluate", "key")
    gone = f"{socket.gethostname()} {os.getpid()} 12345"  # this process' id, but another start: the id was used again
    for run_id in (lost, other):
        tracker.set_tags(run_id, {OWNER: gone})
    assert tracker.start_run("train", "key") == lost
    assert tracker.end_orphans() == 1
    assert status(tracker, other) == "KILLED"
    assert status(tracker, lost) == "RUNNING"


def test_a_run_that_another_process_took_over_meanwhile_is_not_ended(tracker: Tracker, store: Path) -> None:
    """It was ended as lost by whoever had listed it before."""
    lost = tracker.start_run("train", "key")
    tracker.set_tags(lost, {OWNER: f"{socket.gethostname()} {os.getpid()} 12345"})
    first, second = ([run] for run in tracker.running() * 2 if run.id == lost)
    assert tracker.start_run("train", "key") == lost
    assert not tracker.end_dead_run(*first, "KILLED", "its process was gone")
    assert status(tracker, lost) == "RUNNING"
    tracker.set_tags(lost, {OWNER: second[0].tags[OWNER]})
    registries = [tracker, RunRegistry(tracker.uri, store)]
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda each: each.end_dead_run(*second, "KILLED", "its process was gone"), registries)) == [False, True]


def test_owners_of_other_machines_count_as_living() -> None:
    assert not owners.is_orphan("elsewhere 1 12345")
    assert not owners.is_orphan("")
    assert not owners.is_orphan(owners.owner_tag())
    assert owners.is_orphan(f"{socket.gethostname()} {2**22 - 3} 12345")


def test_a_run_told_to_stop_in_the_middle_of_a_write_ends_the_write_first(tracker: Tracker) -> None:
    class Told(BaseException):
        """As Prefect's handler raises it."""

    def raise_it(*_: object) -> None:
        raise Told

    written: list[str] = []
    write = tracker.client.log_batch

    def write_slowly(run_id: str, **what: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        written.append("begun")
        write(run_id, **what)
        written.append("ended")

    before = signal.signal(signal.SIGTERM, raise_it)
    try:
        with pytest.raises(Told), tracker.run("train", "told") as run_id, pytest.MonkeyPatch.context() as patch:
            patch.setattr(tracker.client, "log_batch", write_slowly)
            tracker.set_tags(run_id, {"a": "b"})
        assert written == ["begun", "ended"]
        assert signal.getsignal(signal.SIGTERM) is raise_it
        assert (status(tracker, run_id), tracker.find_tag(run_id, "a")) == ("KILLED", "b")
    finally:
        signal.signal(signal.SIGTERM, before)


def test_children_name_their_parent(tracker: Tracker) -> None:
    with tracker.run("pipeline", "key") as parent, tracker.run("train", "key", parent) as child:
        pass
    assert tracker.find_tag(child, "mlflow.parentRunId") == parent
    assert tracker.find_tag(child, "no such tag") is None
    assert tracker.find_tag("0" * 32, "mlflow.parentRunId") is None


def test_params_are_recorded_in_batches_and_never_changed(tracker: Tracker) -> None:
    with tracker.run("stage", "key") as run_id:
        tracker.record_params(run_id, {f"section.{i}": i for i in range(230)})
        tracker.record_params(run_id, {"section.1": "changed", "new": "x" * 9000})
    params = tracker.client.get_run(run_id).data.params
    assert len(params) == 231
    assert params["section.1"] == "1"
    assert len(params["new"]) == tracking.MAX_PARAM_CHARS


def test_a_resumed_curve_has_no_point_twice(tracker: Tracker) -> None:
    curve = [(step, {"reward/mean": step / 10, "loss": -step / 10}, 1e9 + step) for step in range(1, 6)]
    with pytest.raises(ValueError), tracker.run("train", "key") as run_id:
        for point in curve[:3]:
            tracker.record_step(run_id, *point)
        raise ValueError
    with tracker.run("train", "key") as run_id:
        last = tracker.last_step(run_id)
        for point in curve[last:]:
            tracker.record_step(run_id, *point)
    assert points(tracker, run_id, "reward/mean") == [(step, step / 10) for step in range(1, 6)]
    assert len(points(tracker, run_id, "loss")) == 5


def test_a_run_without_metrics_starts_at_step_0(tracker: Tracker) -> None:
    with tracker.run("train", "key") as run_id:
        assert tracker.last_step(run_id) == 0


def test_metrics_recorded_again_stay_one_point(tracker: Tracker) -> None:
    with tracker.run("evaluate", "key") as run_id:
        tracker.record_metrics(run_id, {"answer/f1": 0.5})
        tracker.record_metrics(run_id, {"answer/f1": 0.5, "answer/exact_match": 0.25})
    assert points(tracker, run_id, "answer/f1") == [(0, 0.5)]
    assert points(tracker, run_id, "answer/exact_match") == [(0, 0.25)]


def test_a_table_recorded_again_keeps_its_rows(tracker: Tracker) -> None:
    rows = [{"question": "Who?", "answer": "lone \ud800 surrogate"}, {"question": "Where?", "answer": None}]
    with tracker.run("evaluate", "key") as run_id:
        for _ in range(2):
            tracker.record_table(run_id, rows, "eval/abc.json")
        tracker.record_table(run_id, [], "eval/empty.json")
    table = tracker.client.load_table(tracker.experiment_id, "eval/abc.json", [run_id])
    assert list(table["question"]) == ["Who?", "Where?"]
    assert [item.path for item in tracker.client.list_artifacts(run_id, "eval")] == ["eval/abc.json"]


def test_a_dataset_is_an_input_with_its_digest(tracker: Tracker) -> None:
    with tracker.run("train", "key") as run_id:
        for _ in range(2):
            tracker.record_dataset(run_id, "corpus", "a" * 20, 'C:\\odd "name".jsonl', '{"pages": 3}', "training")
    inputs = tracker.client.get_run(run_id).inputs.dataset_inputs
    assert [(found.dataset.digest, found.tags[0].value) for found in inputs] == [("a" * 20, "training")]


MAKER = """
import sys
from tasks.tracking import Tracker
if len(sys.argv) > 2:
    import os, sqlalchemy
    left = int(sys.argv[2])
    def kill(*_):
        global left
        if not (left := left - 1):
            os.kill(os.getpid(), 9)
    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "after_cursor_execute", kill)
Tracker("sqlite:///mlflow.db", "experiment", __import__("pathlib").Path.cwd())
"""


@pytest.mark.slow
def test_a_store_is_made_whole_whoever_else_makes_it_and_whenever_its_maker_was_killed(tmp_path: Path) -> None:
    """A kill after the 88th statement left MLflow a table too many, and of two that made the tables one failed."""

    def start(*kill_after: str) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, "-c", MAKER, *kill_after], cwd=tmp_path, env=environment)

    assert start(".", "88").wait() == -signal.SIGKILL
    assert len(list(tmp_path.glob(".tmp-mlflow.db-*/mlflow.db"))) == 1
    assert [process.wait() for process in [start(), start()]] == [0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlflow.db", "mlflow.db.lock"]
    assert (tmp_path / "mlflow.db").stat().st_mode & 0o077 == 0


def linger(patch: pytest.MonkeyPatch, name: str) -> None:
    """Make whoever has looked something up wait for another to have looked as well, if it can."""
    both, look = threading.Barrier(2), getattr(Tracker, name)

    def look_and_linger(*arguments: str) -> str | None:
        found: str | None = look(*arguments)
        with suppress(threading.BrokenBarrierError):
            both.wait(1)
        return found

    patch.setattr(Tracker, name, look_and_linger)


def test_two_that_record_one_dataset_at_a_time_share_it(tracker: Tracker) -> None:
    """Of two evaluations that found the questions' data set missing one failed."""
    both = threading.Barrier(2)

    def linger_before_adding(_: object, __: object, statement: str, *___: object) -> None:
        if statement.startswith("INSERT INTO datasets"):
            with suppress(threading.BrokenBarrierError):
                both.wait(1)

    event.listen(Engine, "before_cursor_execute", linger_before_adding)
    try:
        with tracker.run("train", "one") as one, tracker.run("train", "two") as two, ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda run_id: tracker.record_dataset(run_id, "at-a-time", "b" * 20, "here", "{}", "training"), (one, two)))
    finally:
        event.remove(Engine, "before_cursor_execute", linger_before_adding)
    inputs = [tracker.client.get_run(run_id).inputs.dataset_inputs for run_id in (one, two)]
    assert [[found.dataset.digest for found in each] for each in inputs] == [["b" * 20]] * 2


def test_two_that_register_one_adapter_at_a_time_get_one_version(
    tracker: Tracker, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linger(monkeypatch, "_find_version")
    trackers = [tracker, Tracker(f"sqlite:///{store}/mlflow.db", "second", store)]
    made, name = adapter(tmp_path / "a"), f"{MODEL}-at-a-time"
    with tracker.run("train", "key") as run_id, ThreadPoolExecutor(2) as pool:
        versions = list(pool.map(lambda each: each.register_adapter(run_id, made, name, {ADAPTER_HASH: "h1"}), trackers))
    assert versions == ["1", "1"]


def test_of_two_at_a_time_one_goes_on_with_an_unfinished_run(tracker: Tracker, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = tracker.start_run("index", "key")
    tracker.end_run(killed, "KILLED", "told to stop")
    linger(monkeypatch, "_unfinished")
    trackers = [tracker, Tracker(f"sqlite:///{store}/mlflow.db", "test_of_two_at_a_time_one_goes_on_with_an_unfinished_run"[:60], store)]
    assert trackers[0].experiment_id == trackers[1].experiment_id
    with ThreadPoolExecutor(2) as pool:
        started = list(pool.map(lambda each: each.start_run("index", "key"), trackers))
    assert killed in started and len(set(started)) == 2


def test_an_unreachable_server_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"no MLflow server answers at http://127\.0\.0\.1:9"):
        Tracker("http://127.0.0.1:9", "experiment", tmp_path)


def test_a_flow_run_waits_for_a_server_that_is_being_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception | None] = [OSError("refused"), OSError("refused"), None]
    monkeypatch.setattr(owners, "_unreachable", lambda _: answers.pop(0))
    monkeypatch.setattr(owners, "time", SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic))
    monkeypatch.setenv(RUN_VARIABLE, "some flow run")
    require_reachable("http://127.0.0.1:9")
    assert answers == []
    monkeypatch.setattr(owners, "RESTART_S", 0.0)
    answers.append(OSError("refused"))
    with pytest.raises(ServiceError, match="no MLflow server answers"):
        require_reachable("http://127.0.0.1:9")


def test_a_store_that_cannot_be_read_is_a_service_error(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database, not even a small one")
    with pytest.raises(ServiceError):
        Tracker(f"sqlite:///{tmp_path}/mlflow.db", "experiment", tmp_path)
