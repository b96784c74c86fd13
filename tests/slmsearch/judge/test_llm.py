"""The language model judge: what it asks, how often, what it remembers, and what it does when there is no reply."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slmsearch.config import JudgeConfig
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.judge import EagerJudge, ExactJudge
from slmsearch.judge.cache import FILE, VerdictCache
from slmsearch.judge.clients import ServerError
from slmsearch.judge.llm import OUTAGES_IN_A_ROW, make_judge
from slmsearch.judge.prompt import render_prompt
from tests.judge_server import FAULTS, Behaviour, JudgeServer, hash_truth
from tests.slmsearch.judge.stubs import QUESTION, StubClient, hasty_judge, make_llm


def always(text: str) -> Callable[[str], str]:
    return lambda prompt: text


def fails(passing: bool, retry_after_s: float = 0.0) -> Callable[[str], str]:
    def reply(prompt: str) -> str:
        raise ServerError("the server is away", passing, retry_after_s)

    return reply


def items(count: int) -> list[tuple[Question, str]]:
    return [(QUESTION, f"answer {i}") for i in range(count)]


def test_rules_decide_without_asking() -> None:
    unanswerable = Question("q2", "Who?", UNKNOWN_ANSWER)
    answers = [(QUESTION, "ada lovelace"), (QUESTION, ""), (QUESTION, None), (QUESTION, UNKNOWN_ANSWER), (unanswerable, "Ada")]
    client = StubClient(always("yes"))
    verdicts = make_llm(client).judge(answers)
    assert [verdict.correct for verdict in verdicts] == [True, False, False, False, False]
    assert {verdict.by for verdict in verdicts} == {"exact"}
    assert client.asked == []


def test_what_only_marks_tell_apart_is_no_match_by_rule() -> None:
    client = StubClient(always("no"))
    version, share_ = Question("q", "Which?", "3.5"), Question("q", "How much?", "5 %")
    verdicts = make_llm(client).judge([(version, "35"), (share_, "5 percent")])
    assert [(verdict.correct, verdict.by) for verdict in verdicts] == [(False, "judge"), (True, "exact")]
    assert [verdict.correct for verdict in ExactJudge().judge([(version, "35"), (share_, "5 percent")])] == [False, True]


def test_asks_where_typed_match_fails_and_equal_answers_once() -> None:
    client = StubClient(lambda prompt: "yes" if '"Lovelace, Ada"' in prompt else "No.")
    verdicts = make_llm(client).judge([(QUESTION, text) for text in ("Lovelace, Ada", "Babbage", "Ada Lovelace", "Babbage")])
    assert [(verdict.correct, verdict.by) for verdict in verdicts] == [
        (True, "judge"),
        (False, "judge"),
        (True, "exact"),
        (False, "judge"),
    ]
    assert len(client.asked) == 2


def test_exact_judge_is_the_default_and_needs_no_time() -> None:
    judge = make_judge(JudgeConfig(), "/nowhere")
    assert isinstance(judge, ExactJudge)
    assert not isinstance(judge, EagerJudge)
    assert [verdict.correct for verdict in judge.judge([(QUESTION, "a lovelace"), (QUESTION, None)])] == [True, False]


def test_no_more_than_the_limit_are_asked_at_a_time() -> None:
    # Each ask waits until a second one is in flight; a third would raise the maximum above the limit.
    pairs, lock, state = threading.Barrier(2, timeout=5), threading.Lock(), {"now": 0, "most": 0}

    def reply(prompt: str) -> str:
        with lock:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
        pairs.wait()
        with lock:
            state["now"] -= 1
        return "no"

    verdicts = make_llm(StubClient(reply), concurrency=2).judge(items(6))
    assert [verdict.correct for verdict in verdicts] == [False] * 6
    assert state["most"] == 2


# Retries


def test_an_outage_is_retried_with_growing_waits_and_jitter() -> None:
    waits: list[float] = []
    client = StubClient(fails(passing=True))
    (verdict,) = make_llm(client, sleep=waits.append, retries=6, backoff_s=1.0, max_backoff_s=10.0).judge(items(1))
    assert verdict.correct is None
    assert verdict.failure == "judge: the server is away"
    assert len(client.asked) == 7
    limits = [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert all(0 <= wait <= limit for wait, limit in zip(waits, limits, strict=True))
    assert len(set(waits)) > 1


def test_the_server_may_say_how_long_to_wait_within_limits() -> None:
    waits: list[float] = []
    make_llm(StubClient(fails(True, 5.0)), sleep=waits.append, retries=2, backoff_s=0.1, max_backoff_s=30).judge(items(1))
    make_llm(StubClient(fails(True, 500.0)), sleep=waits.append, retries=1, backoff_s=0.1, max_backoff_s=30).judge(items(1))
    assert waits == [5.0, 5.0, 30.0]


def test_what_will_not_pass_is_not_retried() -> None:
    client = StubClient(fails(passing=False))
    (verdict,) = make_llm(client).judge(items(1))
    assert verdict.correct is None
    assert len(client.asked) == 1


def test_a_reply_that_is_no_verdict_is_not_asked_for_again_and_is_reported() -> None:
    client = StubClient(always("I cannot\nsay"))
    (verdict,) = make_llm(client, sleep=lambda seconds: pytest.fail("it waits for another try")).judge(items(1))
    assert (verdict.correct, verdict.failure) == (None, "judge: no verdict: neither yes nor no; seen: 'I cannot say'")
    assert len(client.asked) == 1


def test_one_success_is_enough() -> None:
    tries = iter([fails(True), fails(True), always("yes")])
    (verdict,) = make_llm(StubClient(lambda prompt: next(tries)(prompt))).judge(items(1))
    assert verdict.correct is True


def test_a_server_that_is_down_is_not_asked_about_everything() -> None:
    client = StubClient(fails(passing=True))
    judge = make_llm(client, retries=1, concurrency=2)
    verdicts = judge.judge(items(100))
    assert all(verdict.correct is None for verdict in verdicts)
    assert "in a row" in verdicts[-1].failure
    assert 2 * 2 * OUTAGES_IN_A_ROW <= len(client.asked) <= 2 * (2 * OUTAGES_IN_A_ROW + 2)
    client.reply = always("no")  # it is back for the next batch
    assert [verdict.correct for verdict in judge.judge(items(3))] == [False] * 3


# Faults of a real server


@pytest.fixture(params=["ollama", "openai"])
def broken(request: pytest.FixtureRequest) -> Iterator[tuple[JudgeServer, JudgeConfig]]:
    with JudgeServer(Behaviour(fault_frac=0.3, late_s=0.6)) as server:
        suffix = "/v1" if request.param == "openai" else ""
        yield server, hasty_judge(retries=1, backoff_s=0.01)(kind=request.param, model="judge", base_url=server.url + suffix, timeout_s=0.3)


def test_through_faults_every_verdict_is_right_or_missing(broken: tuple[JudgeServer, JudgeConfig], tmp_path: Path) -> None:
    server, config = broken
    asked = items(150)
    verdicts = make_judge(config, tmp_path).judge(asked)
    known = [hash_truth(render_prompt(*item)) for item in asked]
    missing = [verdict for verdict in verdicts if verdict.correct is None]
    assert [verdict.correct for verdict, truth in zip(verdicts, known, strict=True) if verdict.correct not in (None, truth)] == []
    assert all(verdict.failure.startswith("judge: ") and "\n" not in verdict.failure for verdict in missing)
    assert {True, False} <= {verdict.correct for verdict in verdicts}
    assert 0 < len(missing) < 60  # 0.3 squared is 13 of 150
    assert all(server.counts[fault] for fault in FAULTS)
    assert VerdictCache(tmp_path / FILE).count() == len(asked) - len(missing)  # never an outage


# The cache


def test_what_was_judged_is_never_asked_again(tmp_path: Path) -> None:
    client = StubClient(lambda prompt: "yes" if '"answer 3"' in prompt else "no")
    first = make_llm(client, VerdictCache(tmp_path / "v.sqlite")).judge(items(5))
    again = StubClient(always("I am not asked"))
    assert make_llm(again, VerdictCache(tmp_path / "v.sqlite")).judge(items(5)) == first
    assert again.asked == []


def test_another_model_another_answer_or_another_question_is_asked(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "v.sqlite")
    make_llm(StubClient(always("no")), cache).judge(items(1))
    for digest, question, answer in (
        ("digest", QUESTION, "answer 0"),
        ("other", QUESTION, "answer 0"),
        ("digest", QUESTION, "answer 1"),
        ("digest", Question("q1", "Who?", "Ada Lovelace", ("A. Lovelace",)), "answer 0"),
        ("digest", Question("q1", "Who wrote it?", "Ada Lovelace"), "answer 0"),
    ):
        client = StubClient(always("yes"), digest)
        (verdict,) = make_llm(client, cache).judge([(question, answer)])
        first = (digest, question, answer) == ("digest", QUESTION, "answer 0")
        assert (verdict.correct, len(client.asked)) == ((False, 0) if first else (True, 1))


def test_an_outage_is_not_remembered(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "v.sqlite")
    assert make_llm(StubClient(fails(True)), cache).judge(items(2))[0].correct is None
    assert make_llm(StubClient(always("yes")), cache).judge(items(2))[0].correct is True


def test_a_model_that_cannot_be_named_is_an_outage_of_all_and_asked_for_once(tmp_path: Path) -> None:
    class Nameless(StubClient):
        named = 0

        def identify(self) -> str:
            self.named += 1
            raise ServerError("no such model", passing=False)

    client = Nameless(always("yes"))
    judge = make_llm(client, VerdictCache(tmp_path / "v.sqlite"))
    for question, answer in items(4):
        judge.begin(question, answer)
    verdicts = judge.judge([*items(8), (QUESTION, "Ada Lovelace")])
    assert [verdict.failure for verdict in verdicts[:8]] == ["judge: no such model"] * 8
    assert verdicts[8].correct is True
    assert (client.named, client.asked) == (1, [])


def test_a_damaged_cache_is_an_outage_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "v.sqlite"
    path.write_bytes(b"this is no database" * 100)
    (verdict,) = make_llm(StubClient(always("yes")), VerdictCache(path)).judge(items(1))
    assert verdict.correct is None
    assert "v.sqlite" in verdict.failure and "delete the file" in verdict.failure


def test_text_that_is_no_utf8_is_judged(tmp_path: Path) -> None:
    judge = make_llm(StubClient(always("no")), VerdictCache(tmp_path / "v.sqlite"))
    assert judge.judge([(Question("q", "a\ud800", "b"), "c\ud800")])[0].correct is False


# Beginning early


def test_what_was_begun_is_asked_before_anybody_waits_for_it() -> None:
    asked = threading.Event()

    def reply(prompt: str) -> str:
        asked.set()
        return "yes"

    client = StubClient(reply)
    judge = make_llm(client)
    assert isinstance(judge, EagerJudge)
    judge.begin(QUESTION, "answer 0")
    judge.begin(QUESTION, "answer 0")
    judge.begin(QUESTION, "Ada Lovelace")
    assert asked.wait(5)
    verdicts = judge.judge([(QUESTION, "answer 1"), (QUESTION, "answer 0"), (QUESTION, "Ada Lovelace")])
    assert [verdict.correct for verdict in verdicts] == [True] * 3
    assert len(client.asked) == 2


@pytest.mark.parametrize("begun", [0, 7, 20])
def test_beginning_early_changes_no_verdict_and_no_order(begun: int) -> None:
    client = StubClient(lambda prompt: "yes" if hash_truth(prompt) else "no")
    judge, asked = make_llm(client, concurrency=3), items(20)
    for question, answer in reversed(asked[:begun]):
        judge.begin(question, answer)
    assert [verdict.correct for verdict in judge.judge(asked)] == [hash_truth(render_prompt(*item)) for item in asked]


def test_nothing_is_begun_where_the_judge_is_loaded_after() -> None:
    client = StubClient(always("yes"))
    judge = make_llm(client, loaded="after")
    judge.begin(QUESTION, "answer 0")
    judge.forget()
    assert client.asked == []


def test_what_is_forgotten_is_neither_asked_nor_waited_for() -> None:
    going, first = threading.Event(), threading.Event()

    def reply(prompt: str) -> str:
        first.set()
        going.wait(5)
        raise ServerError("away", passing=True)

    # The real wait between two tries: dropping the batch ends it.
    client = StubClient(reply)
    judge = make_llm(client, sleep=None, concurrency=1, retries=50, backoff_s=1000.0, max_backoff_s=1000.0)
    for question, answer in items(5):
        judge.begin(question, answer)
    assert first.wait(5)
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("judge")]
    judge.forget()
    going.set()
    for worker in workers:
        worker.join(5)
    assert not any(worker.is_alive() for worker in workers)
    assert len(client.asked) == 1


def test_no_thread_is_left_between_batches() -> None:
    judge = make_llm(StubClient(always("no")))
    judge.judge(items(4))
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("judge")]:
        thread.join(5)
        assert not thread.is_alive()


def test_releasing_the_device_is_not_worth_an_error(caplog: pytest.LogCaptureFixture) -> None:
    client = StubClient(always("no"))
    make_llm(client).release()
    assert client.released == 1

    def away() -> None:
        raise ServerError("away", passing=True)

    client.release = away  # type: ignore[method-assign]
    make_llm(client).release()
    assert "stays loaded" in caplog.text
