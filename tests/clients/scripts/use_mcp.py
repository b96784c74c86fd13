"""The official Python SDK of MCP, release 2, over HTTP and over stdin and stdout: every list and every tool."""

import asyncio
import json
import os
import sys
from importlib.metadata import version
from typing import Any

import httpx2
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

served = json.loads(sys.argv[1])


async def look(session: ClientSession) -> None:
    await session.initialize()
    assert [tool.name for tool in (await session.list_tools()).tools] == ["search_pages", "view_sections", "read_section", "ask"]
    assert (await session.list_resources()).resources == [] and (await session.list_prompts()).prompts == []
    assert (await session.list_resource_templates()).resource_templates == []
    steps: list[str] = []

    async def on_progress(number: float, total: float | None, message: str | None) -> None:
        steps.append(message or "")

    async def call(name: str, **arguments: Any) -> Any:
        result: Any = await session.call_tool(name, arguments, progress_callback=on_progress)
        assert not result.is_error, result
        return result.structured_content

    page = (await call("search_pages", query=served["title"]))["pages"][0]
    assert page["page_id"] == served["page_id"]
    sections = (await call("view_sections", page_id=int(served["page_id"])))["sections"]
    assert (await call("read_section", section_id=sections[0]["section_id"]))["title"] == served["title"]
    assert not steps
    assert (await call("ask", question=served["question"]))["answer"] == served["answer"] and len(steps) >= 2
    nothing: Any = await session.call_tool("view_sections", {"page_id": 0})
    assert nothing.is_error and "no such page" in nothing.content[0].text


async def look_both_ways() -> None:
    headers = {"Authorization": f"Bearer {served['token']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=240) as http,
        streamable_http_client(served["mcp_url"], http_client=http) as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        await look(session)
    program, *arguments = served["command"]
    server = StdioServerParameters(command=program, args=arguments, env=dict(os.environ), cwd=served["folder"])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await look(session)


asyncio.run(look_both_ways())
print("mcp", version("mcp"))
