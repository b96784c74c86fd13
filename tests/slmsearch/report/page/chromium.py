"""A real browser without a screen, driven over its DevTools protocol; only what the tests of the page need."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
STARTED = "DevTools listening on "
TIMEOUT_S = 60


def find_chromium() -> str | None:
    """Return the browser's command; None where none is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._last = socket, 0
        self.complaints: list[str] = []
        """What the console and the page's policy said."""
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method in the tab."""
        return self._call(method, self._session, **params)

    def _call(self, method: str, session: str | None = None, **params: Any) -> Any:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params, **({"sessionId": session} if session else {})}
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=TIMEOUT_S))
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        match event["method"]:
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.complaints.append(json.dumps(event["params"])[:500])
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])

    def open(self, path: Path, width: int = 1280, height: int = 900) -> None:
        """Open a file and wait until its script has run."""
        self.visit(path.as_uri(), width, height)

    def visit(self, address: str, width: int = 1280, height: int = 900) -> None:
        """Open an address and wait until its script has run."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=address)
        self.run("new Promise(done => document.readyState === 'complete' ? done(1) : addEventListener('load', () => done(1)))")

    def run(self, script: str) -> Any:
        """Run a script in the page and return its value."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")


@contextmanager
def open_browser(command: str, profile: Path) -> Iterator[Browser]:
    """Start a browser of our own and end it again."""
    arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--remote-debugging-port=0"]
    process = subprocess.Popen(
        [command, *arguments, f"--user-data-dir={profile}", "about:blank"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stderr is not None
        line = next((line for line in process.stderr if STARTED in line), "")
        assert line, "the browser ended before it could be talked to"
        with connect(line.partition(STARTED)[2].strip(), max_size=None) as socket:
            yield Browser(socket)
    finally:
        process.kill()
        process.wait()
