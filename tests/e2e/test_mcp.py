"""`slmsearch mcp` with tiny-searcher on a small world: the SDK's own client over both transports, refusals, and the end."""

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import httpx2
import psutil
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from slmsearch.episodes.episode import ToolCall
from slmsearch.processes.ports import free_port
from tests.e2e.small_world import PATIENCE_SECONDS, SmallWorld, small_world
from tests.e2e.stand import wait_for
from tests.root import ROOT

T = TypeVar("T")
TOKEN = "s3cret-of-the-tools"
TOOLS = ["search_pages", "view_sections", "read_section", "ask"]
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallWorld]:
    with small_world(tmp_path_factory.mktemp("mcp"), service__traced_frac=0) as made:
        yield made


def run(talk: Awaitable[T]) -> T:
    async def within() -> T:
        return await asyncio.wait_for(talk, PATIENCE_SECONDS)

    return asyncio.run(within())


@asynccontextmanager
async def by_stdio(world: SmallWorld, log: Path) -> AsyncIterator[ClientSession]:
    program, *arguments = world.command("mcp")
    parameters = StdioServerParameters(command=program, args=arguments, env=world.environment(), cwd=ROOT)
    with log.open("w") as errors:
        async with stdio_client(parameters, errlog=errors) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield session


@asynccontextmanager
async def by_http(url: str, token: str | None) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=PATIENCE_SECONDS) as http,
        streamable_http_client(url, http_client=http) as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


@dataclass
class Told:
    """What a call gave."""

    text: str
    is_error: bool
    structured: Any
    progress: list[str] = field(default_factory=list)


async def call(session: ClientSession, name: str, **arguments: Any) -> Told:
    told: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert progress == len(told) + 1
        told.append(message or "")

    result = await session.call_tool(name, arguments, progress_callback=on_progress)
    values = result.model_dump(mode="json", by_alias=True)
    (content,) = values["content"]
    return Told(content["text"], values["isError"], values.get("structuredContent"), told)


async def look_at_everything(session: ClientSession, world: SmallWorld) -> None:
    """Use every tool, rightly and wrongly."""
    listed = [tool.model_dump(mode="json", by_alias=True) for tool in (await session.list_tools()).tools]
    assert [tool["name"] for tool in listed] == TOOLS
    assert all(tool["description"] and tool["outputSchema"] and tool["inputSchema"]["required"] for tool in listed)
    assert all(tool["annotations"]["readOnlyHint"] for tool in listed)

    assert (await session.list_resources()).resources == [] and (await session.list_prompts()).prompts == []
    templates = (await session.list_resource_templates()).model_dump(mode="json", by_alias=True)
    assert templates["resourceTemplates"] == []

    toolbox, question, answer = world.indexed.toolbox, world.questions[0].question, world.questions[0].answer
    page = next(toolbox.library.pages())
    found = await call(session, "search_pages", query=page.title)
    (same,) = toolbox.serve([ToolCall("search_pages", page.title)])
    assert found.text == same.text and not found.is_error
    assert [one["page_id"] for one in found.structured["pages"]] == list(same.page_ids)
    assert {"page_id": page.id, "title": page.title} in found.structured["pages"]

    viewed = await call(session, "view_sections", page_id=page.id)
    sections, place = viewed.structured["sections"], viewed.structured["next"]
    while place:
        more = await call(session, "view_sections", page_id=place)
        sections, place = sections + more.structured["sections"], more.structured["next"]
    assert [one["section_id"] for one in sections] == [one.id for one in toolbox.library.sections(page.id)]

    longest = max(toolbox.library.sections(page.id), key=lambda one: len(one.text))
    text, place = "", longest.id
    while place:
        read = await call(session, "read_section", section_id=place)
        assert (read.structured["page_id"], read.structured["heading"]) == (page.id, longest.heading)
        text, place = text + read.structured["text"], read.structured["next"]
    assert text == longest.text

    asked = await call(session, "ask", question=question)
    assert asked.structured["answer"] == answer and asked.text.startswith(answer)
    assert [f"{step['call']}: {step['argument']}" for step in asked.structured["steps"]] == asked.progress and asked.progress
    assert any(answer in source["text"] for source in asked.structured["sources"])
    assert asked.structured["version"] == "untrained"

    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("view_sections", {"page_id": "nowhere"}, "no such page"),
        ("read_section", {"section_id": "nowhere"}, "no such section"),
        ("search_pages", {"query": "  "}, "query: String should have at least 1 character"),
        ("search_pages", {"query": "x" * 5000}, "query: String should have at most 1000 characters"),
        ("search_pages", {}, "query: Field required"),
        ("search_pages", {"query": 3.5}, "query: Input should be a valid string"),
        ("ask", {"question": "Who?", "model": "x"}, "model: Extra inputs are not permitted"),
        ("delete_page", {"page_id": page.id}, "there is no tool 'delete_page'"),
    ]
    for name, arguments, why in wrong:
        refused = await call(session, name, **arguments)
        assert refused.is_error and why in refused.text and "\n" not in refused.text, refused
    several = await asyncio.gather(*(call(session, "ask", question=question) for _ in range(4)))
    assert {one.structured["answer"] for one in several} == {answer}


