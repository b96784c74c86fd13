"""A judge that is known to be right, behind a real HTTP server that breaks on purpose.

It speaks as much of Ollama's API (`/api/chat`, `/api/tags`, `/api/generate` to unload) and of OpenAI's (`/v1/chat/completions`) as a
judge is asked through. A broken reply carries the opposite of the truth, so that whatever leaks out of it shows as a wrong verdict.
Which request breaks and how depends on the seed, the question and how often it was put, not on the order in which threads arrive.
"""

import hashlib
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = ("timeout", "status", "truncated", "closed", "nonsense")
"""Answers too late; answers 429, 500, 502 or 503; sends half a JSON body as if it were all; closes in mid-body; says no verdict."""
NONSENSE = ("yes and no", "", "maybe", '{"correct": "perhaps"}', '{"correct": "yes"', "no, that is: yes", '{"verdict": "no"}', "null")
STATUSES = (429, 500, 502, 503)
DIGEST = "sha256:" + hashlib.sha256(b"the judge that is known to be right").hexdigest()


def hash_truth(prompt: str) -> bool:
    """Decide by the prompt's hash: half of all questions are right, and nobody can guess which."""
    return hashlib.sha256(prompt.encode()).digest()[0] % 2 == 0


def always_no(prompt: str) -> bool:
    """Agree with the exact judge: it has said no to everything that a model is asked about."""
    return False


@dataclass(frozen=True)
class Behaviour:
    """How a server answers."""

    truth: Callable[[str], bool] = hash_truth
    fault_frac: float = 0.0
    """Share of requests that break."""
    faults: tuple[str, ...] = FAULTS
    seed: int = 0
    late_s: float = 1.0
    """Delay of a reply that comes too late."""
    delay_s: float = 0.0
    """Time each verdict takes."""
    models: dict[str, str] = field(default_factory=lambda: {"judge:latest": DIGEST})
    """Name -> digest."""
    forms: tuple[str, ...] = ("json_schema", "json_object")
    """Types of OpenAI's `response_format` that it takes."""
    refusal: int = 400
    """Status of its answer to others; llama-cpp-python's is 500."""
    thinks: int = 0
    """Words that the model behind OpenAI's API thinks, each a token, before it answers."""
    obeys: bool = True
    """It does not think where `chat_template_kwargs` say so."""
    aside: str = "reasoning_content"
    """Where its thoughts stand; empty: in its text, between <think> and </think>."""
    unknown: str = ""
    """Words with which `chat_template_kwargs` are refused; empty: they are not."""


class JudgeServer:
    """Serves on loopback in threads of this process."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        """Listen on a free port."""
        self.behaviour = behaviour or Behaviour()
        self.counts: Counter[str] = Counter()
        """Requests by path, and faults by name."""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.stopped = threading.Event()
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"judge": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "JudgeServer":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def note(self, path: str, request: dict[str, Any], headers: dict[str, str]) -> None:
        """Remember a request."""
        with self._lock:
            self.counts[path] += 1
            self.requests.append(request)
            self.headers.append(headers)

    def draw_fault(self, question: str) -> tuple[str, random.Random]:
        """Draw how the next try of a question breaks; an empty name means that it does not."""
        behaviour = self.behaviour
        with self._lock:
            self._tries[question] += 1
            chance = random.Random(f"{behaviour.seed} {self._tries[question]} {question}")
            fault = chance.choice(behaviour.faults) if chance.random() < behaviour.fault_frac else ""
            if fault:
                self.counts[fault] += 1
            return fault, chance


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    judge: JudgeServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Serve the list of models."""
        self.judge.note(self.path, {}, {name.lower(): value for name, value in self.headers.items()})
        if self.path != "/api/tags":
            return self._send(404, json.dumps({"error": "not found"}))
        models = [{"name": name, "model": name, "digest": digest, "size": 1} for name, digest in self.judge.behaviour.models.items()]
        fault, chance = self.judge.draw_fault("the list of models")
        fault = "" if fault == "nonsense" else fault  # no model writes this list
        self._answer(fault, chance, lambda content, right: json.dumps({"models": models if right else []}), "", "")

    def do_POST(self) -> None:
        """Serve a chat, or unload a model."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.judge.note(self.path, request, {name.lower(): value for name, value in self.headers.items()})
        renders = {"/api/chat": _ollama_chat, "/v1/chat/completions": _openai_chat}
        behaviour = self.judge.behaviour
        if self.path == "/api/generate":
            return self._send(200, json.dumps({"model": request["model"], "done": True, "done_reason": "unload", "response": ""}))
        if self.path not in renders:
            return self._send(404, json.dumps({"error": "not found"}))
        if "response_format" in request and request["response_format"]["type"] not in behaviour.forms:
            message = "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type')}]"
            return self._send(behaviour.refusal, json.dumps({"error": {"message": message}}))
        if behaviour.unknown and "chat_template_kwargs" in request:
            return self._send(400, json.dumps({"error": {"message": behaviour.unknown}}))
        prompt = request["messages"][-1]["content"]
        truth = behaviour.truth(prompt)
        fault, chance = self.judge.draw_fault(prompt)
        self.judge.stopped.wait(behaviour.delay_s)
        said = {right: json.dumps({"correct": "yes" if right else "no"}) for right in (True, False)}
        self._answer(fault, chance, lambda content, right: renders[self.path](request, content, behaviour), said[truth], said[not truth])

    def _answer(self, fault: str, chance: random.Random, render: Callable[[str, bool], str], right: str, wrong: str) -> None:
        """Send the right reply, or break on the way."""
        if not fault:
            return self._send(200, render(right, True))
        body = render(wrong, False)
        if fault == "timeout":
            self.judge.stopped.wait(self.judge.behaviour.late_s)
            self._send(200, body)
        elif fault == "status":
            self._send(chance.choice(STATUSES), body)
        elif fault == "truncated":
            self._send(200, body[: chance.randrange(1, len(body) - 1)])
        elif fault == "closed":
            self._send(200, body, sent=chance.randrange(len(body) - 1))
        else:
            self._send(200, render(chance.choice(NONSENSE), False))

    def _send(self, status: int, body: str, sent: int | None = None) -> None:
        data = body.encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:sent])
        except OSError:  # the client waited long enough
            self.close_connection = True
        if sent is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def _ollama_chat(request: dict[str, Any], content: str, behaviour: Behaviour) -> str:
    message = {"role": "assistant", "content": content}
    return json.dumps({"model": request["model"], "message": message, "done": True, "done_reason": "stop"})


def _openai_chat(request: dict[str, Any], content: str, behaviour: Behaviour) -> str:
    told = request.get("chat_template_kwargs", {}).get("enable_thinking", True)
    thoughts = ["hm"] * (behaviour.thinks if told or not behaviour.obeys else 0)
    cut_off, thoughts = len(thoughts) > request["max_tokens"], thoughts[: request["max_tokens"]]
    message: dict[str, Any] = {"role": "assistant", "content": "" if cut_off else content}
    if thoughts and behaviour.aside:
        message |= {behaviour.aside: " ".join(thoughts), "content": message["content"] or None}
    elif thoughts:
        message["content"] = f"<think>{' '.join(thoughts)}{'' if cut_off else '</think>'}{message['content']}"
    choices = [{"index": 0, "message": message, "finish_reason": "length" if cut_off else "stop"}]
    usage = {"prompt_tokens": 1, "completion_tokens": len(thoughts) + 1 - cut_off, "total_tokens": len(thoughts) + 2 - cut_off}
    head = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
    return json.dumps({**head, "choices": choices, "usage": usage})
