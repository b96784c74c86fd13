"""Whoever asks a server that settings name follows it nowhere, reads no answer without end, and repeats no key that it sends back."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from slmsearch import http_client
from slmsearch.config import EmbedderConfig, JudgeConfig, WorkerConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.planner.plan_prompt import DIRECT_SOLUTION, Task
from slmsearch.environments.planner.worker import make_served_worker
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import ServiceError, SlmSearchError
from slmsearch.evaluate.run import find_model
from slmsearch.http_client import answers, list_models, read_completion
from slmsearch.judge.clients import make_client
from slmsearch.judge.llm import LlmJudge
from slmsearch.retrieval.embedders import ServedEmbedder
from slmsearch.sampling.openai_sampler import OpenAISampler

LIMIT = 1 << 20
TRIES = 1 + JudgeConfig.retries
KEY, PASSWORD = "PLANTEDKEY", "PLANTEDPASSWORD"


def chat(message: object = None, **changes: object) -> bytes:
    """Write a chat completion, whole but for the changes."""
    choice = {"index": 0, "finish_reason": "stop", "message": message or {"role": "assistant", "content": "1"}}
    return json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], **changes}).encode()


PAGE = b"<!doctype html><html><title>Sign in</title><body>The network asks you to sign in.</body></html>"
BODIES = {
    "web page": ("text/html; charset=utf-8", PAGE),
    "plain text": ("text/plain", b"yes"),
    "page called JSON": ("application/json", PAGE),
    "array": ("application/json", b"[]"),
    "null": ("application/json", b"null"),
    "word": ("application/json", b'"yes"'),
    "number": ("application/json", b"1"),
    "object": ("application/json", b'{"status": "ok"}'),
    "error with status 200": ("application/json", b'{"error": {"message": "no such model"}}'),
    "no choices": ("application/json", chat(choices=[])),
    "choices of null": ("application/json", chat(choices=None)),
    "choices of text": ("application/json", chat(choices="yes")),
    "choice of text": ("application/json", chat(choices=["yes"])),
    "message of text": ("application/json", chat("yes")),
    "content of parts": ("application/json", chat({"role": "assistant", "content": [{"type": "text", "text": "yes"}]})),
    "content of a number": ("application/json", chat({"role": "assistant", "content": 1})),
    "broken off by the server": ("application/json", chat(choices=[{"finish_reason": "abort", "message": {"content": "yes"}}])),
    "cut off": ("application/json", chat({"role": "assistant", "content": "yes"})[:-40]),
}
"""What a server sends that is no answer: type and body."""


class Hostile(ThreadingHTTPServer):
    """Answers every request as it is told, and counts what it was asked and what it could send."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.asked = self.sent = 0
        self.target, self.manner, self.over = "", "redirect", threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Hostile
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.manner == "redirect":
            self.send_response(307)
            self.send_header("Location", self.server.target + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.server.manner == "compressed":
            body = gzip.compress(bytes(8 * LIMIT))
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        elif self.server.manner == "echo":
            body = json.dumps({"error": {"message": f"wrong key {KEY}"}}).encode()
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        elif self.server.manner == "hang":
            self.server.over.wait()
            self.close_connection = True
        elif self.server.manner in BODIES:
            kind, body = BODIES[self.server.manner]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) + (64 if self.server.manner == "cut off" else 0)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True
        else:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            with suppress(OSError):
                while self.server.sent < 64 * LIMIT:
                    self.server.sent += self.wfile.write(b" " * 65_536)

    do_POST = do_GET

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def servers() -> Iterator[tuple[Hostile, Hostile]]:
    pair = Hostile(), Hostile()
    pair[0].target = pair[1].url
    yield pair
    for server in pair:
        server.over.set()
        server.shutdown()
        server.server_close()


def judge(kind: Any) -> Callable[[str], object]:
    settings = {"kind": kind, "api_key": SecretStr(KEY), "timeout_s": 20, "require_qualified": False}
    return lambda url: make_client(JudgeConfig(base_url=url, **settings)).ask("right?")


def judged(kind: Any) -> Callable[[str], object]:
    def ask(url: str) -> object:
        config = JudgeConfig(kind=kind, base_url=url, timeout_s=0.3, require_qualified=False)
        (verdict,) = LlmJudge(make_client(config), config, sleep=lambda seconds: None).judge([(Question("1", "Who?", "Mira"), "Tom")])
        assert verdict.correct is None
        return refuse(verdict.failure)

    return ask


def write(url: str) -> object:
    sampler = OpenAISampler("m", f"{url}/v1", KEY)
    sampler._client = sampler._client.with_options(timeout=0.3)
    sampler.open([[{"role": "user", "content": "hello"}]], Sampling())
    return refuse(sampler.sample([0], [None], [8])[0].failure)


