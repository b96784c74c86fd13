"""Tools for MCP clients: what comes in parts, what a full queue says, and the status of the service over HTTP."""

import asyncio
from typing import Any

import httpx
import pytest

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.serving.api import playing
from slmsearch.serving.api.mcp_tools import SectionText, ToolReply, call_tool
from slmsearch.serving.api.protocol import FoundAnswer
from slmsearch.serving.api.searcher_service import SearcherService
from tests.slmsearch.serving.api.fakes import Control, NameIndex, corpus_of, settings
from tests.slmsearch.serving.api.test_service import Make, control, make, run, until

__all__ = ["control", "make"]
ANNALS = "\n".join(f"In year {number} nothing happened." for number in range(200))
CHAPTERS = "".join(f"## Chapter {number}\n\nText {number}.\n\n" for number in range(100))
LIBRARY = Library([Page("p0", "Alba", f"# Alba\n\nA town.\n\n## Annals\n\n{ANNALS}\n\n{CHAPTERS}")])
SIZE = 1000


async def use(asked: SearcherService, name: str, **arguments: Any) -> ToolReply:
    async def tell(number: int, line: str) -> None:
        pass

    return await call_tool(asked, name, arguments, tell)


async def read_on(asked: SearcherService, tool: str, name: str, place: str | None) -> list[dict[str, Any]]:
    """Call a tool until its result names nothing that goes on."""
    parts = []
    while place:
        result = await use(asked, tool, **{name: place})
        assert result.structured, result
        parts.append(result.structured.model_dump())
        place = parts[-1]["next"]
    return parts


def test_long_sections_and_lists_are_read_in_parts_without_loss(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    toolbox = Toolbox(LIBRARY, NameIndex(), top_k=3, max_section_chars=SIZE)
    monkeypatch.setattr(playing, "open_indexed_corpus", lambda *_: corpus_of(toolbox))
    asked = make()
    lists = run(read_on(asked, "view_sections", "page_id", "p0"))
    listed = [(one["section_id"], one["heading"]) for part in lists for one in part["sections"]]
    assert listed == [(one.id, one.heading) for one in LIBRARY.sections("p0")] and len(lists) > 2
    parts = run(read_on(asked, "read_section", "section_id", "p0:annals"))
    section = LIBRARY.section("p0:annals")
    assert section is not None and "".join(part["text"] for part in parts) == section.text
    assert len(parts) > 5 and max(len(part["text"]) for part in parts) == SIZE
    assert {(part["title"], part["section_id"], part["heading"]) for part in parts} == {("Alba", "p0:annals", "Annals")}
    beyond = run(use(asked, "read_section", section_id=f"p0:annals#{len(parts) + 1}"))
    assert not beyond.structured and f"this section has {len(parts)} pages" in beyond.text


def test_a_full_queue_says_to_ask_again(make: Make, control: Control) -> None:
    control.free = False
    asked = make(settings(queue=1))

    async def talk() -> tuple[list[ToolReply], list[ToolReply]]:
        taken = [asyncio.create_task(use(asked, "ask", question="Alba?"))]
        await until(lambda: not control.batches.empty())
        taken.append(asyncio.create_task(use(asked, "read_section", section_id="p1:history")))
        await until(lambda: len(asked.waiting) == 1)
        refused = [await use(asked, "ask", question="Delos?"), await use(asked, "search_pages", query="Delos")]
        control.go.release()
        return refused, list(await asyncio.gather(*taken))

    refused, answered = run(talk())
    for result in refused:
        assert not result.structured and "1 questions wait already (service.queue); ask again" in result.text
    found, read = (reply.structured for reply in answered)
    assert isinstance(found, FoundAnswer) and found.answer == "1500"
    assert isinstance(read, SectionText) and "Founded in 1501" in read.text


def test_a_number_is_taken_for_a_text(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    toolbox = Toolbox(Library([Page("1155", "Alba", "# Alba\n\nA town.\n")]), NameIndex(), top_k=3, max_section_chars=SIZE)
    monkeypatch.setattr(playing, "open_indexed_corpus", lambda *_: corpus_of(toolbox))
    asked = make()
    viewed = run(use(asked, "view_sections", page_id=1155))
    assert viewed.structured and viewed.structured == run(use(asked, "view_sections", page_id="1155")).structured
    assert "no such section" in run(use(asked, "read_section", section_id=0)).text
    assert run(use(asked, "search_pages", query=1984)).structured
    for value in (True, 3.5, None, [1155]):
        assert "valid string" in run(use(asked, "view_sections", page_id=value)).text


def test_a_message_is_read_with_whole_numbers_as_integers() -> None:
    server = pytest.importorskip("slmsearch.serving.api.mcp_server", exc_type=ImportError)
    read = server.read_message(b'{"id": 2.0, "params": {"a": [1e3, 2.5, 1e400], "b": "2.0"}}')
    assert read == {"id": 2, "params": {"a": [1000, 2.5, float("inf")], "b": "2.0"}} and type(read["id"]) is int
    for broken in (b"", b"{", b"[" * 100_000, b"1" * 5000):
        with pytest.raises(ValueError):
            server.read_message(broken)


def test_over_http_it_tells_its_status_under_the_rule_for_the_token(make: Make) -> None:
    server = pytest.importorskip("slmsearch.serving.api.mcp_server", exc_type=ImportError)

    async def get(path: str, token: str | None, **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(server.make_mcp_app(asked, token))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            return await http.get(path, headers=headers)

    asked = make()
    for token, headers in ((None, {}), ("s3cret", {"Authorization": "Bearer s3cret"})):
        assert run(get("/health", token)).json() == {"status": "ok"} and run(get("/ready", token)).json() == {"status": "ready"}
        metrics = run(get("/metrics", token, **headers)).text
        assert 'slmsearch_model_info{index_key="index-1",version="tiny/1"} 1.0' in metrics
    assert [run(get(path, "s3cret")).status_code for path in ("/metrics", "/mcp", "/nope", "/docs")] == [401] * 4
    assert [run(get("/health", None, **one)).status_code for one in ({"Host": "evil.example"}, {"Origin": "http://x.example"})] == [403] * 2
    asked.drain()
    assert run(get("/ready", "s3cret")).status_code == 503


def test_tools_search_within_a_scope(make: Make) -> None:
    asked = make()
    inside, outside, odd = (
        run(use(asked, "search_pages", query="Alba", **within)) for within in ({"file": "p0"}, {"tag": "x"}, {"until": "x"})
    )
    assert inside.text == "p0: Alba"
    assert outside.text == "no pages found"
    assert not odd.structured and odd.text.startswith("search_pages: until: 'x' is no date")
    answered = run(use(asked, "ask", question="Alba?", file="p1"))
    assert isinstance(answered.structured, FoundAnswer) and answered.structured.sources == []
    refused = run(use(asked, "view_sections", page_id="p0", file="p1"))
    assert not refused.structured and "file" in refused.text
