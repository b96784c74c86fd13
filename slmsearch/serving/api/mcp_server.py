"""MCP over its two transports, with the official SDK (extra `mcp`)."""

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any

import anyio
from fastapi import FastAPI
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slmsearch.errors import ServiceError
from slmsearch.foreign import cause_of
from slmsearch.serving.api.access import Access
from slmsearch.serving.api.app import add_errors, read_body
from slmsearch.serving.api.mcp_tools import INSTRUCTIONS, TOOLS, ToolReply, call_tool
from slmsearch.serving.api.protocol import ApiError
from slmsearch.serving.api.searcher_service import SearcherService
from slmsearch.serving.api.status import add_status

PATH = "/mcp"
NAME = "slmsearch"
EMPTY_LISTS: dict[str, Any] = {
    "on_list_resources": types.ListResourcesResult(resources=[]),
    "on_list_resource_templates": types.ListResourceTemplatesResult(resource_templates=[]),
    "on_list_prompts": types.ListPromptsResult(prompts=[]),
}
"""Kind of list -> an empty result; the searcher has none of them, and some clients fail without an answer."""
log = logging.getLogger(__name__)


def make_server(service: SearcherService) -> Any:
    """Make a server of the SDK that offers the tools, and lists no resources and no prompts."""
    tools = [types.Tool.model_validate(tool.describe()) for tool in TOOLS]
    lists = {name: _give(result) for name, result in EMPTY_LISTS.items()}

    async def call(context: Any, params: Any) -> Any:
        async def tell(number: int, line: str) -> None:
            await context.session.report_progress(number, None, line)

        return _to_result(await call_tool(service, params.name, params.arguments or {}, tell))

    return Server(
        NAME,
        version=version("slmsearch"),
        instructions=INSTRUCTIONS,
        on_list_tools=_give(types.ListToolsResult(tools=tools)),
        on_call_tool=call,
        **lists,
    )


def _to_result(reply: ToolReply) -> Any:
    found = reply.structured and reply.structured.model_dump(mode="json")
    content = [{"type": "text", "text": reply.text}]
    return types.CallToolResult.model_validate({"content": content, "structuredContent": found, "isError": found is None})


def _give(result: Any) -> Any:
    async def give(*_: Any) -> Any:
        return result

    return give


def read_message(text: str | bytes) -> Any:
    """Read a message of the protocol; an id such as 2.0 becomes the integer 2: some clients send floats, and the SDK accepts only integers.

    Raises:
        ValueError: the message is no JSON.
    """
    try:
        return json.loads(text, parse_float=_read_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _read_number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


class _Endpoint:
    """The manager as an ASGI application, a class because Starlette recognises one."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            message = read_message(await read_body(Request(scope, receive)))
        except ValueError as error:
            raise ApiError(400, "invalid_request", f"the body is no JSON: {error}") from error
        if isinstance(message, dict) and type(message.get("id", "")) not in (int, str):
            raise ApiError(400, "invalid_request", "id: give a string or an integer", "id")  # the SDK would never answer
        parts: list[Message] = [{"type": "http.request", "body": json.dumps(message).encode(), "more_body": False}]

        async def receive_read() -> Message:
            return parts.pop() if parts else await receive()

        await self._manager.handle_request(scope, receive_read, send)


def make_mcp_app(service: SearcherService, token: str | None) -> ASGIApp:
    """Make the application of streamable HTTP.

    It keeps no sessions: a request may come to any process, before and after a restart. So GET and DELETE have no use.
    """
    manager = StreamableHTTPSessionManager(make_server(service), stateless=True)
    app = FastAPI(openapi_url=None, lifespan=lambda _: manager.run())
    app.router.routes.append(Route(PATH, _Endpoint(manager), methods=["POST"]))
    add_errors(app, f"clients of MCP ask at {PATH}")
    add_status(app, service)
    return Access(app, token, service.metrics, lambda: service.state == "stopping", own_pages=True)


@contextmanager
def keep_standard_streams() -> Iterator[tuple[int, int]]:
    """Keep stdin and stdout for the protocol, as descriptors; other readers get an empty input, and other output goes to stderr."""
    sys.stdout.flush()
    kept = (os.dup(0), os.dup(1))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    try:
        yield kept
    finally:
        sys.stdout.flush()
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)


def serve_stdio(service: SearcherService, stop: threading.Event, streams: tuple[int, int]) -> None:
    """Answer one client over stdin and stdout until it closes them or `stop` is set; then answer the waiting requests and return.

    The client may send requests while the policy loads.

    Raises:
        SlmSearchError: the policy cannot be loaded, or the server failed.
    """
    source, sink = streams
    reader, writer = os.pipe()
    # A read of stdin cannot be cancelled. A read of a pipe without a writer ends.
    threading.Thread(target=_copy, args=(source, writer), name="stdin", daemon=True).start()

    broke: list[ServiceError] = []

    def talk() -> None:
        try:
            asyncio.run(_talk(service, reader, sink))
        except* OSError as error:
            log.warning("the client has disconnected: %s", error.exceptions[0])
        except* Exception as errors:
            log.error("the protocol broke", exc_info=errors)
            broke.append(ServiceError(f"the server of MCP ended by itself: {cause_of(errors.exceptions[0])}"))
        finally:
            stop.set()

    thread = threading.Thread(target=talk, name="mcp")
    thread.start()
    try:
        service.start(stop)
        stop.wait()
        service.drain()
    finally:
        stop.set()
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), writer)  # ends the input, whatever still comes
        thread.join()
        service.close()
        os.close(reader)
    if broke:
        raise broke[0]


def _copy(source: int, writer: int) -> None:
    with suppress(OSError):
        while data := os.read(source, 1 << 16):
            while data:
                data = data[os.write(writer, data) :]
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), writer)


async def _read_lines(lines: Any) -> AsyncIterator[str]:
    async for line in anyio.wrap_file(lines):
        try:
            yield json.dumps(read_message(line))
        except ValueError:
            yield line  # the SDK answers it


async def _talk(service: SearcherService, reader: int, sink: int) -> None:
    server = make_server(service)
    with open(reader, encoding="utf-8", errors="replace", closefd=False) as lines, open(sink, "w", encoding="utf-8", closefd=False) as out:
        source: Any = _read_lines(lines)
        async with stdio_server(source, anyio.wrap_file(out)) as (read, write):
            await server.run(read, write, server.create_initialization_options())
