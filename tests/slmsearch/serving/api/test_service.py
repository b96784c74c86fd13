"""Batches, queue, deadlines, who is let in, and what happens when the child dies or another version comes."""

import asyncio
import json
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import httpx
import pytest

from slmsearch.config import ServiceConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ModelError, ServiceError, SlmSearchError
from slmsearch.serving.api import player, playing
from slmsearch.serving.api import searcher_service as service
from slmsearch.serving.api.app import make_app
from slmsearch.serving.api.caller import Caller
from slmsearch.serving.api.playing import Answer, ServedPolicy
from slmsearch.serving.api.searcher_service import SearcherService
from tests.slmsearch.serving.api.fakes import NOT_THERE, WAIT_SECONDS, Control, NameIndex, corpus_of, served, settings, use_fakes

T = TypeVar("T")
Make = Callable[..., SearcherService]


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Control:
    monkeypatch.setattr(player, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(player, "RETRY_S", 0.01)
    monkeypatch.setattr(service, "FOLLOW_SECONDS", 0.01)
    monkeypatch.setattr(service, "AGAIN_SECONDS", 0.01)
    return use_fakes(monkeypatch)


@pytest.fixture
def make(control: Control) -> Iterator[Make]:
    made: list[SearcherService] = []

    def start(config: ServiceConfig | None = None, policy: ServedPolicy | None = None, **hooks: Any) -> SearcherService:
        made.append(SearcherService(policy or served(), config or settings(), **hooks))
        made[-1].start(threading.Event())
        return made[-1]

    yield start
    for one in made:
        one.close()


class Client:
    """Asks a service over HTTP, without a socket."""

    def __init__(self, asked: SearcherService, token: str | None = None, host: str = "127.0.0.1:8002") -> None:
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(make_app(asked, token)), base_url=f"http://{host}", timeout=60)

    async def ask(self, text: str, **fields: Any) -> httpx.Response:
        return await self.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": text}], **fields})


def run(talk: Awaitable[T]) -> T:
    async def within() -> T:
        return await asyncio.wait_for(talk, 60)

    return asyncio.run(within())


async def until(happened: Callable[[], Any]) -> None:
    """Wait, and let others go on."""
    end = time.monotonic() + WAIT_SECONDS
    while not happened():
        assert time.monotonic() < end
        await asyncio.sleep(0.001)


def error(reply: httpx.Response) -> tuple[int, str, str]:
    found = reply.json()["error"]
    return reply.status_code, found["type"], found["code"]


def counted(asked: SearcherService, name: str, **labels: str) -> float:
    return asked.metrics.registry.get_sample_value(f"slmsearch_{name}", labels) or 0.0


def test_an_answer_has_its_steps_and_sources(make: Make) -> None:
    told: queue.Queue[tuple[str, Answer, Caller]] = queue.Queue()
    asked = make(on_answer=lambda *given: told.put(given))
    said = {"user": " ada ", "metadata": {"session_id": "s1", "other": 2}}
    reply = run(Client(asked).ask("When was Brixa founded?", model="anything", **said)).json()
    (choice,) = reply["choices"]
    assert (choice["message"]["content"], choice["finish_reason"], reply["model"]) == ("1501", "stop", "searcher")
    own = reply["slmsearch"]
    assert [(step["call"], step["argument"], step["served"]) for step in own["steps"]] == [
        ("search_pages", "Brixa", True),
        ("read_section", "p1:history", True),
    ]
    assert own["sources"] == [
        {
            "page_id": "p1",
            "title": "Brixa",
            "section_id": "p1:history",
            "heading": "History",
            "text": "## History\n\nFounded in 1501.",
            "quoted": False,
            "supports": "Founded in 1501.",
            "path": "",
            "page": None,
            "under": [],
        }
    ]
    assert own["supported"] is True
    assert (own["answer"], own["stop_reason"], own["version"], own["index_key"]) == ("1501", "answered", "tiny/1", "index-1")
    assert reply["usage"]["completion_tokens"] > 0
    text, answer, caller = told.get(timeout=WAIT_SECONDS)  # told after the client
    assert (text, answer.episode.answer) == ("When was Brixa founded?", "1501") and told.empty()
    assert caller == Caller("ada", "s1")
    assert counted(asked, "requests_total", outcome="answered") == 1 and counted(asked, "answer_seconds_count") == 1


