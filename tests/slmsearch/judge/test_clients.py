"""What goes over the wire to Ollama and to OpenAI-compatible servers, and what their errors are taken for."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from pydantic import SecretStr

from slmsearch.config import JudgeConfig
from slmsearch.judge.clients import JudgeClient, OllamaClient, ServerError, make_client
from slmsearch.judge.prompt import MAX_REPLY_TOKENS, REPLY_SCHEMA, THOUGHT_TOKENS
from slmsearch.judge.reply import Reply, UnparsableReplyError, parse_reply
from tests.judge_server import DIGEST, Behaviour, JudgeServer, always_no

KINDS = ("ollama", "openai")


def configure(kind: str, url: str, **settings: Any) -> JudgeConfig:
    given = {"model": "judge", "api_key": SecretStr("k"), "timeout_s": 5.0, **settings}
    return JudgeConfig(kind=kind, base_url=url + ("/v1" if kind == "openai" else ""), **given)


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer(Behaviour(truth=always_no)) as server:
        yield server


def test_ollama_is_asked_for_structure_at_temperature_zero_and_keeps_the_model(server: JudgeServer) -> None:
    assert parse_reply(make_client(configure("ollama", server.url)).ask("Is it?")) is False
    assert parse_reply(make_client(configure("ollama", server.url, loaded="always")).ask("Is it?")) is False
    first, second = server.requests
    assert set(server.counts) == {"/api/chat"}
    assert (first["model"], first["messages"], first["format"]) == ("judge", [{"role": "user", "content": "Is it?"}], REPLY_SCHEMA)
    assert (first["options"]["temperature"], first["stream"]) == (0.0, False)
    assert (first["keep_alive"], second["keep_alive"]) == ("1m", "30m")
    assert server.headers[0]["authorization"] == "Bearer k"


def test_an_openai_server_is_asked_for_structure_at_temperature_zero(server: JudgeServer) -> None:
    assert parse_reply(make_client(configure("openai", server.url)).ask("Is it?")) is False
    (request,) = server.requests
    assert set(server.counts) == {"/v1/chat/completions"}
    assert (request["model"], request["temperature"]) == ("judge", 0.0)
    assert request["response_format"]["json_schema"]["schema"] == REPLY_SCHEMA
    assert server.headers[0]["authorization"] == "Bearer k"


@pytest.mark.parametrize("refusal", [400, 422, 500])
@pytest.mark.parametrize("taken", [(), ("json_object",)])
def test_a_form_that_a_server_refuses_is_not_asked_for_again(taken: tuple[str, ...], refusal: int) -> None:
    with JudgeServer(Behaviour(truth=always_no, forms=taken, refusal=refusal)) as server:
        client = make_client(configure("openai", server.url))
        assert [parse_reply(client.ask(text)) for text in ("a", "b", "c")] == [False] * 3
        forms = [request.get("response_format", {}).get("type") for request in server.requests]
        assert forms == ["json_schema", "json_object", *(["json_object"] * 2 if taken else [None] * 3)]
        if taken:
            assert server.requests[-1]["response_format"]["schema"] == REPLY_SCHEMA


def test_ollama_names_the_weights_and_the_tag_may_be_left_out(server: JudgeServer) -> None:
    assert make_client(configure("ollama", server.url)).identify() == f"ollama:{DIGEST}"
    assert make_client(configure("ollama", server.url, model="judge:latest")).identify() == f"ollama:{DIGEST}"
    with pytest.raises(ServerError, match=r"has no model 'judge:7b'; ollama pull judge:7b") as missing:
        make_client(configure("ollama", server.url, model="judge:7b")).identify()
    assert not missing.value.passing


def test_an_openai_server_is_named_by_model_and_address(server: JudgeServer) -> None:
    assert make_client(configure("openai", server.url)).identify() == f"openai:judge@{server.url}/v1"
    assert server.requests == []


@pytest.mark.parametrize("kind", KINDS)
def test_credentials_in_an_address_are_sent_and_never_shown(kind: str, server: JudgeServer) -> None:
    config = configure(kind, server.url.replace("//", "//user:s3cret@"), api_key=None)
    client = make_client(config)
    client.ask("Is it?")
    if kind == "openai":
        assert "s3cret" not in client.identify()
    server.behaviour = Behaviour(fault_frac=1.0, faults=("status",))
    with pytest.raises(ServerError) as failed:
        client.ask("Is it?")
    assert "s3cret" not in str(failed.value)


def test_the_model_is_unloaded_unless_it_is_to_stay(server: JudgeServer) -> None:
    make_client(configure("ollama", server.url, loaded="always")).release()
    make_client(configure("openai", server.url)).release()
    assert server.requests == []
    make_client(configure("ollama", server.url)).release()
    assert server.counts["/api/generate"] == 1
    assert (server.requests[0]["model"], server.requests[0]["keep_alive"]) == ("judge", 0)


def test_the_exact_judge_has_no_client() -> None:
    with pytest.raises(ValueError, match="asks no model"):
        make_client(JudgeConfig())


# Models that think


@pytest.mark.parametrize("aside", ["reasoning_content", "reasoning", ""])
@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "thinks all the same"])
def test_a_model_that_thinks_is_told_not_to_and_else_given_room(aside: str, obeys: bool) -> None:
    with JudgeServer(Behaviour(truth=always_no, thinks=1000, obeys=obeys, aside=aside)) as server:
        client = make_client(configure("openai", server.url))
        replies = [client.ask(text) for text in ("a", "b")]
    assert [parse_reply(reply) for reply in replies] == [False, False]
    assert [reply.tokens for reply in replies] == ([1, 1] if obeys else [1001, 1001])
    room, told = MAX_REPLY_TOKENS + THOUGHT_TOKENS, {"enable_thinking": False}
    asked = [(request["max_tokens"], request.get("chat_template_kwargs")) for request in server.requests]
    assert asked == ([(MAX_REPLY_TOKENS, told)] * 2 if obeys else [(MAX_REPLY_TOKENS, told), (room, None), (room, None)])
    assert all(request["response_format"]["json_schema"]["schema"] == REPLY_SCHEMA for request in server.requests)


@pytest.mark.parametrize("words", ["Unrecognized request argument supplied: chat_template_kwargs", "Extra inputs are not permitted"])
@pytest.mark.parametrize("forms", [("json_schema", "json_object"), ()])
def test_a_server_that_knows_no_template_variables_is_asked_without_them(words: str, forms: tuple[str, ...]) -> None:
    with JudgeServer(Behaviour(truth=always_no, unknown=words, forms=forms)) as server:
        client = make_client(configure("openai", server.url))
        assert [parse_reply(client.ask(text)) for text in ("a", "b", "c")] == [False] * 3
        named = 1 if "chat_template_kwargs" in words else 3
        first = {("json_schema", "json_object"): named, (): 5}[forms]
        assert len(server.requests) == first + 3, "what is refused is found out once"
        last = server.requests[-1]
        assert ("chat_template_kwargs" in last, "response_format" in last) == (False, bool(forms))


def test_a_model_that_never_stops_thinking_is_asked_twice_and_its_reply_says_so() -> None:
    with JudgeServer(Behaviour(thinks=9000, obeys=False)) as server:
        reply = make_client(configure("openai", server.url)).ask("Is it?")
        assert len(server.requests) == 2
    assert (reply.text, reply.cut_off, reply.tokens) == ("", True, MAX_REPLY_TOKENS + THOUGHT_TOKENS)
    with pytest.raises(UnparsableReplyError, match=r"cut off after 2176 tokens inside its thoughts; seen: 'hm hm"):
        parse_reply(reply)


@pytest.mark.parametrize("text", ["", "<think>hm"])
def test_a_reply_that_a_server_files_wholly_under_thoughts_is_asked_for_without_the_switch(answering: Any, text: str) -> None:
    answer, url = answering
    message = {"role": "assistant", "content": text or None, "reasoning_content": '{"correct": "yes"}'}
    answer["body"] = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    client = make_client(configure("openai", url))
    with pytest.raises(UnparsableReplyError, match=r"nothing after its thoughts; seen: "):
        parse_reply(client.ask("Is it?"))
    assert answer["asked"] == 2


# Errors


def ask_broken(kind: str, fault: str) -> Reply:
    with JudgeServer(Behaviour(fault_frac=1.0, faults=(fault,), late_s=0.4)) as server:
        return make_client(configure(kind, server.url, timeout_s=0.2)).ask("Is it?")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["timeout", "status", "truncated", "closed"])
def test_a_fault_is_an_outage_that_may_pass(kind: str, fault: str) -> None:
    with pytest.raises(ServerError) as failed:
        ask_broken(kind, fault)
    assert failed.value.passing
    assert "\n" not in str(failed.value) and "judge.kind=exact" in str(failed.value)


@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_a_reply_but_no_verdict(kind: str) -> None:
    with pytest.raises(UnparsableReplyError):
        parse_reply(ask_broken(kind, "nonsense"))


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_listening_may_pass(kind: str) -> None:
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:1") as failed:
        make_client(configure(kind, "http://127.0.0.1:1")).ask("Is it?")
    assert failed.value.passing


@pytest.fixture
def answering() -> Iterator[Any]:
    """A server that answers everything with one status and body."""
    answer: dict[str, Any] = {"status": 200, "body": "{}", "headers": {}, "asked": 0}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer["asked"] += 1
            self.send_response(answer["status"])
            for name, value in {**answer["headers"], "Content-Type": "application/json", "Content-Length": len(answer["body"])}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(answer["body"].encode())

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield answer, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "passing"),
    [(400, False), (401, False), (403, False), (404, False), (408, True), (422, False), (429, True), (500, True), (502, True), (503, True)],
)
def test_the_status_says_whether_asking_again_may_help(answering: Any, kind: str, status: int, passing: bool) -> None:
    answer, url = answering
    answer.update(status=status, body='{"error": {"message": "out of memory"}}', headers={"Retry-After": "7"})
    with pytest.raises(ServerError, match="out of memory") as failed:
        make_client(configure(kind, url)).ask("Is it?")
    assert failed.value.passing is passing
    assert failed.value.retry_after_s == (7.0 if kind == "openai" else 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", ["{}", '{"choices": []}', '{"choices": [{"message": null}], "message": 3}', "[]", "not json", "null"])
def test_a_body_that_is_no_chat_is_an_outage(answering: Any, kind: str, body: str) -> None:
    answer, url = answering
    answer["body"] = body
    with pytest.raises(ServerError) as failed:
        make_client(configure(kind, url)).ask("Is it?")
    assert failed.value.passing


def test_an_unfinished_reply_of_ollama_is_an_outage(answering: Any) -> None:
    answer, url = answering
    answer["body"] = json.dumps({"message": {"role": "assistant", "content": "yes"}, "done": False})
    with pytest.raises(ServerError, match="incomplete"):
        make_client(configure("ollama", url)).ask("Is it?")


def test_a_list_of_models_that_is_none_is_an_outage(answering: Any) -> None:
    answer, url = answering
    client: JudgeClient = OllamaClient(configure("ollama", url))
    answer["body"] = "[]"
    with pytest.raises(ServerError) as failed:
        client.identify()
    assert failed.value.passing
