"""A stand-in for Ollama, as a program: its HTTP API as documented, with models that answer by rule.

Covered: /api/version, tags, ps, show, pull (streamed and not), generate and chat (streamed and not, `format`, `keep_alive`), errors as
{"error": ...}, and /v1/models. Settings come from the environment, as Ollama's do: OLLAMA_HOST, OLLAMA_MODELS. What may be pulled stands
in FAKE_LIBRARY, `name=bytes` separated by commas; with FAKE_MEMORY fewer bytes than a model has, it does not load; FAKE_PULL=offline
has no network, and `broken` closes the connection halfway. FAKE_VERDICTS names a JSON file of prompts and the replies to them.

Models that think stand in FAKE_THINKING, `name=words` separated by commas; with `!` behind the words they cannot be told not to. As in
Ollama's server/routes.go: such a model thinks unless `think` is false, a format holds only after its thoughts, `num_predict` limits
thoughts and content each (a word is a token), and what is cut off in its thoughts has no content. Before 0.12.5, which FAKE_VERSION may
say, `think` is refused for models that do not think, be it false.
"""

import hashlib
import json
import os
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LIBRARY = {name: int(size) for name, _, size in (item.partition("=") for item in os.environ.get("FAKE_LIBRARY", "").split(",") if item)}
MODELS = Path(os.environ.get("OLLAMA_MODELS", "models"))
MEMORY = int(os.environ.get("FAKE_MEMORY", "0"))
VERSION = os.environ.get("FAKE_VERSION", "0.12.6")
THINKING = dict(item.split("=") for item in os.environ.get("FAKE_THINKING", "").split(",") if item)
VERDICTS = json.loads(Path(os.environ["FAKE_VERDICTS"]).read_text(encoding="utf-8")) if "FAKE_VERDICTS" in os.environ else {}
DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "qwen2",
    "families": ["qwen2"],
    "parameter_size": "7.6B",
    "quantization_level": "Q4_K_M",
}
SECONDS = {"s": 1, "m": 60, "h": 3600}
loaded: dict[str, datetime] = {}
lock = threading.Lock()


