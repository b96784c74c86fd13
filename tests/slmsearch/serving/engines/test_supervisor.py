"""One supervisor for all engines, with llama.cpp's as the example: programs that stand in for `llama-server` fail in every way."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from slmsearch.errors import ModelError, ServiceError
from slmsearch.processes.ports import free_port
from slmsearch.serving.engines.llamacpp import LlamaCpp
from slmsearch.serving.engines.request import Endpoint, ServeRequest
from slmsearch.serving.engines.state import is_supervised, read_state, running_state, stop_server
from slmsearch.serving.engines.supervisor import SupervisorContext, find_running, supervise
from tests.slmsearch.serving.engines.conftest import PROGRAMS, runs, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs that stand in for servers are scripts with a #! line")
Programs = Callable[[str, str], Path]


@pytest.fixture
def request_(tmp_path: Path) -> ServeRequest:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    return ServeRequest("policy", str(tmp_path / "model.gguf"), "tiny", free_port())


class Run:
    """A supervisor in a thread of this process."""

    def __init__(self, request: ServeRequest, folder: Path, start_s: float = 30.0) -> None:
        self.said: list[str] = []
        self.shown: list[str] = []
        self.ready = threading.Event()
        self.endpoint: Endpoint | None = None
        self.error: BaseException | None = None
        self.stop = threading.Event()
        around = SupervisorContext(folder, self.said.append, self.shown.append, start_s)
        self.thread = threading.Thread(target=self._run, args=(request, around))
        self.thread.start()

    def _run(self, request: ServeRequest, around: SupervisorContext) -> None:
        try:
            supervise(LlamaCpp(), request, around, self.stop, self._on_ready)
        except BaseException as error:
            self.error = error
        self.ready.set()

    def _on_ready(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.ready.set()

    def end(self) -> BaseException | None:
        self.stop.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.error


def failure(request: ServeRequest, folder: Path, start_s: float = 30.0) -> str:
    """Supervise a server that fails; return the message, a single line."""
    run = Run(request, folder, start_s)
    run.thread.join(30)
    assert isinstance(run.error, ServiceError)
    assert "\n" not in str(run.error)
    assert not is_supervised(folder, request.role)
    return str(run.error)


def test_a_server_is_started_answers_and_is_stopped(programs: Programs, request_: ServeRequest, tmp_path: Path) -> None:
    programs("llama-server", "openai_server.py")
    run = Run(request_, tmp_path / "serve")
    assert run.ready.wait(30) and run.endpoint is not None, run.error
    assert run.endpoint.base_url == f"http://127.0.0.1:{request_.port}/v1"
    state = running_state(tmp_path / "serve", "policy")
    assert state is not None
    assert (state.phase, state.server, state.supervisor) == ("ready", run.endpoint.pid, os.getpid())
    asked = {"model": run.endpoint.model, "messages": [{"role": "user", "content": "hear me"}]}
    reply = httpx.post(f"{run.endpoint.base_url}/chat/completions", json=asked).json()
    assert reply["choices"][0]["message"]["content"] == "HEAR ME"
    assert run.end() is None
    assert not runs(state.server) and not runs(state.watchdog)
    assert read_state(tmp_path / "serve", "policy") is None
    assert "ended in order" in "".join(run.shown)
    assert run.shown[0].startswith("fake server in mode ok")


def test_a_server_that_runs_is_recognised_and_another_model_is_not(programs: Programs, request_: ServeRequest, tmp_path: Path) -> None:
    programs("llama-server", "openai_server.py")
    assert find_running(LlamaCpp(), request_, print, threading.Event()) is None
    run = Run(request_, tmp_path / "serve")
    assert run.ready.wait(30), run.error
    found = find_running(LlamaCpp(), request_, print, threading.Event())
    assert found is not None and found.pid is None
    with pytest.raises(ServiceError, match=r"serves tiny, not other; stop it, choose another port with --port, or set policy.model"):
        find_running(LlamaCpp(), replace(request_, name="other", model="other.gguf"), print, threading.Event())
    with pytest.raises(ServiceError, match="a policy server is supervised already; `slmsearch serve policy --stop` stops it"):
        supervise(LlamaCpp(), request_, SupervisorContext(tmp_path / "serve", print), threading.Event(), print)
    assert run.end() is None


def test_a_crash_on_start_says_the_last_words(
    programs: Programs, request_: ServeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("llama-server", "openai_server.py")
    monkeypatch.setenv("FAKE_MODE", "crash")
    message = failure(request_, tmp_path / "serve")
    assert message.startswith("llama.cpp ended with exit code 3: fake server in mode crash")
    assert "RuntimeError: the weights are upside down" in message
    state = read_state(tmp_path / "serve", "policy")
    assert state is not None and (state.phase, state.error) == ("failed", message)


@pytest.mark.parametrize(
    ("mode", "cause"),
    [("oom", "CUDA out of memory. Tried to allocate 2.00 GiB.; out of memory:"), ("killed", "was killed by SIGKILL: fake server in mode")],
)
def test_out_of_memory_names_the_setting(
    programs: Programs, request_: ServeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, cause: str
) -> None:
    programs("llama-server", "openai_server.py")
    monkeypatch.setenv("FAKE_MODE", mode)
    message = failure(request_, tmp_path / "serve")
    assert cause in message
    assert "out of memory: lower --ctx-size or --parallel" in message


def test_a_server_that_never_answers_is_stopped(
    programs: Programs, request_: ServeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("llama-server", "openai_server.py")
    monkeypatch.setenv("FAKE_MODE", "silent")
    message = failure(request_, tmp_path / "serve", start_s=0.5)
    assert f"did not answer at http://127.0.0.1:{request_.port}/health within 0.5 s" in message
    assert "--start-timeout" in message
    state = read_state(tmp_path / "serve", "policy")
    assert state is not None and not runs(state.server)


def test_a_server_that_never_answers_can_be_stopped_before(
    programs: Programs, request_: ServeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("llama-server", "openai_server.py")
    monkeypatch.setenv("FAKE_MODE", "silent")
    run = Run(request_, tmp_path / "serve")
    wait_until(lambda: (state := read_state(tmp_path / "serve", "policy")) is not None and state.server > 0)
    assert run.end() is None
    assert run.endpoint is None


def test_a_server_that_dies_later_is_reported(programs: Programs, request_: ServeRequest, tmp_path: Path) -> None:
    programs("llama-server", "openai_server.py")
    run = Run(request_, tmp_path / "serve")
    assert run.ready.wait(30) and run.endpoint is not None and run.endpoint.pid is not None, run.error
    os.kill(run.endpoint.pid, signal.SIGKILL)
    run.thread.join(30)
    assert "was killed by SIGKILL" in str(run.error)


def test_a_port_in_use_is_named_with_its_holder(programs: Programs, request_: ServeRequest, tmp_path: Path) -> None:
    programs("llama-server", "openai_server.py")
    with socket.create_server(("127.0.0.1", request_.port)):
        message = failure(request_, tmp_path / "serve")
    assert message.startswith(f"port {request_.port} is in use by process {os.getpid()} (")
    assert message.endswith("choose another with --port")


def test_a_missing_program_gives_the_install_command(request_: ServeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("slmsearch.serving.engines.llamacpp.find_spec", lambda name: None)
    message = failure(request_, tmp_path / "serve")
    assert message.startswith("llama.cpp is not installed: pip install -e '.[llamacpp]', or brew install llama.cpp")
    assert "pip install -e '.[llamacpp]'" in message


def test_a_missing_model_is_refused_before_anything_starts(programs: Programs, request_: ServeRequest, tmp_path: Path) -> None:
    programs("llama-server", "openai_server.py")
    with pytest.raises(ModelError, match=r"no GGUF at '/no/such.gguf'"):
        supervise(
            LlamaCpp(), replace(request_, model="/no/such.gguf"), SupervisorContext(tmp_path / "serve", print), threading.Event(), print
        )
    assert not is_supervised(tmp_path / "serve", "policy")


def test_what_two_kills_left_is_found_by_its_mark(programs: Programs, request_: ServeRequest, tmp_path: Path) -> None:
    """Supervisor and watchdog killed at once: a later `--stop` still finds the server's children."""
    from slmsearch.processes.child import ServerProcess
    from slmsearch.serving.engines.state import ServerState, write_state

    environment = {"FAKE_MODE": "family", "FAKE_PIDS": str(tmp_path / "pids")}
    folder = tmp_path / "serve"
    folder.mkdir()
    command = [sys.executable, str(PROGRAMS / "openai_server.py"), "--port", "0"]
    process = ServerProcess(command, environment, tmp_path / "log", grace_s=0.5)
    wait_until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 4)
    state = ServerState("judge", "llamacpp", "m", "m", "http://127.0.0.1:1/v1", "log", 2**22 - 3, mark=process.mark)
    write_state(folder, state)
    assert stop_server(folder, "judge") is None, "nobody supervised it"
    child, apart, *_ = map(int, (tmp_path / "pids").read_text().split())
    assert not runs(process.pid) and not runs(child) and not runs(apart)
    assert read_state(folder, "judge") is None
    process.stop()
