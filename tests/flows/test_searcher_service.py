"""From settings and the promoted version to what is served; and what is refused before anything is loaded."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.runtime.settings import API_TOKEN, load_config, recordable
from flows.stages import policy_choice
from flows.stages.policy_choice import SearcherChoice
from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.errors import IndexUnusableError, ModelError, ServiceError
from slmsearch.serving.api.feedback import Feedback, FeedbackLog
from slmsearch.serving.api.playing import Answer
from tasks import served
from tasks.promotion import Champion
from tasks.served import ServedTraces
from tasks.traces import Assessment
from tests.flows.test_commands import Invoke, invoke

__all__ = ["invoke"]
TAGS = {"version": "3", "slmsearch.data_digest": "d1", "slmsearch.index_key": "k1"}


@pytest.fixture
def session(tmp_path: Path) -> Any:
    config = RunConfig().changed({"paths.data_dir": str(tmp_path), "policy.model": str(tmp_path / "model")})
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return type("S", (), {"config": config, "say": staticmethod(lambda text: None)})


@pytest.fixture
def champion(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str] | None], None]:
    def choose(tags: dict[str, str] | None) -> None:
        found = Champion(None, "slmsearch-searcher", tags) if tags else None  # type: ignore[arg-type]
        monkeypatch.setattr(policy_choice, "find_champion", lambda paths, tracking: found)

    monkeypatch.setattr(Champion, "documents", None)
    monkeypatch.setattr(Champion, "policy", lambda self, configured: PolicyConfig(model=f"adapter {self.version}"))
    return choose


def test_the_champion_plays_on_the_index_that_it_was_evaluated_on(session: Any, champion: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_choice, "is_complete", lambda version: version.name == "k1")
    (session.config.paths.corpora / "d1").mkdir(parents=True)
    champion(TAGS)
    for name in (None, "champion"):
        found = SearcherChoice(session.config, name, session.say).find()
        assert (found.version, found.corpus_digest, found.index_key) == ("slmsearch-searcher/3", "d1", "k1")
        assert found.spec.policy is not None and found.spec.policy.model == "adapter 3"
    assert SearcherChoice(session.config, None, session.say).find_new(found) is None
    champion({**TAGS, "version": "4"})
    new = SearcherChoice(session.config, None, session.say).find_new(found)
    assert new is not None and new.version == "slmsearch-searcher/4"


@pytest.mark.parametrize("tags", [TAGS, {"version": "3"}])
def test_an_index_version_that_is_not_here_is_one_line(session: Any, champion: Any, tags: dict[str, str]) -> None:
    champion(tags)
    with pytest.raises(IndexUnusableError, match=r"champion slmsearch-searcher/3 answers from index version .*slmsearch index build"):
        SearcherChoice(session.config, None, session.say).find()


def test_without_a_champion_the_configured_policy_is_served(session: Any, champion: Any) -> None:
    champion(None)
    assert (
        SearcherChoice(session.config, None, session.say).find().version,
        SearcherChoice(session.config, None, session.say).find().index_key,
    ) == (
        "untrained",
        None,
    )
    assert SearcherChoice(session.config, "retrieve-then-answer", session.say).find().spec.policy is None
    assert SearcherChoice(session.config, None, session.say).find_new(SearcherChoice(session.config, None, session.say).find()) is None
    with pytest.raises(ModelError, match="no champion yet"):
        SearcherChoice(session.config, "champion", session.say).find()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), f"set {API_TOKEN}, or leave --host 0.0.0.0 out"),
        (("--policy", "worker-alone"), "cannot search"),
        (("--service.queue", "0"), "service.queue"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_loaded(invoke: Invoke, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = invoke("serve", "searcher", *arguments)
    assert code == 2 and said in err and "Traceback" not in err


def test_a_planner_is_not_served(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLMSEARCH_ENVIRONMENT", "planner")
    code, _, err = invoke("serve", "searcher")
    assert code == 2 and "environment planner is no searcher" in err


def test_the_token_is_no_setting(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    monkeypatch.setenv(API_TOKEN, "s3cret-token")
    assert "s3cret-token" not in str(recordable(load_config()))
    code, out, err = invoke("config", "--json")
    assert code == 0 and "s3cret-token" not in out + err
    monkeypatch.setenv(API_TOKEN, "two words")
    code, _, err = invoke("serve", "searcher")
    assert code == 2 and "visible ASCII" in err and "two words" not in err


def answer(number: int) -> Answer:
    return Answer(Episode(f"q{number}", (), StopReason.ANSWERED), (), "tiny/1", "k1")


def test_traces_are_written_beside_the_answering(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    entered, go, written = threading.Event(), threading.Event(), []

    class Store:
        def record_trace(self, root: Any, tags: dict[str, str]) -> None:
            entered.set()
            assert go.wait(20)
            if tags["question_id"] == "q1":
                raise ServiceError("MLflow is down")
            written.append((root.inputs["question"], tags["model_version"], tags["index_key"], tags["source"]))

    monkeypatch.setattr(served, "MAX_WAITING", 3)
    traces: Any = ServedTraces(Store, 1.0)  # type: ignore[arg-type]
    traces.offer("first", answer(0))
    assert entered.wait(20)
    for number in range(1, 6):
        traces.offer(f"question {number}", answer(number))
    go.set()
    traces.close()
    assert written == [(text, "tiny/1", "k1", "service") for text in ("first", "question 2", "question 3")]
    assert "MLflow is down" in caplog.text and "3 wait to be written" in caplog.text


def test_a_share_of_the_episodes_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    store = type("Store", (), {"record_trace": lambda self, root, tags: written.append(tags["question_id"])})
    monkeypatch.setattr(served, "MAX_WAITING", 0)  # no limit
    traces = ServedTraces(store, 0.3)
    for number in range(1000):
        traces.offer("?", answer(number))
    traces.close()
    assert 200 < len(written) < 400


class FeedbackStore:
    """A store that is down, refuses traces, or works."""

    def __init__(self, state: str) -> None:
        self.state, self.tries = state, threading.Semaphore(0)
        self.recorded: list[tuple[str, Any]] = []
        self.asked: list[str] = []
        self.found: dict[str, list[Assessment]] = {}

    def record_trace(self, root: Any, tags: dict[str, str]) -> None:
        if self.state == "refuses":
            raise ServiceError("MLflow: 413 Request Entity Too Large")
        self.recorded.append((tags["question_id"], root))
        self.found[tags["question_id"]] = [*root.assessments]

    def assess(self, name: str, given: list[Assessment]) -> bool:
        self.asked.append(name)
        self.tries.release()
        if self.state == "down":
            raise ServiceError("MLflow is down")
        if name in self.found:
            known = {(one.name, one.id) for one in self.found[name]}
            self.found[name] += [one for one in given if (one.name, one.id) not in known]
        return name in self.found

    def said(self) -> dict[str, list[tuple[str, object]]]:
        return {name: [(one.name, one.value) for one in given] for name, given in self.found.items()}


NAMES = [f"{number:032x}" for number in range(4)]


def say(log: FeedbackLog, number: int, verdict: Any = "right", correct: str | None = None) -> None:
    log.append(Feedback(f"question {number}?", "A", verdict, correct, completion=f"chatcmpl-{NAMES[number]}"))


def numbered(number: int) -> Answer:
    return replace(answer(number), episode=replace(answer(number).episode, question_id=NAMES[number]))


@pytest.fixture
def ratings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeedbackLog:
    monkeypatch.setattr(served, "AGAIN_SECONDS", 0.01)
    log = FeedbackLog(tmp_path / "feedback.jsonl")
    say(log, 0)  # before anything was traced
    return log


def start(store: FeedbackStore, log: FeedbackLog, frac: float = 0.0) -> ServedTraces:
    return ServedTraces(lambda: store, frac, log)  # type: ignore[arg-type, return-value]


def test_feedback_reaches_its_trace_when_the_store_is_up_again(ratings: FeedbackLog) -> None:
    store = FeedbackStore("down")
    traces = start(store, ratings)
    traces.offer("new?", numbered(1))
    say(ratings, 1, "wrong", "C")
    assert all(store.tries.acquire(timeout=20) for _ in range(4)), "it is tried again"
    store.state = "up"
    ratings.append(Feedback("odd?", None, "wrong", completion="' or 1", within="folder: reports"))
    traces.close()
    odd = ratings.read().records[2].id
    assert store.said() == {NAMES[1]: [("correct", False), ("expected_response", "C")], odd: [("correct", False)]}
    roots = dict(store.recorded)
    assert roots[NAMES[1]].attributes["stop_reason"] == "answered", "the episode was at hand"
    assert roots[odd].inputs == {"question": "odd?", "within": "folder: reports"} and roots[odd].outputs == ""
    assert roots[odd].assessments[0].created == ratings.read().records[2].created

    again = FeedbackStore("up")
    traces = start(again, ratings)
    say(ratings, 3)
    traces.close()
    assert set(again.asked) == {NAMES[3]}, "what was written is not looked at again"


def test_a_kill_between_writing_and_noting_it_writes_nothing_twice(ratings: FeedbackLog) -> None:
    store, noted = FeedbackStore("up"), ratings.path.with_name("feedback.jsonl.traced")
    start(store, ratings).close()
    before = noted.read_text()
    say(ratings, 1, "wrong")
    start(store, ratings).close()
    noted.write_text(before)
    assert store.asked == [NAMES[1]]
    start(store, ratings).close()
    assert store.said() == {NAMES[1]: [("correct", False)]} and store.asked == [NAMES[1]] * 2
    assert [name for name, _ in store.recorded] == [NAMES[1]]


@pytest.mark.parametrize("longer", [False, True])
@pytest.mark.parametrize("noted", [False, True])
def test_the_log_that_lies_in_the_place_of_another_is_written_whole(ratings: FeedbackLog, noted: bool, longer: bool) -> None:
    store = FeedbackStore("up")
    start(store, ratings).close()
    if noted:
        say(ratings, 1)
        start(store, ratings).close()
    elif longer:
        return  # it cannot be told from one that grew
    ratings.path.rename(ratings.path.with_suffix(".old"))
    if longer:
        ratings.append(Feedback("x" * 1000, "A", "right"))
    ratings.append(Feedback("y?", "A", "wrong"))
    start(store, ratings).close()
    assert {one.id for one in ratings.read().records} <= set(store.found)


def test_a_trace_that_mlflow_refuses_holds_nothing_up(ratings: FeedbackLog, caplog: pytest.LogCaptureFixture) -> None:
    store = FeedbackStore("refuses")
    traces = start(store, ratings)
    say(ratings, 1)
    say(ratings, 2)
    assert all(store.tries.acquire(timeout=20) for _ in range(served.TRIES + 1)), "the next one has its turn"
    store.state = "up"
    traces.close()
    assert NAMES[2] in store.found and NAMES[1] not in store.found and "alone: MLflow: 413" in caplog.text


def test_an_answer_that_waits_is_recorded_before_its_feedback_and_once(ratings: FeedbackLog) -> None:
    store, entered, go = FeedbackStore("up"), threading.Event(), threading.Event()

    def open_store() -> Any:
        entered.set()
        assert go.wait(20)
        return store

    traces = ServedTraces(open_store, 1.0, ratings)
    assert entered.wait(20)
    for number in (1, 2):
        traces.offer("?", numbered(number))
        say(ratings, number)
    go.set()
    traces.close()
    assert [name for name, _ in store.recorded] == [NAMES[1], NAMES[2]]
    assert store.said() == {NAMES[1]: [("correct", True)], NAMES[2]: [("correct", True)]}
