"""No secret leaves the processes that have it: a real installation is given one of every kind, and all that it writes is read."""

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slmsearch.processes.ports import free_port
from tests.e2e import stand
from tests.e2e.stand import ROOT, Stand

SMALL = ["--corpus.world.pages", "40", "--evaluate.limit", "6", "--judge.kind", "openai", "--judge.model", "judge",
    "--policy.model", "policy", "--retrieval.embedder.model", "embedder"]  # fmt: skip


class Models(ThreadingHTTPServer):
    """Policy and judge on one port; broken, it sends back what it was asked with."""

    daemon_threads = True
    broken = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str]] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Models

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((body["model"], self.headers.get("Authorization", "")))
        if self.path.endswith("/embeddings"):
            vectors = [list(sha256(text.encode()).digest()) for text in body["input"]]
            self._send(200, {"data": [{"index": number, "embedding": vector} for number, vector in enumerate(vectors)]})
            return
        text = '{"correct": "yes"}' if body["model"] == "judge" else "<answer>a mill</answer>"
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        told = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        status = 401 if self.server.broken and body["model"] == "judge" else 200
        refusal = {"error": {"message": f"no such key: {self.headers['Authorization']} PLANTED-JUDGE-KEY"}}
        self._send(status, refusal if status == 401 else told)

    def _send(self, status: int, content: object) -> None:
        answer = json.dumps(content)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class Planted:
    """A secret and how it is given."""

    setting: str
    way: str
    secret: str
    value: str


def in_the_environment(models: str, mlflow_port: int) -> list[Planted]:
    """What an installation that works has: worker and user read the same variables."""
    values = {
        "judge.api_key": ("PLANTED-JUDGE-KEY", "{}"),
        "judge.base_url": ("PLANTED-JUDGE-PASSWORD", f"http://user:{{}}@{models}"),
        "policy.api_key": ("PLANTED-POLICY-KEY", "{}"),
        "policy.base_url": ("PLANTED-POLICY-PASSWORD", f"http://user:{{}}@{models}"),
        "planner.worker.api_key": ("PLANTED-WORKER-KEY", "{}"),
        "planner.worker.base_url": ("PLANTED-WORKER-PASSWORD", f"http://user:{{}}@{models}"),
        "retrieval.chroma_token": ("PLANTED-CHROMA-TOKEN", "{}"),
        "retrieval.embedder.api_key": ("PLANTED-EMBEDDER-KEY", "{}"),
        "retrieval.embedder.base_url": ("PLANTED-EMBEDDER-PASSWORD", f"http://user:{{}}@{models}"),
        "nightly.webhook": ("PLANTED-WEBHOOK", f"http://{models}/hook/{{}}"),
        "tracking.uri": ("PLANTED-MLFLOW-PASSWORD", f"http://user:{{}}@127.0.0.1:{mlflow_port}"),
        "sandbox.token": ("PLANTED-SANDBOX-TOKEN", "{}"),
    }
    return [Planted(name, "environment", secret, form.format(secret)) for name, (secret, form) in values.items()]


def otherwise(models: str) -> list[Planted]:
    """What one run is given that the worker does not have: it takes its own for the same address, and refuses another."""
    url, elsewhere = "http://user:{}@" + models, "http://user:{}@127.0.0.1:9/v1"
    forms = [
        ("judge.api_key", "YAML", "PLANTED-YAML-KEY", "{}"),
        ("policy.base_url", "YAML", "PLANTED-YAML-PASSWORD", elsewhere),
        ("policy.api_key", "flag", "PLANTED-FLAG-KEY", "{}"),
        ("judge.base_url", "flag", "PLANTED-FLAG-PASSWORD", elsewhere),
        ("retrieval.chroma_url", "flag, no HTTP", "PLANTED-FTP-PASSWORD", "ftp://user:{}@" + models),
        ("evaluate.policy", "policy's name", "PLANTED-NAME-PASSWORD", "openai:policy@" + url),
        ("judge.api_key", "YAML, a list", "PLANTED-LISTED-KEY", "{}"),
    ]
    return [Planted(setting, way, secret, form.format(secret)) for setting, way, secret, form in forms]


@pytest.fixture
def models() -> Iterator[Models]:
    server = Models()
    yield server
    server.shutdown()
    server.server_close()


