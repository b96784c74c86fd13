"""What is read of a request, and what is refused: nothing that a client sends is more than a status below 500."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slmsearch.serving.api.app import MAX_BODY_BYTES, make_app
from slmsearch.serving.api.playing import ClientQuestion
from slmsearch.serving.api.protocol import MAX_QUESTION_CHARS, ApiError, AskedRequest, parse_request
from slmsearch.serving.api.searcher_service import SearcherService
from tests.slmsearch.serving.api import fakes

USER = {"role": "user", "content": "Where is Alba?"}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "searcher", "messages": [USER], **fields}).encode()


def test_the_last_message_of_the_user_is_the_question() -> None:
    history = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "x" * 99_999}, {"role": "assistant", "content": None}]
    assert parse_request(body(messages=[*history, USER])) == AskedRequest(ClientQuestion("Where is Alba?"), False, False)
    parts = [{"type": "text", "text": " Where"}, {"type": "text", "text": "is Alba? "}]
    asked = parse_request(body(messages=[{"role": "user", "content": parts}], stream=True, stream_options={"include_usage": True}))
    assert asked == AskedRequest(ClientQuestion("Where\nis Alba?"), True, True)


def test_fields_that_are_not_known_are_left_alone() -> None:
    fields = {"temperature": 3, "max_tokens": -1, "tool_choice": "none", "tools": [], "n": 1, "stream": None, "brand_new": {"a": [1]}}
    assert parse_request(body(**fields)).question.text == "Where is Alba?"


@pytest.mark.parametrize(
    "fields",
    [
        {"model": None},
        {"n": 1.0},
        {"tools": [{"type": "function"}], "tool_choice": "none"},
        {"functions": [{"name": "f"}], "function_call": "none"},
        {"response_format": None},
        {"response_format": {"type": "text"}},
    ],
)
def test_what_clients_send_beside_a_question_changes_nothing(fields: dict[str, Any]) -> None:
    assert parse_request(body(**fields)) == AskedRequest(ClientQuestion("Where is Alba?"), False, False)


@pytest.mark.parametrize(
    ("sent", "param", "said"),
    [
        (b"", None, "body: "),
        (b"[1]", None, "body: "),
        (b'{"messages": [], "model": "x"}', "messages", "at least 1"),
        (body(messages=[{"role": "system", "content": "x"}]), "messages", "role user"),
        (body(messages=[USER, {"role": "user", "content": "  \n"}]), "messages", "empty"),
        (body(messages=[{"role": "user", "content": "x" * (MAX_QUESTION_CHARS + 1)}]), "messages", "2001 characters, 2000 are allowed"),
        (body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]), "messages", "not image_url"),
        (body(messages=[{"role": "user", "content": 3}]), "messages.0.content", "valid"),
        (body(n=2), "n", "one answer"),
        (body(n="1"), "n", "valid number"),
        (body(n=1.5), "n", "one answer"),
        (body(n=True), "n", "valid number"),
        (body(model=3), "model", "valid string"),
        (body(tools=[{"type": "function"}]), "tools", "its own tools"),
        (body(tools=[{"type": "function"}], tool_choice="auto"), "tools", 'set tool_choice to "none"'),
        (body(response_format="json"), "response_format", "be an object"),
        (body(response_format={"type": "grammar"}), "response_format.type", "'json_schema'"),
        (body(response_format={"type": "json_schema"}), "response_format", "json_schema is missing"),
        (body(response_format={"type": "json_schema", "json_schema": {"schema": {"required": ["age"]}}}), "response_format", "'age'"),
        (body(functions=[{}]), "functions", "its own tools"),
        (body(stream="yes"), "stream", "valid boolean"),
    ],
)
def test_what_is_refused_is_said(sent: bytes, param: str | None, said: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_request(sent)
    assert refused.value.status == 400 and refused.value.param == param and said in refused.value.message


TEXT = st.text(max_size=8)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
JSON = PLAIN | st.lists(PLAIN, max_size=2) | st.dictionaries(TEXT, PLAIN, max_size=2) | st.just([[[[{"a": [[]]}]]]])
PART = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", 3])}, optional={"text": TEXT | PLAIN})
CONTENT = st.sampled_from(["Where is Alba?", "Delos?"]) | TEXT | st.lists(PART, max_size=2) | JSON
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "user", "system", "tool", None]), "content": CONTENT})
FIELDS = {
    "model": TEXT,
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}),
    "n": st.integers(0, 2),
    "tools": st.lists(PLAIN, max_size=1),
    "temperature": JSON,
    "response_format": st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "json_object", "json_schema"])}, optional={"json_schema": st.fixed_dictionaries({"schema": JSON})}
    ),
}
NEAR = st.fixed_dictionaries({"messages": st.lists(MESSAGE, min_size=1, max_size=3)}, optional=FIELDS)
FAR = st.dictionaries(st.sampled_from(["messages", *FIELDS]), JSON, max_size=4) | JSON
BODIES = (
    st.binary(max_size=40)
    | FAR.map(lambda value: json.dumps(value).encode())
    | NEAR.map(lambda value: json.dumps(value).encode())
    | NEAR.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
)
TYPES = st.sampled_from(["application/json"] * 9 + ["application/json; charset=latin-1", "text/plain", ""])
PATHS = st.sampled_from(["/v1/chat/completions"] * 9 + ["/v1/models", "/v1/models/%00", "/nope", "//", "/metrics"])


@pytest.fixture(scope="module")
def service() -> Iterator[SearcherService]:
    with pytest.MonkeyPatch.context() as patch:
        fakes.use_fakes(patch)
        found = SearcherService(fakes.served(), fakes.settings())
        found.start(threading.Event())
        yield found
        found.close()


def test_no_body_is_more_than_refused(service: SearcherService) -> None:
    seen: dict[int, int] = {}
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(make_app(service, None)), base_url="http://127.0.0.1")

        @settings(max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(sent=BODIES, kind=TYPES, path=PATHS)
        def send(sent: bytes, kind: str, path: str) -> None:
            request = client.post(path, content=sent, headers={"Content-Type": kind} if kind else {})
            reply = runner.run(asyncio.wait_for(request, 20))
            seen[reply.status_code] = seen.get(reply.status_code, 0) + 1
            if reply.status_code == 200:
                assert reply.text.endswith("data: [DONE]\r\n\r\n") or reply.json()["object"] == "chat.completion"
            else:
                assert reply.status_code in (400, 404, 405, 415)
                assert set(reply.json()["error"]) == {"message", "type", "param", "code"}

        send()
        too_much = runner.run(client.post("/v1/chat/completions", json={"messages": [USER], "x": "x" * MAX_BODY_BYTES}))
        assert too_much.status_code == 413 and too_much.json()["error"]["code"] == "request_too_large"
        runner.run(client.aclose())
    assert seen[200] > 20 and seen[400] > 200, "both sides were tried"
    assert len(service.waiting) == 0
