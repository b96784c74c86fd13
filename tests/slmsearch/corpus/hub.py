"""A stand-in for the Hub on loopback that data sets are read from: it answers as huggingface_hub and datasets ask, one branch a set."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from tests.loopback import listening


class StandIn:
    """What it holds, `name -> commit -> path -> bytes`, and the paths it was asked for."""

    def __init__(self) -> None:
        self.sets: dict[str, dict[str, dict[str, bytes]]] = {}
        self.asked: list[str] = []
        self.url = ""

    def put(self, name: str, commit: str, files: dict[str, bytes]) -> None:
        """Add a commit; it is the newest from now on."""
        self.sets.setdefault(name, {})[commit] = files

    def find(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commits = self.sets.get(name, {})
        commit = next(reversed(commits), "") if revision == "main" else revision
        return (commit, commits[commit]) if commit in commits else None

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        path = unquote(path.partition("?")[0])
        self.asked.append(path)
        parts = path.strip("/").split("/")
        in_api = parts[0] == "api"
        parts = parts[in_api:]
        if parts[0] != "datasets" or len(parts) < 3:
            return 404, {}, b"{}"
        name, action, revision = "/".join(parts[1:3]), *(parts[3:5] or ["revision", "main"])
        if name not in self.sets:
            return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"
        found = self.find(name, revision)
        if found is None:
            return 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {revision}"}, b"{}"
        commit, files = found
        if not in_api:
            place = "/".join(parts[5:])
            if place not in files:
                return 404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found", "X-Repo-Commit": commit}, b""
            return 200, {"ETag": f'"{_digest(files[place])}"', "X-Repo-Commit": commit}, files[place]
        value: Any = {"id": name, "sha": commit, "siblings": [{"rfilename": place} for place in files]}
        if action == "tree":
            value = [_entry(place, files) for place in _places(files)]
        if action == "paths-info":
            value = [_entry(place, files) for place in json.loads(body)["paths"] if place in _places(files)]
        return 200, {"Content-Type": "application/json", "X-Repo-Commit": commit}, json.dumps(value).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def _places(files: dict[str, bytes]) -> list[str]:
    folders = {"/".join(place.split("/")[:depth]) for place in files for depth in range(1, place.count("/") + 1)}
    return sorted({*files, *folders})


def _entry(place: str, files: dict[str, bytes]) -> dict[str, Any]:
    if place in files:
        return {"type": "file", "path": place, "size": len(files[place]), "oid": _digest(files[place])}
    return {"type": "directory", "path": place, "oid": _digest(place.encode())}


@contextmanager
def serving() -> Iterator[StandIn]:
    hub = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, content = hub.answer(self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with listening(Handler) as hub.url:
        yield hub
