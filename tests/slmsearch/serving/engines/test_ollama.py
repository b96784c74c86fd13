"""Ollama's whole way as real processes: a program that has its HTTP API stands in for it; `--live` asks the real one."""

import os
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import ollama
import pytest

from slmsearch.config import JudgeConfig
from slmsearch.corpus.questions import Question
from slmsearch.errors import ConfigError, ServiceError
from slmsearch.judge.clients import make_client
from slmsearch.judge.llm import LlmJudge
from slmsearch.judge.reply import Reply
from slmsearch.processes.child import ServerProcess
from slmsearch.processes.ports import free_port
from slmsearch.serving.engines.ollama import Ollama
from slmsearch.serving.engines.request import ServeRequest
from slmsearch.serving.engines.supervisor import SupervisorContext, endpoint_of, find_running, supervise
from tests.slmsearch.serving.engines.conftest import wait_until

posix = pytest.mark.skipif(sys.platform == "win32", reason="the program that stands in for Ollama is a script with a #! line")
Programs = Callable[[str, str], Path]
MODEL = "qwen2.5:7b"


@pytest.fixture
def request_(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServeRequest:
    """A request, with the stand-in on the PATH and one model in its library."""
    programs("ollama", "ollama.py")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("FAKE_LIBRARY", f"{MODEL}={5 * 2**30},qwen2.5:3b={2 * 2**30}")
    return ServeRequest("judge", MODEL, MODEL, free_port())


def serve(request: ServeRequest, folder: Path, use: Callable[[], None] = lambda: None) -> list[str]:
    """Start, use and stop; return what was said."""
    said: list[str] = []
    stop = threading.Event()

    def on_ready(_endpoint: object) -> None:
        try:
            use()
        finally:
            stop.set()

    supervise(Ollama(), request, SupervisorContext(folder, said.append, start_s=30), stop, on_ready)
    return said


@posix
def test_a_missing_model_is_pulled_with_progress_once(request_: ServeRequest, tmp_path: Path) -> None:
    said = serve(request_, tmp_path / "serve")
    shown = [line for line in said if line.startswith("pulling qwen2.5:7b: ")]
    assert [line.split()[2] for line in shown] == [str(percent) for percent in range(10, 101, 10)]
    assert shown[-1] == "pulling qwen2.5:7b: 100 % of 5.37 GB"
    assert not any("pulling" in line for line in serve(request_, tmp_path / "serve"))


@posix
def test_the_judge_asks_the_server_through_its_endpoint(request_: ServeRequest, tmp_path: Path) -> None:
    verdicts: list[bool | None] = []
    endpoint = endpoint_of(Ollama(), request_)
    config = JudgeConfig(kind=endpoint.kind, model=endpoint.model, base_url=endpoint.base_url)

    def use() -> None:
        question = Question(id="q", question="Who founded it?", answer="Ada Lovelace")
        judge = LlmJudge(make_client(config), config)
        verdicts.extend(verdict.correct for verdict in judge.judge([(question, "Countess Lovelace"), (question, "ada lovelace")]))

    serve(request_, tmp_path / "serve", use)
    assert verdicts == [True, True], "the stand-in answers with the first value of the schema; the second needs no model"


@posix
def test_options_reach_the_server_as_its_environment(request_: ServeRequest) -> None:
    asked = replace(request_, parallel=4, ctx_size=2048, gpu_memory=0.0)
    assert Ollama().environment(asked) == {
        "OLLAMA_HOST": f"127.0.0.1:{request_.port}",
        "OLLAMA_NUM_PARALLEL": "4",
        "OLLAMA_CONTEXT_LENGTH": "2048",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    assert Ollama().environment(replace(request_, host="::1"))["OLLAMA_HOST"] == f"[::1]:{request_.port}"


@posix
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"FAKE_LIBRARY": ""}, r"has no model 'qwen2.5:7b' and its library neither: .*file does not exist.*correct --model"),
        ({"FAKE_PULL": "offline"}, r"cannot pull qwen2.5:7b: .*no such host.*its library cannot be reached"),
        ({"FAKE_PULL": "broken"}, r"broke off|ended halfway"),
        ({"FAKE_MEMORY": str(2**30)}, r"cannot load qwen2.5:7b: model requires more system memory \(5.0 GiB\).*qwen2.5:3b"),
    ],
)
def test_what_ollama_cannot_do_is_said_in_one_line(
    request_: ServeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ServiceError, match=message) as raised:
        serve(request_, tmp_path / "serve")
    assert "\n" not in str(raised.value)