STEPS = "1. Open the box.\n2. Turn the wheel.\n\n3. Close the box."


def quoting(question: str, results: list[str]) -> str:
    """Read the manual and answer with the steps."""
    return '<answer section="p0:wheel" lines="2-4"></answer>' if results else '<tool>read_section("p0:wheel")</tool>'


@pytest.mark.parametrize("stream", [False, True])
def test_a_passage_is_shown_with_its_lines_and_its_section_is_named(make: Make, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    library = Library([Page("p0", "Alba", f"# Alba\n\nA mill.\n\n## Wheel\n\nTake care.\n\n{STEPS}\n")])
    toolbox = Toolbox(library, NameIndex(), top_k=3, max_section_chars=1000)
    monkeypatch.setattr(playing, "open_indexed_corpus", lambda *_: corpus_of(toolbox))
    monkeypatch.setattr(playing, "make_policy_sampler", lambda *_: ScriptedSampler(quoting))
    reply = run(Client(make()).ask("How do I turn the wheel?", stream=stream))
    if stream:
        chunks = [json.loads(line.removeprefix("data:")) for line in reply.text.splitlines() if line.startswith("data:") and "{" in line]
        content = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        (own,) = [chunk["slmsearch"] for chunk in chunks if "sources" in chunk.get("slmsearch", {})]
    else:
        content, own = reply.json()["choices"][0]["message"]["content"], reply.json()["slmsearch"]
    assert content == own["answer"] == STEPS
    assert [(source["section_id"], source["quoted"], STEPS in source["text"]) for source in own["sources"]] == [("p0:wheel", True, True)]


@pytest.mark.parametrize(("text", "reason", "finish"), [("malformed?", "malformed", "stop"), ("for ever?", "max_turns", "length")])
def test_no_answer_is_said_in_words(make: Make, text: str, reason: str, finish: str) -> None:
    reply = run(Client(make()).ask(text)).json()
    assert reply["choices"][0]["message"]["content"].startswith("No answer was found")
    assert (reply["slmsearch"]["answer"], reply["slmsearch"]["stop_reason"]) == (None, reason)
    assert reply["choices"][0]["finish_reason"] == finish


def test_questions_that_wait_are_played_together(make: Make, control: Control) -> None:
    control.free = False
    asked = make(policy=served(batch=2))

    async def talk() -> list[str]:
        client = Client(asked)
        first = asyncio.create_task(client.ask("Alba?"))
        await until(lambda: not control.batches.empty())
        others = []
        for number, name in enumerate(("Brixa", "Cortona", "Delos"), 1):
            others.append(asyncio.create_task(client.ask(f"{name}?")))
            await until(lambda number=number: len(asked.waiting) == number)
        assert counted(asked, "waiting_questions") == 3
        for _ in range(3):
            control.go.release()
        return [reply.json()["slmsearch"]["answer"] for reply in await asyncio.gather(first, *others)]

    assert run(talk()) == ["1500", "1501", "1502", "1503"]
    assert [control.next_batch() for _ in range(3)] == [["Alba?"], ["Brixa?", "Cortona?"], ["Delos?"]]
    assert (counted(asked, "batch_size_count"), counted(asked, "batch_size_sum")) == (3, 4)


def test_after_a_batch_of_several_a_moment_is_waited_for_more(make: Make, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "GAP_SECONDS", WAIT_SECONDS)
    control.free = False
    asked = make(policy=served(batch=2))

    async def talk() -> None:
        client, tasks = Client(asked), []

        async def ask(name: str, waiting: int) -> None:
            tasks.append(asyncio.create_task(client.ask(f"{name}?")))
            await until(lambda: len(asked.waiting) == waiting if waiting else counted(asked, "batch_size_count") == 1)

        await ask("Alba", 0)  # plays at once, as nothing was played before
        await ask("Brixa", 1)
        await ask("Cortona", 2)
        control.free = True
        control.go.release(2)
        await asyncio.gather(*tasks)
        await ask("Delos", 1)
        await asyncio.gather(asyncio.create_task(client.ask("Alba?")), *tasks)

    run(talk())
    assert [control.next_batch() for _ in range(3)] == [["Alba?"], ["Brixa?", "Cortona?"], ["Delos?", "Alba?"]]


def test_a_full_queue_refuses_at_once(make: Make, control: Control) -> None:
    control.free = False
    asked = make(settings(queue=1))

    async def talk() -> tuple[httpx.Response, list[httpx.Response]]:
        client = Client(asked)
        played = asyncio.create_task(client.ask("Alba?"))
        await until(lambda: not control.batches.empty())
        waits = asyncio.create_task(client.ask("Brixa?"))
        await until(lambda: len(asked.waiting) == 1)
        refused = await client.ask("Cortona?", stream=True)
        control.go.release(2)
        return refused, list(await asyncio.gather(played, waits))

    refused, answered = run(talk())
    assert error(refused) == (429, "rate_limit_error", "queue_full") and int(refused.headers["retry-after"]) >= 1
    assert [reply.status_code for reply in answered] == [200, 200]


def test_a_deadline_ends_who_waits_and_who_is_played(make: Make, control: Control) -> None:
    control.free = False
    asked = make(settings(deadline_s=0.2))

    async def talk() -> list[httpx.Response]:
        client = Client(asked)
        played = asyncio.create_task(client.ask("Alba?"))
        await until(lambda: not control.batches.empty())
        late = await asyncio.gather(played, client.ask("Brixa?"), client.ask("Delos?", stream=True))
        control.free = True
        control.go.release()
        await until(lambda: counted(asked, "batch_size_count") == 1 and asked.player.is_ready)
        asked.settings = settings()
        return [*late, await client.ask("Cortona?")]

    *late, after = run(talk())
    assert [error(reply) for reply in late] == [(504, "server_error", "deadline_exceeded")] * 3
    assert after.json()["slmsearch"]["answer"] == "1502"
    assert [control.next_batch() for _ in range(2)] == [["Alba?"], ["Cortona?"]], "nobody waits for the others any more"


def test_a_batch_that_hangs_is_killed(make: Make, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "GRACE_SECONDS", 0.0)
    control.free = False
    asked = make(settings(deadline_s=0.1))

    async def talk() -> httpx.Response:
        client = Client(asked)
        assert (await client.ask("Alba?")).status_code == 504
        await until(lambda: counted(asked, "model_restarts_total") == 1)
        control.free = True
        asked.settings = settings()
        return await client.ask("Brixa?")

    assert run(talk()).json()["slmsearch"]["answer"] == "1501"


def test_a_dead_child_fails_those_in_flight_alone(make: Make, control: Control) -> None:
    control.free = False
    asked = make()

    async def talk() -> list[httpx.Response]:
        client = Client(asked)
        flying = [asyncio.create_task(client.ask("Alba?")), asyncio.create_task(client.ask("Alba?", stream=True))]
        await until(lambda: not control.batches.empty())
        waits = asyncio.create_task(client.ask("Brixa?"))
        await until(lambda: len(asked.waiting) >= 1)
        control.free = True
        control.children[0].interrupt()
        return [*await asyncio.gather(*flying[:1]), await waits]

    failed, answered = run(talk())
    assert error(failed) == (503, "server_error", "service_unavailable") and failed.headers["retry-after"] == "5"
    assert "SIGKILL" in failed.json()["error"]["message"]
    assert [child.imports for child in control.children] == [playing.IMPORTED] * 2, "the spare one was ready, and another is"
    assert answered.json()["slmsearch"]["answer"] == "1501"
    assert counted(asked, "model_restarts_total") == 1


def test_a_child_that_died_while_it_waited_is_replaced_before_the_next_question(
    make: Make, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "LOOK_SECONDS", 1.0)
    asked = make()
    control.children[0].pid = None
    reply = run(Client(asked).ask("Brixa?"))
    assert reply.json()["slmsearch"]["answer"] == "1501" and counted(asked, "model_restarts_total") == 1
    assert [child.pid is None for child in control.children] == [False, False], "another one is spare"


def test_while_it_cannot_be_loaded_again_who_asks_is_told_so(make: Make, control: Control) -> None:
    asked = make()

    async def talk() -> tuple[httpx.Response, httpx.Response]:
        client = Client(asked)
        control.load_errors["tiny/1"] = [NOT_THERE] * 10_000
        control.children[0].pid = None
        await until(lambda: asked.state == "loading")
        assert (await client.http.get("/ready")).status_code == 503
        failed = await client.ask("Alba?")
        control.load_errors.clear()
        await until(lambda: asked.state == "ready")
        return failed, await client.ask("Alba?")

    failed, answered = run(talk())
    assert error(failed)[0] == 503 and "no model at 'gone'" in failed.json()["error"]["message"]
    assert answered.status_code == 200


def test_what_cannot_be_loaded_at_first_is_raised(make: Make, control: Control) -> None:
    control.load_errors["tiny/1"] = [NOT_THERE]
    with pytest.raises(ModelError, match="gone"):
        make()


def test_another_version_takes_over_when_it_is_loaded(make: Make, control: Control) -> None:
    control.free = False
    versions = ["tiny/1"]
    asked = make(find_new=lambda before: served(versions[-1]) if versions[-1] != before.version else None)
    control.load_errors["tiny/2"] = [NOT_THERE]

    async def talk() -> list[httpx.Response]:
        client = Client(asked)
        flying = asyncio.create_task(client.ask("Alba?"))
        await until(lambda: not control.batches.empty())
        versions.append("tiny/2")
        await until(lambda: asked.version == "tiny/2")
        control.go.release(2)
        return [await flying, await client.ask("Alba?")]

    assert [reply.json()["slmsearch"]["version"] for reply in run(talk())] == ["tiny/1", "tiny/2"]
    first, failed, second = control.children[::2]  # without the spare ones
    assert first.pid is None and failed.pid is None and second.pid is not None, "the one that played ended after its batch"
    assert counted(asked, "model_info", version="tiny/2", index_key="index-1") == 1
    assert asked.metrics.registry.get_sample_value("slmsearch_model_info", {"version": "tiny/1", "index_key": "index-1"}) is None


@pytest.mark.parametrize(("failure", "pause_s"), [(ServiceError("the store is down"), 0.01), (NOT_THERE, 0.02)])
def test_a_store_that_is_down_changes_nothing_and_a_model_that_cannot_be_exported_is_not_tried_at_once_again(
    make: Make, failure: SlmSearchError, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "AGAIN_SECONDS", 0.02)
    looks, pauses = threading.Semaphore(0), list[float | None]()

    def find_new(_: ServedPolicy) -> ServedPolicy | None:
        looks.release()
        raise failure

    asked = make(find_new=find_new)
    wait = asked._draining.wait
    monkeypatch.setattr(asked._draining, "wait", lambda seconds=None: pauses.append(seconds) or wait(seconds))
    assert all(looks.acquire(timeout=WAIT_SECONDS) for _ in range(4))
    assert set(pauses) == {pause_s}
    assert run(Client(asked).ask("Alba?")).status_code == 200


def test_stopping_answers_what_was_asked_and_takes_no_more(make: Make, control: Control) -> None:
    control.free = False
    asked = make()

    async def talk() -> tuple[httpx.Response, httpx.Response, int]:
        client = Client(asked)
        flying = asyncio.create_task(client.ask("Alba?"))
        await until(lambda: not control.batches.empty())
        draining = asyncio.create_task(asyncio.to_thread(asked.drain))
        await until(lambda: asked.state == "stopping")
        refused = await client.ask("Brixa?")
        state = (await client.http.get("/ready")).status_code
        assert not draining.done()
        control.go.release()
        answered = await flying
        await draining
        return refused, answered, state

    refused, answered, state = run(talk())
    assert error(refused) == (503, "server_error", "stopping") and refused.headers["retry-after"] and state == 503
    assert answered.status_code == 200 and answered.headers["connection"] == "close"


def test_a_version_that_is_loaded_too_late_does_not_take_over(make: Make, control: Control) -> None:
    control.free = False
    when = control.load_when["tiny/2"] = threading.Event()
    asked = make(find_new=lambda _: served("tiny/2"))

    async def talk() -> httpx.Response:
        client = Client(asked)
        await until(lambda: len(control.children) == 4 and control.children[2].pid)
        flying = asyncio.create_task(client.ask("Alba?"))
        await until(lambda: not control.batches.empty())
        draining = asyncio.create_task(asyncio.to_thread(asked.drain))
        await until(lambda: asked.state == "stopping")
        when.set()
        await until(lambda: control.children[2].pid is None)
        control.go.release(2)
        await draining
        return await flying

    assert run(talk()).json()["slmsearch"]["version"] == "tiny/1"