def variable(setting: str) -> str:
    return "SLMSEARCH_" + setting.upper().replace(".", "__")


def slmsearch(home: Stand, *arguments: str, without: str = "") -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_") and name != without}
    places = {"SLMSEARCH_PATHS__DATA_DIR": str(home.data), "SLMSEARCH_PATHS__MLRUNS_DIR": str(home.mlruns)}
    command = [sys.executable, "-m", "flows", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**kept, **places}, capture_output=True, text=True, timeout=300)


def given(planted: Planted, folder: Path) -> list[str]:
    """Return the arguments that give a secret in a file or by a flag."""
    if not planted.way.startswith("YAML"):
        return [f"--{planted.setting}", planted.value]
    nested: object = [planted.value] if planted.way.endswith("list") else planted.value
    for part in reversed(planted.setting.split(".")):
        nested = {part: nested}
    file = folder / f"{planted.secret}.yaml"
    file.write_text(json.dumps(nested))
    return ["--config", str(file)]


@pytest.mark.production
@pytest.mark.timeout(1800)
def test_no_secret_is_written_anywhere(models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [free_port(), free_port()]
    for name in ("PREFECT_HOME", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    known = in_the_environment(models.place, ports[1])
    for planted in known:
        monkeypatch.setenv(variable(planted.setting), planted.value)
    numbers = iter(ports)
    monkeypatch.setattr(stand, "free_port", lambda: next(numbers))
    before = os.umask(0o022)
    home = Stand(tmp_path, SMALL)
    printed: dict[str, str] = {}
    others = otherwise(models.place)
    try:
        home.wait()
        done = slmsearch(home, "run", "evaluate", "--evaluate.policy", "untrained", *SMALL)
        printed["run evaluate"] = done.stdout + done.stderr
        assert done.returncode == 0, printed["run evaluate"] + home.tail()
        assert {name for name, _ in models.asked} == {"judge", "policy", "embedder"}
        assert all(authorization for _, authorization in models.asked), "the worker has user and password of both addresses"

        models.broken = True
        done = slmsearch(home, "run", "evaluate", "--evaluate.policy", "untrained", "--evaluate.split", "train", *SMALL)
        printed["run evaluate, the judge sends back its key"] = done.stdout + done.stderr
        assert done.returncode == 3, printed

        for planted in others:
            folder = tmp_path.parent / "files"
            folder.mkdir(exist_ok=True)
            arguments = ["run", "evaluate", "--evaluate.policy", "untrained", *SMALL, *given(planted, folder)]
            done = slmsearch(home, *arguments, without=variable(planted.setting))
            text = printed[f"{planted.setting} as {planted.way}"] = done.stdout + done.stderr
            if "@127.0.0.1:9" in planted.value:
                assert done.returncode == 2 and "is not stored with this flow run" in text, text
            elif planted.setting not in ("judge.api_key", "policy.api_key") or planted.way.endswith("list"):
                assert done.returncode == 2, text
            else:
                assert done.returncode == 0, text
        for command in (("report", "latest"), ("config",), ("doctor",)):
            done = slmsearch(home, *command)
            printed[" ".join(command)] = done.stdout + done.stderr
    finally:
        os.umask(before)
        home.stop()

    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = {Path(f"<{name}>"): text.encode() for name, text in printed.items()}
    found = [
        (planted, [str(path) for path, content in (written | said).items() if planted.secret.encode() in content])
        for planted in [*known, *others]
    ]
    print(f"\n{len(found)} secrets, {len(written)} files ({sum(map(len, written.values())) / 1e6:.1f} MB), {len(said)} commands")
    for planted, places in found:
        print(f"  {planted.setting:28s} {planted.way:16s} {'nowhere' if not places else ', '.join(places)}")
    assert [(planted.secret, places) for planted, places in found if places] == []
    assert any(b"judge" in content for content in written.values())
    for path in (home.data, home.mlruns, home.data / "prefect"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    private = [path for path in written if path.suffix in (".db", ".sqlite") or path.name == "token"]
    print("  " + ", ".join(f"{path.relative_to(tmp_path)} {stat.S_IMODE(path.stat().st_mode):o}" for path in private))
    assert {stat.S_IMODE(path.stat().st_mode) for path in private if "chroma" not in path.name} == {0o600}