@posix
def test_a_server_that_runs_is_used_and_gets_the_model(request_: ServeRequest, tmp_path: Path) -> None:
    assert find_running(Ollama(), request_, print, threading.Event()) is None
    process = ServerProcess(["ollama", "serve"], Ollama().environment(request_), tmp_path / "log")
    try:
        wait_until(lambda: Ollama().is_healthy(request_))
        said: list[str] = []
        found = find_running(Ollama(), request_, said.append, threading.Event())
        assert found is not None and found.base_url == request_.origin
        assert said[0] == "pulling qwen2.5:7b into Ollama's library"
        assert httpx.get(f"{request_.origin}/api/tags").json()["models"][0]["name"] == MODEL
    finally:
        process.stop()


@posix
def test_the_stand_in_keeps_to_the_protocol(request_: ServeRequest, tmp_path: Path) -> None:
    """Asked by Ollama's own client, whose types are the protocol's."""

    def use() -> None:
        client = ollama.Client(host=request_.origin)
        assert client.list().models[0].model == MODEL
        assert client.show(MODEL).details.family == "qwen2"
        with pytest.raises(ollama.ResponseError, match="model 'nobody' not found") as missing:
            client.chat("nobody", [{"role": "user", "content": "x"}])
        assert missing.value.status_code == 404
        whole = client.chat(MODEL, [{"role": "user", "content": "say it"}])
        parts = list(client.chat(MODEL, [{"role": "user", "content": "say it"}], stream=True, keep_alive="1m"))
        assert whole.message.content == "".join(part.message.content or "" for part in parts) == "SAY IT"
        assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
        assert client.ps().models[0].model == MODEL
        schema = {"type": "object", "properties": {"correct": {"type": "string", "enum": ["yes", "no"]}}}
        assert client.generate(MODEL, "x", format=schema).response == '{"correct": "yes"}'
        assert client.generate(MODEL, keep_alive=0).done_reason == "unload"
        assert client.ps().models == []
        assert client.pull("qwen2.5:3b").status == "success"
        assert httpx.post(f"{request_.origin}/api/chat", content=b"{").json()["error"].startswith("invalid character")
        assert httpx.get(request_.origin).text == "Ollama is running"

    serve(request_, tmp_path / "serve", use)


def test_what_ollama_does_not_take_is_refused() -> None:
    request = ServeRequest("judge", MODEL, MODEL, 11434)
    with pytest.raises(ConfigError, match="takes no LoRA adapters"):
        Ollama().check(replace(request, adapters=(("a", "b"),)))
    with pytest.raises(ConfigError, match="OLLAMA_GPU_OVERHEAD"):
        Ollama().check(replace(request, gpu_memory=0.5))
    with pytest.raises(ConfigError, match="not the path"):
        Ollama().check(replace(request, model="/models/x"))


def test_a_missing_ollama_gives_the_install_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match=r"Ollama is not installed: curl -fsSL https://ollama.com/install.sh"):
        Ollama().find(ServeRequest("judge", MODEL, MODEL, 11434))


@pytest.mark.live
@pytest.mark.skipif(shutil.which("ollama") is None, reason="Ollama is not installed")
@pytest.mark.timeout(1800)
def test_the_real_ollama_serves_a_judge(tmp_path: Path) -> None:
    """Pulls qwen2.5:0.5b (400 MB) where it is missing; the models stay in the user's own library."""
    request = ServeRequest("judge", "qwen2.5:0.5b", "qwen2.5:0.5b", free_port(), ctx_size=2048, parallel=2)
    replies: list[Reply] = []
    config = JudgeConfig(kind="ollama", model=request.model, base_url=request.origin)
    serve(request, tmp_path / "serve", lambda: replies.append(make_client(config).ask("Is Paris the capital of France? Answer yes or no.")))
    assert "yes" in replies[0].said.lower() or "no" in replies[0].said.lower()
    assert os.environ.get("OLLAMA_HOST") is None, "the settings were for the server alone"