class Refused(Exception):
    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def tagged(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def file_of(name: str) -> Path:
    return MODELS / tagged(name).replace("/", "_").replace(":", "@")


def describe(name: str) -> dict[str, Any]:
    size = int(file_of(name).read_text())
    digest = hashlib.sha256(name.encode()).hexdigest()
    return {"name": name, "model": name, "modified_at": now(), "size": size, "digest": digest, "details": DETAILS}


def installed() -> list[str]:
    return sorted(path.name.replace("@", ":") for path in MODELS.glob("*")) if MODELS.is_dir() else []


def require(asked: dict[str, Any]) -> str:
    name = asked.get("model") or asked.get("name")
    if not name:
        raise Refused(400, "model is required")
    if not file_of(name).exists():
        raise Refused(404, f"model '{name}' not found")
    return tagged(name)


def load(name: str, keep_alive: Any) -> None:
    size = int(file_of(name).read_text())
    if MEMORY and size > MEMORY:
        raise Refused(500, f"model requires more system memory ({size / 2**30:.1f} GiB) than is available ({MEMORY / 2**30:.1f} GiB)")
    seconds = (
        keep_alive if isinstance(keep_alive, int | float) else int(str(keep_alive or "5m")[:-1]) * SECONDS[str(keep_alive or "5m")[-1]]
    )
    with lock:
        loaded[name] = datetime.now(UTC) + timedelta(seconds=seconds if seconds >= 0 else 1e9)
        if seconds == 0:
            del loaded[name]


def fill(schema: Any) -> str:
    """Answer in the form asked for: the first value of every enumeration."""
    if schema == "json":
        return "{}"
    kinds: dict[str, Any] = {"boolean": True, "integer": 0, "number": 0.0, "string": "", "array": [], "object": {}}
    found = {key: (part.get("enum") or [kinds[part["type"]]])[0] for key, part in schema.get("properties", {}).items()}
    return json.dumps(found)


def think(name: str, asked: dict[str, Any]) -> list[str]:
    """Return the words that a model thinks before it answers."""
    told = asked.get("think")
    if name not in THINKING:
        if told or (told is not None and [int(part) for part in VERSION.split(".")] < [0, 12, 5]):
            raise Refused(400, f'"{asked["model"]}" does not support thinking')
        return []
    words, always = THINKING[name].removesuffix("!"), THINKING[name].endswith("!")
    return ["hm"] * (int(words) if told is not False or always else 0)


def times(text: str) -> dict[str, Any]:
    counts = {"prompt_eval_count": 12, "prompt_eval_duration": 1_000_000, "eval_count": len(text.split()), "eval_duration": 1_000_000}
    return {"done": True, "done_reason": "stop", "total_duration": 3_000_000, "load_duration": 1_000_000, **counts}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        pages: dict[str, Any] = {
            "/api/version": lambda: {"version": VERSION},
            "/api/tags": lambda: {"models": [describe(name) for name in installed()]},
            "/api/ps": lambda: {
                "models": [
                    {**describe(name), "expires_at": until.isoformat(), "size_vram": 0}
                    for name, until in loaded.items()
                    if until > datetime.now(UTC)
                ]
            },
            "/v1/models": lambda: {
                "object": "list",
                "data": [{"id": name, "object": "model", "created": 0, "owned_by": "library"} for name in installed()],
            },
        }
        if self.path == "/":
            self.reply(200, b"Ollama is running", "text/plain; charset=utf-8")
        elif self.path in pages:
            self.send_json(200, pages[self.path]())
        else:
            self.reply(404, b"404 page not found", "text/plain")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if not body:
                raise Refused(400, "missing request body")
            try:
                asked = json.loads(body)
            except ValueError as error:
                raise Refused(400, f"invalid character: {error}") from error
            handle = {"/api/show": self.show, "/api/pull": self.pull, "/api/generate": self.generate, "/api/chat": self.chat}.get(self.path)
            if handle is None:
                self.reply(404, b"404 page not found", "text/plain")
                return
            handle(asked)
        except Refused as refused:
            self.send_json(refused.status, {"error": str(refused)})

    def show(self, asked: dict[str, Any]) -> None:
        name = require(asked)
        info = {"general.architecture": "qwen2", "qwen2.context_length": 32768}
        able = ["completion", "thinking"] if name in THINKING else ["completion"]
        facts = {"modelfile": f"FROM {name}", "parameters": "", "template": "{{ .Prompt }}", "capabilities": able}
        self.send_json(200, {**facts, "details": DETAILS, "model_info": info, "modified_at": now()})

    def pull(self, asked: dict[str, Any]) -> None:
        name = tagged(asked.get("model") or asked.get("name") or "")
        error = "" if name in LIBRARY else "pull model manifest: file does not exist"
        if os.environ.get("FAKE_PULL") == "offline":
            host = "registry.ollama.ai"
            error = f'pull model manifest: Get "https://{host}/v2/library/": dial tcp: lookup {host}: no such host'
        if asked.get("stream", True) is False:
            if error:
                raise Refused(500, error)
            self.install(name)
            self.send_json(200, {"status": "success"})
            return
        self.begin_stream()
        self.send_line({"status": "pulling manifest"})
        if error:
            self.send_line({"error": error})
        else:
            digest, total = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}", LIBRARY[name]
            for part in range(0, 11):
                if os.environ.get("FAKE_PULL") == "broken" and part == 5:
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_line({"status": f"pulling {digest[7:19]}", "digest": digest, "total": total, "completed": total * part // 10})
            for words in ("verifying sha256 digest", "writing manifest"):
                self.send_line({"status": words})
            self.install(name)
            self.send_line({"status": "success"})
        self.end_stream()

    def install(self, name: str) -> None:
        MODELS.mkdir(parents=True, exist_ok=True)
        file_of(name).write_text(str(LIBRARY[name]))

    def generate(self, asked: dict[str, Any]) -> None:
        name = require(asked)
        load(name, asked.get("keep_alive"))
        head = {"model": asked["model"], "created_at": now()}
        if not asked.get("prompt"):
            self.send_json(200, {**head, "response": "", "done": True, "done_reason": "unload" if asked.get("keep_alive") == 0 else "load"})
            return
        text = fill(asked["format"]) if asked.get("format") else asked["prompt"].upper()
        self.send_text(asked, head, text, lambda part: {"response": part})

    def chat(self, asked: dict[str, Any]) -> None:
        name = require(asked)
        load(name, asked.get("keep_alive"))
        head = {"model": asked["model"], "created_at": now()}
        messages = asked.get("messages") or []
        if not messages:
            reason = "unload" if asked.get("keep_alive") == 0 else "load"
            self.send_json(200, {**head, "message": {"role": "assistant", "content": ""}, "done_reason": reason, "done": True})
            return
        text = fill(asked["format"]) if asked.get("format") else messages[-1]["content"].upper()
        text, thoughts = VERDICTS.get(messages[-1]["content"], text), think(name, asked)
        most = asked.get("options", {}).get("num_predict", -1)
        if 0 <= most < len(thoughts):
            text, thoughts, ending = "", thoughts[:most], {"done_reason": "length", "eval_count": most}
        else:
            ending = {}
        more = {"thinking": " ".join(thoughts)} if thoughts else {}
        self.send_text(asked, head, text, lambda part: {"message": {"role": "assistant", "content": part, **more}}, ending)

    def send_text(self, asked: dict[str, Any], head: dict[str, Any], text: str, wrap: Any, ending: dict[str, Any] | None = None) -> None:
        if asked.get("stream", True) is False:
            self.send_json(200, {**head, **wrap(text), **times(text), **(ending or {})})
            return
        self.begin_stream()
        for part in [text[i : i + 4] for i in range(0, len(text), 4)]:
            self.send_line({**head, **wrap(part), "done": False})
        self.send_line({**head, **wrap(""), **times(text)})
        self.end_stream()

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_line(self, value: dict[str, Any]) -> None:
        line = json.dumps(value).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def send_json(self, status: int, value: Any) -> None:
        self.reply(status, json.dumps(value).encode(), "application/json; charset=utf-8")

    def reply(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def main() -> None:
    if sys.argv[1:] != ["serve"]:
        print(f"Error: unknown command {sys.argv[1:]} for ollama", file=sys.stderr)
        sys.exit(1)
    host, _, port = os.environ.get("OLLAMA_HOST", "127.0.0.1:11434").rpartition(":")
    try:
        server = ThreadingHTTPServer((host, int(port)), Handler)
    except OSError:
        print(f"Error: listen tcp {host}:{port}: bind: address already in use", file=sys.stderr)
        sys.exit(1)
    print(f'time={time.strftime("%Y-%m-%dT%H:%M:%S")} level=INFO msg="Listening on {host}:{port} (version {VERSION})"', flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
