"""What one question of a batch cannot do to the others."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from slmsearch.config import RunConfig
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ContextError, IndexUnusableError
from slmsearch.serving.api import playing
from tests.slmsearch.serving.api.fakes import Control, script
from tests.slmsearch.serving.api.test_service import Client, Make, control, counted, make, run, until

__all__ = ["control", "make"]


class ShortContext(ScriptedSampler):
    def open(self, prompts: Sequence[Any], sampling: Sampling) -> list[tuple[int, ...]]:
        if any("long" in prompt[-1]["content"] for prompt in prompts):
            raise ContextError("the longest prompt has 2000 tokens, and the model's context ends at 1024")
        return super().open(prompts, sampling)


def test_a_question_too_long_for_the_model_is_answered_and_fails_no_other(
    make: Make, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "make_policy_sampler", lambda *_: ShortContext(script))
    control.free = False
    asked = make()

    async def talk() -> list[Any]:
        client = Client(asked)
        flying = [asyncio.create_task(client.ask("Alba?"))]
        await until(lambda: not control.batches.empty())
        flying += [asyncio.create_task(client.ask(text)) for text in ("Brixa?", "a long one?")]
        await until(lambda: len(asked.waiting) == 2)
        control.go.release(2)
        return [reply.json()["slmsearch"] for reply in await asyncio.gather(*flying)]

    answers = [(own["answer"], own["stop_reason"]) for own in run(talk())]
    assert answers == [("1500", "answered"), ("1501", "answered"), (None, "max_tokens")]
    assert len(control.next_batch()) == 1 and len(control.next_batch()) == 2, "they were played together"
    assert counted(asked, "model_restarts_total") == 0


def test_a_question_finds_reads_and_quotes_nothing_outside_its_scope(make: Make, control: Control) -> None:
    control.free = False
    asked = make()

    async def talk() -> list[Any]:
        client = Client(asked)
        flying = [asyncio.create_task(client.ask("malformed"))]
        await until(lambda: not control.batches.empty())
        within = [{}, {"metadata": {"file": "p0"}}, {"metadata": {"file": "p1", "session_id": "s"}}, {"metadata": {"folder": "none"}}]
        flying += [asyncio.create_task(client.ask("Alba?", **more)) for more in within]
        await until(lambda: len(asked.waiting) == 4)
        control.go.release(2)
        return [reply.json() for reply in (await asyncio.gather(*flying))[1:]]

    *answers, nowhere = run(talk())
    whole, inside, outside = (reply["slmsearch"] for reply in answers)
    assert (whole["answer"], inside["answer"]) == ("1500", "1500")
    assert outside["steps"][0]["result"] == "no pages found"
    assert outside["steps"][1]["served"] is False, "what is outside is not read either"
    assert outside["sources"] == []
    assert (nowhere["error"]["code"], nowhere["error"]["message"]) == ("no_such_pages", playing.NO_PAGES)
    assert [control.next_batch(), control.next_batch()] == [["malformed"], ["Alba?"] * 4], "all scopes were played together"
    assert counted(asked, "requests_total", outcome="no_such_pages") == 1


def test_where_programs_see_all_of_the_corpus_nothing_is_restricted_or_verified(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = make()
    monkeypatch.setattr(asked.player, "served", replace(asked.player.served, config=RunConfig().changed({"searcher.programs": True})))
    for fields in ({"metadata": {"tag": "x"}}, {"verify": True}):
        reply = run(Client(asked).ask("Alba?", **fields))
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unsupported_parameter")


def test_a_scope_that_cannot_be_read_is_refused(make: Make) -> None:
    reply = run(Client(make()).ask("Alba?", metadata={"since": "soon"}))
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "since: 'soon' is no date; write 2025, 2025-03 or 2025-03-31"


def test_an_answer_is_verified_by_playing_without_the_texts_that_state_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_heart(question: str, results: list[str]) -> str:
        return "<answer>1501</answer>" if "by heart" in question and len(results) == 2 else script(question, results)

    monkeypatch.setattr(playing, "make_policy_sampler", lambda *_: ScriptedSampler(by_heart))
    asked = make()

    def verified(text: str, **fields: Any) -> tuple[str | None, bool | None]:
        own = run(Client(asked).ask(text, **fields)).json()["slmsearch"]
        return own["answer"], own["verified"]

    assert verified("Alba?", verify=True) == ("1500", True), "without its history Alba gives no year"
    assert verified("Alba?") == ("1500", None), "it was not asked for"
    assert verified("Brixa by heart?", verify=True) == ("1501", False), "it says so whatever it reads"
    assert verified("Cortona by heart?", verify=True) == ("1501", None), "nothing that was read states it"
    assert verified("Who?", verify=True) == ("I don't know", None)
    assert verified("Alba?", verify=True, metadata={"file": "p0"}) == ("1500", True)
    steps = run(Client(asked).ask("Alba?", verify=True)).json()["slmsearch"]["steps"]
    assert len(steps) == 2, "those of the second play are not shown"


def test_an_answer_stands_where_the_second_play_breaks(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise IndexUnusableError("the index is gone")

    asked = make()
    monkeypatch.setattr(playing, "find_stating", broken)
    own = run(Client(asked).ask("Alba?", verify=True)).json()["slmsearch"]
    assert (own["answer"], own["verified"]) == ("1500", None)


def test_a_slow_question_is_not_played_twice(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = make()
    monkeypatch.setattr(playing, "VERIFIED_WITHIN", 1e9)
    own = run(Client(asked).ask("Alba?", verify=True)).json()["slmsearch"]
    assert (own["answer"], own["verified"]) == ("1500", None)
