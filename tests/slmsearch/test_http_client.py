"""Whoever asks a server that settings name follows it nowhere, reads no answer without end, and repeats no key that it sends back."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import SecretStr

from slmsearch import http_client
from slmsearch.config import EmbedderConfig, JudgeConfig, WorkerConfig
from slmsearch.errors import SlmSearchError
from slmsearch.evaluate.run import find_model
from slmsearch.generate.openai_sampler import OpenAISampler
from slmsearch.generate.sampler import Sampling
from slmsearch.http_client import answers, list_models
from slmsearch.judge.clients import make_client
from slmsearch.planner.prompt import DIRECT_SOLUTION, Task
from slmsearch.planner.worker import make_served_worker
from slmsearch.retrieval.embedders import ServedEmbedder

LIMIT = 1 << 20
KEY, PASSWORD = "PLANTEDKEY", "PLANTEDPASSWORD"


class Hostile(ThreadingHTTPServer):
    """Answers every request as it is told, and counts what it was asked and what it could send."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.asked = self.sent = 0
        self.target, self.manner = "", "redirect"
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
        server.shutdown()
        server.server_close()


def judge(kind: Any) -> Callable[[str], object]:
    settings = {"kind": kind, "api_key": SecretStr(KEY), "timeout_s": 20, "require_qualified": False}
    return lambda url: make_client(JudgeConfig(base_url=url, **settings)).ask("right?")


def write(url: str) -> object:
    sampler = OpenAISampler("m", f"{url}/v1", KEY)
    sampler._client = sampler._client.with_options(max_retries=0)
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
