"""Moving the champion, against a real SQLite store: by one process, by two at once, by hand, and back."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from slmsearch.config import PathsConfig, RunConfig, TrackingConfig
from slmsearch.errors import ConfigError, ModelError, PromotionError
from tasks.promotion import promote_by_hand, roll_back_by_hand
from tasks.tracking import ADAPTER_HASH, CHAMPION, PromotionEvent, Tracker, move_champion, open_tracker, read_promotions, roll_back
from tasks.tracking.champions import HISTORY
from tests.root import ROOT

RACER = """
import sys, time
from pathlib import Path
from slmsearch.errors import PromotionError
from tasks.tracking import PromotionEvent, Tracker, move_champion
home = Path(sys.argv[1])
tracker = Tracker(f"sqlite:///{home}/mlflow.db", "race", home)
print("ready", flush=True)
for line in sys.stdin:
    model, version, start = line.split()
    while time.time() < float(start):
        pass
    try:
        move_champion(tracker, PromotionEvent(model, version, "promote", "it is better", "another process"), None)
        print("won", flush=True)
    except PromotionError:
        print("lost", flush=True)
"""
ROUNDS = 8


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlruns")


@pytest.fixture(scope="module", autouse=True)
def racer(home: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process, which loads its libraries while the first tests run."""
    MlflowClient(f"sqlite:///{home}/mlflow.db").search_experiments()  # two that make the tables at once would stumble
    command = [sys.executable, "-c", RACER, str(home)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    yield process
    process.communicate(timeout=30)


@pytest.fixture
def tracker(home: Path) -> Iterator[Tracker]:
    mlflow.set_tracking_uri(None)
    yield Tracker(f"sqlite:///{home}/mlflow.db", "promotion", home)


@pytest.fixture
def model(tracker: Tracker, request: pytest.FixtureRequest) -> str:
    """A registered model of three versions, made by a run that left an evaluation."""
    return make_model(tracker, request.node.name[:60])


def make_model(tracker: Tracker, name: str) -> str:
    with tracker.run("train-and-eval", name) as parent:
        tracker.set_tags(parent, {"slmsearch.eval_key_after": "e1"})
        with tracker.run("train", name, parent) as run_id:
            tracker.client.create_registered_model(name)
            for number in range(1, 4):
                tracker.client.create_model_version(name, f"runs:/{run_id}/adapter", run_id, {ADAPTER_HASH: f"h{number}"})
    return name


def config(home: Path, model: str) -> RunConfig:
    return RunConfig(
        paths=PathsConfig(mlruns_dir=str(home), data_dir=str(home)), tracking=TrackingConfig(experiment="promotion", registered_model=model)
    )


def promote(tracker: Tracker, model: str, version: str, expected: str | None, **values: str) -> PromotionEvent:
    return move_champion(tracker, PromotionEvent(model, version, "promote", "better", "me"), expected, **values)


def events(tracker: Tracker, model: str) -> list[tuple[str, str | None, str]]:
    return [(event.kind, event.previous, event.version) for event in read_promotions(tracker.home, model)]


def test_promotion_moves_the_alias_and_refuses_a_stale_decision(tracker: Tracker, model: str) -> None:
    assert tracker.champion(model) is None
    promote(tracker, model, "1", None)
    promote(tracker, model, "1", None)
    promote(tracker, model, "2", "1")
    with pytest.raises(PromotionError, match="moved from 1 to 2"):
        promote(tracker, model, "3", "1")
    champion = tracker.champion(model)
    assert champion is not None
    assert (champion["version"], champion[ADAPTER_HASH]) == ("2", "h2")
    assert (champion["slmsearch.promoted_from"], champion["slmsearch.promoted_by"], champion["slmsearch.promoted_why"]) == (
        "1",
        "me",
        "better",
    )
    assert events(tracker, model) == [("promote", None, "1"), ("promote", "1", "2")]


def test_a_run_that_has_ended_promotes_nothing(tracker: Tracker, model: str) -> None:
    run_id = tracker.start_run("train-and-eval", "key")
    tracker.end_run(run_id, "KILLED")
    with pytest.raises(PromotionError, match="is KILLED by now"):
        promote(tracker, model, "1", None, deciding_run=run_id)
    assert tracker.champion(model) is None and events(tracker, model) == []


def test_rollback_walks_back_through_promotions_and_says_why(tracker: Tracker, model: str) -> None:
    for version, expected in (("1", None), ("2", "1"), ("3", "2")):
        promote(tracker, model, version, expected)
    assert roll_back(tracker, model, "it invents pages", "me").version == "2"
    assert roll_back(tracker, model, "so does this", "me").version == "1"
    with pytest.raises(PromotionError, match="no champion before version 1"):
        roll_back(tracker, model, "and this", "me")
    promote(tracker, model, "3", "1")
    assert roll_back(tracker, model, "still", "me").version == "1", "it takes the place of what it was promoted over"
    tags = tracker.client.get_model_version(model, "2").tags
    assert (tags["slmsearch.rolled_back_to"], tags["slmsearch.rolled_back_why"]) == ("1", "so does this")
    assert [kind for kind, _, _ in events(tracker, model)] == ["promote"] * 3 + ["rollback"] * 2 + ["promote", "rollback"]


def test_a_move_from_outside_and_one_cut_short_are_written_down_by_the_next(tracker: Tracker, model: str) -> None:
    promote(tracker, model, "1", None)
    tracker.client.set_registered_model_alias(model, CHAMPION, "2")  # in MLflow's own pages
    promote(tracker, model, "3", "2")
    assert events(tracker, model) == [("promote", None, "1"), ("found", "1", "2"), ("promote", "2", "3")]
    history = tracker.home / HISTORY
    lines = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])  # killed while it wrote its line
    assert roll_back(tracker, model, "no", "me").version == "2"
    assert events(tracker, model) == [("promote", None, "1"), ("found", "1", "2"), ("promote", "2", "3"), ("rollback", "3", "2")]


