"""A stand-in for the Hub's upload API on loopback: makes repositories and takes commits, as huggingface_hub sends them."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.loopback import listening


class FakeHub:
    """What was asked of it, and what it holds."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, Any]] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.tokens: set[str | None] = set()
        self.url = ""
        self.refuse = False

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        path = path.partition("?")[0]
        if self.refuse:
            return 403, {"error": "no write permission"}
        if path == "/api/repos/create":
            made = json.loads(body)
            name = f"{made['organization']}/{made['name']}" if made.get("organization") else made["name"]
            self.repos[name] = made
            return 200, {"url": f"{self.url}/{name}", "id": name}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        repo = "/".join(path.removeprefix("/api/models/").split("/")[:2])
        if "/preupload/" in path:
            return 200, {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]]}
        if "/commit/" in path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    value = entry["value"]
                    self.files.setdefault(repo, {})[value["path"]] = base64.b64decode(value["content"])
            return 200, {"commitUrl": f"{self.url}/{repo}/commit/abc", "commitOid": "abc", "hookOutput": ""}
        if path.startswith("/api/models/"):
            return 200, {"id": repo, "sha": "abc", "siblings": []}
        return 404, {"error": f"{method} {path} is not known here"}


@contextmanager
def serving() -> Iterator[FakeHub]:
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            hub.tokens.add(self.headers.get("Authorization"))
            status, values = hub.answer(self.command, self.path, body)
            sent = json.dumps(values).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    with listening(Handler) as hub.url:
        yield hub