def test_the_sdks_client_over_stdio(world: SmallWorld, tmp_path: Path) -> None:
    log = tmp_path / "log"

    others = psutil.Process().children(recursive=True)  # servers of other tests

    async def talk() -> list[psutil.Process]:
        async with by_stdio(world, log) as session:
            await look_at_everything(session, world)
            return [one for one in psutil.Process().children(recursive=True) if one not in others]

    family = run(talk())
    wait_for(
        lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family), PATIENCE_SECONDS, "nothing is left"
    )
    assert len(family) >= 2 and "Traceback" not in log.read_text(), log.read_text()


@pytest.mark.parametrize("how", ["eof", "sigterm", "loading"])
def test_it_ends_with_its_input_or_by_sigterm_and_leaves_nothing(world: SmallWorld, how: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        process = world.start("mcp", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    assert process.stdin is not None and process.stdout is not None
    search = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "search_pages", "arguments": {"query": "a town"}}}
    messages = [HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}, {**search, "id": 2.0}]
    process.stdin.write("".join(json.dumps(message) + "\n" for message in messages[: 1 if how == "loading" else 3]))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "slmsearch"
    if how != "loading":
        told = json.loads(process.stdout.readline())
        assert told["id"] == 2 and "content" in told["result"]
    family = psutil.Process(process.pid).children(recursive=True)
    if how == "sigterm":
        process.send_signal(signal.SIGTERM)
    else:
        process.stdin.close()
    assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "log").read_text()
    assert process.stdout.read() == ""
    wait_for(lambda: not any(one.is_running() for one in family), PATIENCE_SECONDS, "nothing is left")
    assert family or how == "loading"
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_policy_that_is_not_there_is_one_line_and_nothing_on_stdout(world: SmallWorld) -> None:
    process = world.start("mcp", "--policy", "nowhere/at-all", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.wait(PATIENCE_SECONDS)  # with its input open: that a client hangs up is no error
    out, errors = process.communicate()
    assert process.returncode in (2, 3) and out == "" and "slmsearch: " in errors and "Traceback" not in errors


def serve_http(
    world: SmallWorld, log: Path, ends: Callable[[Callable[[], Any]], Any], token: str = ""
) -> tuple["subprocess.Popen[str]", str]:
    port = free_port()
    with log.open("w") as file:
        process = world.start("mcp", "--http", str(port), "--json", token=token, stdout=subprocess.PIPE, stderr=file)
    ends(process.communicate)
    ends(process.kill)
    assert process.stdout is not None
    told = json.loads(process.stdout.readline() or "{}")
    assert told == {"url": f"http://127.0.0.1:{port}/mcp", "version": "untrained"}, log.read_text()
    return process, told["url"]


def post(url: str, **headers: str) -> int:
    return httpx.post(url, json=HELLO, headers={**HEADERS, **headers}, trust_env=False, timeout=60).status_code


def test_the_sdks_client_over_http_with_a_token(world: SmallWorld, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    process, url = serve_http(world, tmp_path / "log", request.addfinalizer, TOKEN)

    async def talk() -> None:
        async with by_http(url, TOKEN) as session:
            await look_at_everything(session, world)

    run(talk())
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    metrics = httpx.get(url.replace("/mcp", "/metrics"), headers=bearer, trust_env=False, timeout=60).text
    assert 'slmsearch_requests_total{outcome="answered"} 5.0' in metrics
    assert [post(url), post(url, Authorization="Bearer wrong"), post(url, **bearer)] == [401, 401, 200]
    assert post(url, **bearer, Origin="https://elsewhere.example") == 403
    with pytest.raises(BaseException) as failed:  # as the SDK wraps it
        run(by_http(url, "wrong").__aenter__())
    assert not isinstance(failed.value, TimeoutError)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0 and not any(one.is_running() for one in family) and family
    log = (tmp_path / "log").read_text()
    assert TOKEN not in log and "Traceback" not in log


def begin(url: str, token: str = "") -> socket.socket:
    """Send the beginning of a request, and keep the connection."""
    place = urlsplit(url)
    connection = socket.create_connection((place.hostname, place.port))
    headers = {"Host": place.netloc, "Authorization": f"Bearer {token}", "Content-Type": "application/json", "Content-Length": "100"}
    lines = [f"POST {place.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", "{"]
    connection.sendall("\r\n".join(lines).encode())
    return connection


def test_what_never_ends_is_refused_and_holds_nothing_up(world: SmallWorld, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    process, url = serve_http(world, tmp_path / "log", request.addfinalizer)
    accept = {"Accept": "text/event-stream"}
    for method in ("GET", "HEAD", "DELETE"):
        reply = httpx.request(method, url, headers=accept, trust_env=False, timeout=60)
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST"), method
    with begin(url) as connection:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")
    assert "Traceback" not in (tmp_path / "log").read_text() and "Cancel" not in (tmp_path / "log").read_text()


def test_lists_and_numbers_as_other_clients_send_them(world: SmallWorld, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    _, url = serve_http(world, tmp_path / "log", request.addfinalizer)

    def send(text: str) -> httpx.Response:
        return httpx.post(url, content=text, headers=HEADERS, trust_env=False, timeout=60)

    def ask(number: str, method: str, params: str = "{}") -> Any:
        reply = send(f'{{"jsonrpc": "2.0", "id": {number}, "method": "{method}", "params": {params}}}')
        assert reply.status_code == 200, reply.text
        (line,) = (line for line in reply.text.splitlines() if line.startswith("data: "))
        told = json.loads(line[6:])
        assert told["id"] == json.loads(number)
        return told["result"]

    for method, name in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates"), ("prompts/list", "prompts")):
        for number in ("0", "2.0", "1795764713000", '"2.0"'):
            assert ask(number, method)[name] == []
    page = next(world.indexed.toolbox.library.pages())
    for page_id in (page.id, f"{page.id}.0", json.dumps(page.id)):
        viewed = ask("3", "tools/call", f'{{"name": "view_sections", "arguments": {{"page_id": {page_id}}}}}')
        assert viewed["structuredContent"]["page_id"] == page.id
    for number in ("null", "1.5", "[1]", "true"):
        refused = send(f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/list"}}')
        assert refused.status_code == 400 and "give a string or an integer" in refused.text
    assert send("{").status_code == 400 and send('{"jsonrpc": "2.0", "method": "notifications/initialized"}').status_code == 202


def test_without_a_token_only_this_machine_is_answered(world: SmallWorld, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    _, url = serve_http(world, tmp_path / "log", request.addfinalizer)
    assert [post(url), post(url, Host="evil.example"), post(url, Origin="https://evil.example")] == [200, 403, 403]
    assert post(url, Origin="http://localhost:6274") == 200
    refused = world.start("mcp", "--http", str(free_port()), "--host", "0.0.0.0", stderr=subprocess.PIPE)
    assert "SLMSEARCH_API_TOKEN" in refused.communicate(timeout=PATIENCE_SECONDS)[1] and refused.returncode == 2
