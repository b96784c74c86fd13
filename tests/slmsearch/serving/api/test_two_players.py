"""A small model on two cores: two players, one queue."""

import asyncio
import threading
from typing import Any

import httpx
import pytest

from slmsearch.serving.api import player, playing
from slmsearch.serving.api.searcher_service import SearcherService
from tests.slmsearch.serving.api.fakes import NOT_THERE, WAIT_SECONDS, Control, served
from tests.slmsearch.serving.api.test_service import Client, Make, control, counted, make, run, until

__all__ = ["control", "make"]


@pytest.fixture
def pair(control: Control, monkeypatch: pytest.MonkeyPatch) -> Control:
    """A model that computes on one core, on two."""
    monkeypatch.setattr(player, "count_cores", lambda: 2)
    control.is_small = True
    return control


def test_a_small_model_plays_two_batches_at_once(make: Make, pair: Control) -> None:
    pair.free = False
    asked = make()

    async def talk() -> list[httpx.Response]:
        client = Client(asked)
        first = asyncio.create_task(client.ask("Alba?"))
        await until(lambda: pair.batches.qsize() == 1)
        second = asyncio.create_task(client.ask("Brixa?"))
        await until(lambda: pair.batches.qsize() == 2)
        pair.go.release(2)
        return [await first, await second]

    assert [reply.json()["slmsearch"]["answer"] for reply in run(talk())] == ["1500", "1501"]
    assert [pair.next_batch(), pair.next_batch()] == [["Alba?"], ["Brixa?"]]
    asked.close()
    assert [child.pid for child in pair.children] == [None] * len(pair.children)


@pytest.mark.parametrize(("is_small", "cores"), [(True, 1), (False, 2)])
def test_one_core_or_a_larger_model_plays_one_batch_at_a_time(
    make: Make, pair: Control, monkeypatch: pytest.MonkeyPatch, is_small: bool, cores: int
) -> None:
    monkeypatch.setattr(player, "count_cores", lambda: cores)
    pair.is_small = is_small
    assert make().player._beside is None


def second_of(asked: SearcherService) -> player.Player:
    """Return the second player, loaded."""
    beside = asked.player._beside
    assert beside is not None and beside._ready.wait(WAIT_SECONDS)
    return beside


@pytest.mark.parametrize("dies", [0, 1])
def test_when_one_of_two_dies_the_other_answers_meanwhile(make: Make, pair: Control, dies: int) -> None:
    asked = make()
    beside = second_of(asked)
    assert [child.starts for child in pair.children[:2]] == [1, 1], "the spare child plays; it is not started again"

    async def talk() -> list[httpx.Response]:
        client = Client(asked)
        pair.load_errors["tiny/1"] = [NOT_THERE] * 10_000
        pair.children[dies].pid = None
        await until(lambda: len(pair.load_errors["tiny/1"]) < 9_990)
        assert asked.state == "ready"
        answers = [await client.ask(f"{name}?") for name in ("Alba", "Brixa", "Cortona")]
        pair.load_errors.clear()
        await until(lambda: asked.player._ready.is_set() and beside._ready.is_set())
        return answers

    assert [reply.json()["slmsearch"]["answer"] for reply in run(talk())] == ["1500", "1501", "1502"]
    assert counted(asked, "model_restarts_total") >= 1


def test_when_both_die_one_is_loaded_first_and_answers(make: Make, pair: Control) -> None:
    asked = make()
    beside = second_of(asked)
    pair.loading_at_once.clear()
    may_load = pair.load_when["tiny/1"] = threading.Event()

    async def talk() -> httpx.Response:
        for child in pair.children[:2]:
            child.pid = None
        await until(lambda: len(pair.loading) == 1)
        question = asyncio.create_task(Client(asked).ask("Alba?"))
        await until(lambda: len(asked.waiting) == 1 and not asked.player._ready.is_set() and not beside._ready.is_set())
        may_load.set()
        answer = await question
        await until(lambda: asked.player._ready.is_set() and beside._ready.is_set())
        return answer

    assert run(talk()).json()["slmsearch"]["answer"] == "1500"
    assert pair.loading_at_once == [1, 1]


def test_two_that_died_end_without_being_loaded_again(make: Make, pair: Control) -> None:
    asked = make()
    second_of(asked)
    pair.loading_at_once.clear()
    may_load = pair.load_when["tiny/1"] = threading.Event()
    for child in pair.children[:2]:
        child.pid = None
    run(until(lambda: len(pair.loading) == 1))
    asked.player.retire()
    may_load.set()
    asked.player.join(WAIT_SECONDS)
    assert not asked.player.is_alive() and pair.loading_at_once == [1]


def test_what_waits_for_the_player_that_lives_is_not_refused_by_the_one_that_cannot_load(make: Make, pair: Control) -> None:
    asked = make()
    second_of(asked)
    pair.free = False

    async def talk() -> list[httpx.Response]:
        client = Client(asked)
        first = asyncio.create_task(client.ask("Alba?"))
        await until(lambda: pair.batches.qsize() == 1)
        playing_one = 0 if pair.children[0].playing else 1
        pair.load_errors["tiny/1"] = [NOT_THERE] * 10_000
        pair.children[1 - playing_one].pid = None
        await until(lambda: len(pair.load_errors["tiny/1"]) < 9_995)
        second = asyncio.create_task(client.ask("Brixa?"))
        tried = len(pair.load_errors["tiny/1"])
        await until(lambda: len(pair.load_errors["tiny/1"]) < tried - 3)
        assert len(asked.waiting) == 1
        pair.free = True
        pair.go.release()
        return [await first, await second]

    assert [reply.json()["slmsearch"]["answer"] for reply in run(talk())] == ["1500", "1501"]


def test_a_second_player_that_cannot_be_loaded_is_loaded_later(make: Make, pair: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = SearcherService._switch

    def fail_once(self: SearcherService, by: player.Player) -> None:
        pair.load_errors["tiny/1"] = [NOT_THERE]
        switch(self, by)

    monkeypatch.setattr(SearcherService, "_switch", fail_once)
    asked = make()
    second_of(asked)
    assert pair.load_errors["tiny/1"] == [] and run(Client(asked).ask("Alba?")).status_code == 200


def test_two_players_search_the_same_documents(make: Make, pair: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[tuple[str | None, str | None]] = []
    opened = playing.open_indexed_corpus

    def open_corpus(config: Any, digest: str | None = None, key: str | None = None) -> Any:
        asked_for.append((digest, key))
        return opened(config, digest, key)

    monkeypatch.setattr(playing, "open_indexed_corpus", open_corpus)
    second_of(make())
    assert asked_for == [(None, None), ("corpus-1", "index-1")]


def test_another_version_takes_over_from_both(make: Make, pair: Control) -> None:
    versions = ["tiny/1"]
    asked = make(find_new=lambda before: served(versions[-1]) if versions[-1] != before.version else None)
    first, beside = asked.player, second_of(asked)
    versions.append("tiny/2")

    async def talk() -> httpx.Response:
        await until(lambda: asked.version == "tiny/2" and not first.is_alive() and not beside.is_alive())
        return await Client(asked).ask("Alba?")

    assert run(talk()).json()["slmsearch"]["version"] == "tiny/2"
    assert [child.pid for child in pair.children[:3]] == [None] * 3
