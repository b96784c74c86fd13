"""Answers that are not sure enough are not given, and say so; what was deleted is not found."""

import asyncio
import json
from dataclasses import replace

import pytest

from slmsearch.serving.api.player import HeldBackError
from tests.slmsearch.serving.api.fakes import Control, promise, served
from tests.slmsearch.serving.api.test_service import Client, Make, control, make, run, until

__all__ = ["control", "make"]
JSON = {"type": "json_object"}


def test_an_answer_says_how_sure_it_is(make: Make) -> None:
    asked = make(policy=replace(served(), promise=promise(0.5)))
    own = run(Client(asked).ask("When was Brixa founded?")).json()["slmsearch"]
    assert (own["answer"], own["nearest"], own["confidence"]) == ("1501", None, 0.5)
    assert own["promise"] == {"wrong_at_most": 0.05, "level": 0.95, "n": 100, "holds": True}
    unknown = run(Client(asked).ask("Who?")).json()["slmsearch"]
    assert (unknown["answer"], unknown["confidence"], unknown["nearest"]) == ("I don't know", None, None)


def test_one_that_is_not_sure_enough_is_named_as_the_nearest(make: Make) -> None:
    asked = make(policy=replace(served(), promise=promise(0.6, "another index")))

    async def talk() -> list[dict[str, object]]:
        client = Client(asked)
        return [(await client.ask("When was Brixa founded?", **more)).json() for more in ({}, {"response_format": JSON})]

    text, written = run(talk())
    own = text["slmsearch"]
    assert (own["answer"], own["nearest"], own["confidence"], own["promise"]["holds"]) == ("I don't know", "1501", 0.5, False)
    assert text["choices"][0]["message"]["content"] == "I don't know; the nearest is: 1501"
    assert json.loads(written["choices"][0]["message"]["content"]) == {"answer": "I don't know"}


def test_without_a_promise_every_answer_is_given(make: Make) -> None:
    own = run(Client(make()).ask("When was Brixa founded?")).json()["slmsearch"]
    assert (own["answer"], own["confidence"], own["promise"], own["nearest"]) == ("1501", None, None, None)


def test_an_answer_that_read_a_page_that_is_deleted_meanwhile_is_played_again(make: Make, control: Control) -> None:
    control.free = False
    gone = set[str]()

    class Documents:
        since = 0.0

        def withdrawn(self, _: object) -> frozenset[str]:
            return frozenset(gone)

    asked = make(documents=Documents())

    async def talk() -> dict[str, object]:
        flying = asyncio.create_task(Client(asked).ask("When was Brixa founded?"))
        await until(lambda: not control.batches.empty())
        gone.add("p1")
        control.go.release(2)
        found: dict[str, object] = (await flying).json()["slmsearch"]
        return found

    assert run(talk())["sources"] == []
    assert [control.next_batch() for _ in range(2)] == [["When was Brixa founded?"]] * 2


def test_a_version_that_is_held_back_does_not_play(make: Make, control: Control, caplog: pytest.LogCaptureFixture) -> None:
    judged = list[tuple[str, str]]()

    class Documents:
        def judge(self, before: object, after: object, child: object) -> None:
            judged.append((before.version, after.version))  # type: ignore[attr-defined]
            raise HeldBackError("the documents of before go on: 3 changed")

        since = 0.0

        def withdrawn(self, _: object) -> frozenset[str]:
            return frozenset()

        def describe(self) -> dict[str, object]:
            return {"folder": "notes"}

    versions = ["tiny/2", "tiny/1"]
    asked = make(find_new=lambda before: served(versions.pop(0)) if versions else None, documents=Documents())

    async def talk() -> tuple[str, dict[str, object]]:
        await until(lambda: len(judged) == 2)
        client = Client(asked)
        own = (await client.ask("When was Brixa founded?")).json()["slmsearch"]
        return own["version"], (await client.http.get("/v1/documents")).json()

    version, documents = run(talk())
    assert version == "tiny/1" and judged == [("tiny/1", "tiny/2"), ("tiny/1", "tiny/1")]
    assert documents["folder"] == "notes" and documents["index_key"] == "index-1" and float(str(documents["age_s"])) >= 0
    assert "the documents of before go on" in caplog.text and "cannot be loaded" not in caplog.text
