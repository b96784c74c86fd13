"""Answers as JSON: which schemas are taken, what is written for them, and that no schema costs more than a moment."""

import asyncio
import json
import sys
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from slmsearch.serving.api.response_format import MAX_SCHEMA_CHARS, MAX_SCHEMA_DEPTH, JsonAnswers
from tests.loopback import listening
from tests.slmsearch.serving.api.test_service import Client, Make, control, error, make, run

__all__ = ["control", "make"]
TEXT = {"type": "string"}
STRICT = {"type": "object", "properties": {"answer": TEXT}, "required": ["answer"], "additionalProperties": False}
"""As the SDKs of OpenAI make it of a class with one text."""
NULLABLE = {**STRICT, "properties": {"answer": {"anyOf": [TEXT, {"type": "null"}]}}}


def asking_for(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": schema}}


@pytest.mark.parametrize("schema", [{}, STRICT, NULLABLE, {**STRICT, "properties": {"answer": {"type": ["string", "null"]}}}])
def test_an_answer_is_json_that_fits(schema: dict[str, Any]) -> None:
    for answer in ("Paris", "", 'a "b"\n\\', "Zoë 🜁"):
        written = JsonAnswers(schema).write(answer)
        assert written is not None and json.loads(written) == {"answer": answer}
    assert JsonAnswers(schema).write(None) == (None if schema is STRICT else '{"answer": null}')


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({**STRICT, "required": ["answer", "age"]}, "'age' is a required property"),
        ({**STRICT, "properties": {"city": TEXT}}, "'answer'"),
        ({**STRICT, "properties": {"answer": {"type": "integer"}}}, "not of type 'integer'"),
        ({**STRICT, "properties": {"answer": {"enum": ["yes", "no"]}}}, "not one of"),
        ({"type": "array"}, "not of type 'array'"),
        ({"type": 3}, "not valid"),
        ({"properties": {"answer": {"pattern": "^(a+)+$"}}}, "pattern"),
        ({"$ref": "#"}, "$ref"),
        ({"description": "x" * MAX_SCHEMA_CHARS}, "more than 4000 characters"),
    ],
)
def test_a_schema_that_no_answer_fits_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError) as refused:
        JsonAnswers(schema)
    assert why in str(refused.value) and "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_an_answer_that_does_not_fit_after_all_is_not_written() -> None:
    answers = JsonAnswers({**STRICT, "properties": {"answer": {**TEXT, "maxLength": 10}}})
    assert answers.write("x" * 10) is not None and answers.write("x" * 11) is None


def test_no_schema_is_fetched() -> None:
    asked: list[str] = []

    class Schemas(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with listening(Schemas) as address:
        for schema in ({"$ref": address}, {"$schema": address}, {"allOf": [{"$id": address, "$dynamicRef": "#x"}]}):
            try:
                JsonAnswers(schema).write("x")
            except ValueError as refused:
                assert "$ref" in str(refused)
    assert not asked


NAMES = st.sampled_from(
    ["answer", "type", "properties", "required", "anyOf", "not", "$id", "$anchor", "$ref", "if", "enum", "http://[", "x"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | NAMES | st.sampled_from(["string", "object"])
SCHEMAS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=30)


@settings(max_examples=500, deadline=None, database=None)
@given(schema=st.dictionaries(NAMES, SCHEMAS, max_size=4))
def test_any_schema_is_taken_or_refused(schema: dict[str, Any]) -> None:
    try:
        answers = JsonAnswers(schema)
    except ValueError:
        return
    written = answers.write("Paris")
    assert written is not None and Draft202012Validator(schema).is_valid(json.loads(written))


@pytest.mark.parametrize("part", [{"$ref": "answer"}, {"pattern": "a"}, {"unevaluatedProperties": False}])
@pytest.mark.parametrize("around", ["if", "not"])
def test_what_is_not_checked_is_refused_where_it_would_turn_into_its_opposite(around: str, part: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="pattern and unevaluated properties are not supported"):
        JsonAnswers({"properties": {"answer": {around: part}}})


def nested(levels: int) -> dict[str, Any]:
    deep: dict[str, Any] = {}
    for _ in range(levels):
        deep = {"allOf": [deep]}
    return deep


@pytest.mark.parametrize("recursion_limit", [1000, 20_000])  # compiling with torch raises it in its process
def test_a_deeply_nested_schema_is_refused(make: Make, recursion_limit: int) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(recursion_limit)
    try:
        reply = run(Client(make()).ask("Alba?", response_format=asking_for(nested(60))))
    finally:
        sys.setrecursionlimit(before)
    found = reply.json()["error"]
    assert reply.status_code == 400 and found["param"] == "response_format"
    assert f"deeper than {MAX_SCHEMA_DEPTH} levels" in found["message"]


def test_a_schema_of_the_largest_depth_is_taken() -> None:
    assert JsonAnswers(nested(MAX_SCHEMA_DEPTH // 2)).write("Paris") == '{"answer": "Paris"}'
    with pytest.raises(ValueError, match="deeper"):
        JsonAnswers(nested(MAX_SCHEMA_DEPTH // 2 + 1))


async def ask_both_ways(client: Client, text: str, response_format: Any) -> dict[str, Any]:
    """Ask for a whole message and for a stream, and return the message."""
    whole = await client.ask(text, response_format=response_format)
    streamed = await client.ask(text, response_format=response_format, stream=True)
    chunks = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: {")]
    message: dict[str, Any] = whole.json()["choices"][0]["message"]
    for name in ("content", "refusal"):
        assert "".join(chunk["choices"][0]["delta"].get(name) or "" for chunk in chunks) == (message[name] or "")
    return message


def test_an_answer_comes_as_json_whole_and_as_a_stream(make: Make) -> None:
    client = Client(make())
    for response_format in ({"type": "json_object"}, asking_for(STRICT), asking_for(NULLABLE), asking_for(None)):
        message = run(ask_both_ways(client, "When was Brixa founded?", response_format))
        assert json.loads(message["content"]) == {"answer": "1501"} and message["refusal"] is None


def test_no_answer_is_null_or_a_refusal(make: Make) -> None:
    client = Client(make())
    for response_format in ({"type": "json_object"}, asking_for(NULLABLE)):
        assert run(ask_both_ways(client, "malformed?", response_format))["content"] == '{"answer": null}'
    message = run(ask_both_ways(client, "malformed?", asking_for(STRICT)))
    assert message["content"] is None and message["refusal"].startswith("No answer was found")
    short = {"properties": {"answer": {"maxLength": 5}}}
    message = run(ask_both_ways(client, "Who?", asking_for(short)))
    assert message["content"] is None and "does not fit" in message["refusal"]


def test_a_schema_that_no_answer_fits_is_a_bad_request(make: Make) -> None:
    async def talk() -> list[httpx.Response]:
        client = Client(make())
        schema = {"type": "object", "properties": {"name": TEXT, "age": {"type": "integer"}}, "required": ["name", "age"]}
        return list(
            await asyncio.gather(*(client.ask("Alba?", response_format=asking_for(schema), stream=stream) for stream in (False, True)))
        )

    for reply in run(talk()):
        assert error(reply) == (400, "invalid_request_error", "unsupported_value")
        assert reply.json()["error"]["param"] == "response_format" and '{"answer": "some words"}' in reply.json()["error"]["message"]