def test_a_person_promotes_with_a_reason(home: Path, tracker: Tracker, model: str) -> None:
    place = config(home, model).paths, config(home, model).tracking
    event = promote_by_hand(*place, f"{model}/2", "  measured\nelsewhere ")
    assert (event.version, event.previous, event.why, event.eval_key) == ("2", None, "measured elsewhere", "e1")
    champion = open_tracker(*place).champion(model)
    assert champion is not None and champion["slmsearch.promotion_eval_key"] == "e1" and "@" in champion["slmsearch.promoted_by"]
    assert promote_by_hand(*place, "1", "no, this").previous == "2"
    assert roll_back_by_hand(*place, "no").version == "2"
    with pytest.raises(ModelError, match="has no version 9; it has 1, 2, 3"):
        promote_by_hand(*place, "9", "why not")
    for version, reason in (("two", "x"), ("/2", "x"), ("0", "x"), ("2", "  ")):
        with pytest.raises(ConfigError):
            promote_by_hand(*place, version, reason)


def test_nothing_to_roll_back_is_said(tracker: Tracker, model: str) -> None:
    with pytest.raises(PromotionError, match="no champion to roll back"):
        roll_back(tracker, model, "why", "me")
    assert events(tracker, model) == []


def test_of_two_processes_that_decided_on_the_same_champion_one_promotes(tracker: Tracker, racer: "subprocess.Popen[str]") -> None:
    assert racer.stdin is not None and racer.stdout is not None
    assert racer.stdout.readline() == "ready\n"
    for name in [make_model(tracker, f"race-{number}") for number in range(ROUNDS)]:
        start = time.time() + 0.05
        racer.stdin.write(f"{name} 1 {start}\n")
        racer.stdin.flush()
        while time.time() < start:
            pass
        try:
            promote(tracker, name, "2", None)
            mine = "won"
        except PromotionError:
            mine = "lost"
        theirs = racer.stdout.readline().strip()
        assert {mine, theirs} == {"won", "lost"}
        winner = "2" if mine == "won" else "1"
        champion = tracker.champion(name)
        assert champion is not None and champion["version"] == winner
        assert events(tracker, name) == [("promote", None, winner)], "one line for one move"