def embed(url: str) -> object:
    return ServedEmbedder(EmbedderConfig(base_url=url, api_key=SecretStr(KEY), model="m")).encode_queries(["mill"])


def solve(url: str) -> object:
    worker = make_served_worker(WorkerConfig(kind="openai", base_url=f"{url}/v1", api_key=SecretStr(KEY), model="m"))
    return refuse(worker.solve([Task(DIRECT_SOLUTION, "1 + 1")])[0].failure)


def refuse(failure: str) -> None:
    """Raise what a caller says of one item of several."""
    if failure:
        raise SlmSearchError(failure)


def probe(url: str) -> object:
    if not answers(url) and list_models(url) is None:
        raise SlmSearchError("no answer")
    return None


CALLERS = [judge("openai"), judge("ollama"), write, solve, embed, lambda url: find_model(f"{url}/v1", KEY), probe]
IDS = ["openai judge", "ollama judge", "policy", "worker", "embedder", "model list", "probe"]


@pytest.mark.parametrize("manner", ["redirect", "compressed", "endless"])
@pytest.mark.parametrize("call", CALLERS, ids=IDS)
def test_a_server_gets_no_further_and_no_longer_than_it_may(servers, monkeypatch, call: Any, manner: str) -> None:
    monkeypatch.setattr(http_client, "MAX_BYTES", LIMIT)
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *args, **kwargs: 0.0)
    server, elsewhere = servers
    server.manner = manner
    with pytest.raises(SlmSearchError) as raised:
        call(server.url)
    assert "\n" not in str(raised.value)
    assert server.asked and not elsewhere.asked
    assert server.sent <= server.asked * 8 * LIMIT  # what lies in buffers on the way is sent, too


@pytest.mark.parametrize("call", CALLERS, ids=IDS)
def test_a_key_that_a_server_sends_back_and_a_password_in_its_address_are_not_repeated(servers, monkeypatch, call: Any) -> None:
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *args, **kwargs: 0.0)
    server, _ = servers
    server.manner = "echo"
    with pytest.raises(SlmSearchError) as raised:
        call(server.url.replace("//", f"//user:{PASSWORD}@"))
    assert server.asked
    assert "PLANTED" not in str(raised.value)


@pytest.mark.parametrize("manner", BODIES)
@pytest.mark.parametrize("call", CALLERS, ids=IDS)
def test_what_is_no_answer_is_told_in_one_line_and_is_none(servers, monkeypatch, call: Any, manner: str) -> None:
    """A proxy's page, an address that is not the server's, a server of another kind: all come with status 200."""
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *args, **kwargs: 0.0)
    server, _ = servers
    server.manner = manner
    if call is probe:
        assert list_models(server.url) is None
        return
    with pytest.raises(SlmSearchError) as raised:
        call(server.url)
    told = str(raised.value)
    assert "\n" not in told and server.url in told
    assert not any(word in told for word in ("object has no attribute", "not subscriptable", "object is not", "validation error"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["choices", "message", "content", "finish_reason", "usage", "completion_tokens"]), inner, max_size=3
            )
        ),
    )
)
def test_a_reply_of_any_shape_is_a_completion_or_a_service_error(body: Any) -> None:
    try:
        reply = read_completion(httpx.Response(200, json=body, request=httpx.Request("POST", "http://host/v1")))
    except ServiceError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(reply.text, str) and isinstance(reply.tokens, int)


@pytest.mark.parametrize(("call", "times"), [(judged("openai"), TRIES), (judged("ollama"), TRIES), (write, 1), (solve, 1)], ids=IDS[:4])
def test_a_server_that_hangs_is_asked_as_often_as_the_settings_say(servers, monkeypatch, call: Any, times: int) -> None:
    """A turn is not asked for again while the server may still be at work on it; a judge is asked `judge.retries` times more."""
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *args, **kwargs: 0.0)
    monkeypatch.setattr(WorkerConfig, "timeout_s", 0.3)
    monkeypatch.setattr(http_client, "ask_models", lambda *args, **kwargs: None)  # waits for ten seconds
    server, _ = servers
    server.manner = "hang"
    with pytest.raises(SlmSearchError, match=r"(?i)time"):
        call(server.url)
    assert server.asked == times


@pytest.mark.parametrize(("manner", "times"), [("web page", 1), ("plain text", 1), ("cut off", TRIES), ("object", TRIES)])
def test_a_judge_is_not_asked_again_where_a_page_answers(servers, manner: str, times: int) -> None:
    """The page comes again; half a reply, or one while a server starts, may not."""
    server, _ = servers
    server.manner = manner
    with pytest.raises(SlmSearchError, match=r"check judge\.model, judge\.base_url" if times == 1 else "start it"):
        judged("openai")(server.url)
    assert server.asked == times
