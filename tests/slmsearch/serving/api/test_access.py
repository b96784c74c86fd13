"""Whom the service answers, and in which form it refuses."""

import asyncio
import re
from typing import Any

import httpx
import pytest

from slmsearch.errors import ConfigError
from slmsearch.serving.api.access import Access, check_token, require_private_host
from slmsearch.serving.api.app import make_app
from slmsearch.serving.api.metrics import ServiceMetrics
from slmsearch.serving.api.searcher_service import SearcherService
from tests.slmsearch.serving.api.test_service import Client, Make, control, error, make, run

__all__ = ["control", "make"]


def test_a_token_is_asked_for_everywhere(make: Make) -> None:
    asked = make()

    async def talk() -> None:
        client = Client(asked, token="s3cret-token", host="searcher.example")
        for path in ("/v1/models", "/v1/models/searcher", "/metrics", "/openapi.json", "/docs", "/nope", "/health/"):
            for header in (None, "Bearer wrong", "Bearer ", "Basic s3cret-token", "s3cret-token"):
                reply = await client.http.get(path, headers={"Authorization": header} if header else {})
                assert error(reply) == (401, "authentication_error", "invalid_api_key"), path
        assert (await client.ask("Alba?")).headers["www-authenticate"] == "Bearer"
        assert (await client.http.get("/health")).json() == {"status": "ok"}
        assert (await client.http.get("/ready")).json() == {"status": "ready"}
        client.http.headers["Authorization"] = "bearer s3cret-token"
        assert (await client.ask("Alba?")).status_code == 200
        assert (await client.http.get("/v1/models/searcher")).json()["id"] == "searcher"
        text = (await client.http.get("/metrics")).text
        assert 'slmsearch_requests_total{outcome="invalid_api_key"} 36.0' in text and "s3cret" not in text

    run(talk())


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8002", 200), ("localhost", 200), ("[::1]:8002", 200), ("evil.example", 403), ("127.0.0.1.evil.example:8002", 403)],
)
def test_without_a_token_the_host_must_be_this_machine(make: Make, host: str, status: int) -> None:
    async def talk() -> httpx.Response:
        return await Client(make()).http.get("/health", headers={"Host": host})

    assert run(talk()).status_code == status


@pytest.mark.parametrize("origin", ["http://[", "null", "http://evil.example", "http://127.0.0.1.evil.example:8002"])
def test_a_page_of_another_origin_is_refused_by_mcp(origin: str) -> None:
    access = Access(make_app, None, ServiceMetrics(lambda: 0), lambda: False, own_pages=True)  # type: ignore[arg-type]
    refused = access._refuse({"type": "http", "path": "/mcp", "headers": [(b"origin", origin.encode()), (b"host", b"127.0.0.1:8002")]})
    assert refused is not None and refused.code == "origin_not_allowed"


def test_other_machines_are_answered_with_a_token_alone() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        require_private_host(host, None, "TOKEN")
    require_private_host("0.0.0.0", "token", "TOKEN")
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.com", ""):
        with pytest.raises(ConfigError, match="set TOKEN"):
            require_private_host(host, None, "TOKEN")
    for token in ("a b", "ü", "a\n"):
        with pytest.raises(ConfigError, match="visible ASCII"):
            check_token(token)


def test_every_error_has_the_form_of_openai(make: Make) -> None:
    async def talk() -> list[httpx.Response]:
        client = Client(make())
        http = client.http
        return [
            await http.get("/nope"),
            await http.put("/v1/models"),
            await http.get("/v1/models/gpt"),
            await http.post("/v1/chat/completions", content=b"{}", headers={"Content-Type": "text/plain"}),
            await http.options("/v1/chat/completions", headers={"Origin": "http://x", "Access-Control-Request-Method": "POST"}),
        ]

    found = run(talk())
    assert [error(reply)[::2] for reply in found] == [
        (404, "not_found"),
        (405, "method_not_allowed"),
        (404, "model_not_found"),
        (415, "unsupported_media_type"),
        (405, "method_not_allowed"),
    ]
    assert found[1].headers["allow"] == "GET"
    assert not any(name.startswith("access-control") for reply in found for name in reply.headers)


def test_every_reference_in_the_schema_leads_somewhere(make: Make) -> None:
    async def talk() -> httpx.Response:
        return await Client(make()).http.get("/openapi.json")

    reply = run(talk())
    references = set(re.findall(r'"\$ref":"#/([^"]+)"', reply.text))
    assert any(name.endswith("/ResponseFormat") for name in references)
    for reference in references:
        found = reply.json()
        for key in reference.split("/"):
            found = found[key.replace("~1", "/")]


def test_a_wrong_path_or_method_names_the_one_to_use(make: Make) -> None:
    async def talk() -> None:
        http = Client(make()).http
        for path in ("/v1/responses", "/v1/completions", "/v1/embeddings", "/chat/completions", "/v1/v1/chat/completions"):
            reply = await http.post(path, json={"input": "Alba?"})
            assert error(reply) == (404, "invalid_request_error", "not_found")
            assert f"there is no {path} here; questions go to POST /v1/chat/completions" in reply.json()["error"]["message"]
        reply = await http.get("/v1/chat/completions")
        assert error(reply)[0] == 405 and "takes POST requests only" in reply.json()["error"]["message"]

    run(talk())


def test_who_has_not_sent_a_whole_request_when_the_service_stops_is_gone(make: Make) -> None:
    asked = make()

    async def talk() -> list[Any]:
        received, sent = [], []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            received.extend([await receive(), await receive()])

        async def receive() -> Any:
            if received or sent:
                return await asyncio.Event().wait()
            sent.append("part")
            return {"type": "http.request", "body": b"{", "more_body": True}

        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"127.0.0.1")]}
        await Access(app, None, asked.metrics, lambda: True)(scope, receive, lambda _: asyncio.sleep(0))
        return received

    assert [message["type"] for message in run(talk())] == ["http.request", "http.disconnect"]


def test_head_is_get_without_a_body(make: Make) -> None:
    async def talk() -> None:
        http = Client(make()).http
        for path in ("/health", "/ready", "/metrics", "/v1/models", "/"):
            head, whole = await http.head(path), await http.get(path)
            assert (head.status_code, head.headers["content-type"]) == (200, whole.headers["content-type"]), path
        assert [(await http.head(path)).status_code for path in ("/nope", "/v1/chat/completions")] == [404, 405]

    run(talk())


def test_a_bug_is_an_error_of_openais_form_too(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = make()
    monkeypatch.setattr(SearcherService, "ask", lambda *_: 1 / 0)
    app = make_app(asked, None)

    async def talk() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            return await http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]})

    reply = run(talk())
    assert error(reply) == (500, "server_error", "internal_error") and "ZeroDivisionError" in reply.text and "Traceback" not in reply.text
