"""`slmsearch serve` as a person uses it; programs on the PATH stand in for llama.cpp, vLLM and Ollama."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from flows.cli.commands import models as commands
from flows.cli.main import cli
from flows.ops.serving import Options, make_request
from flows.runtime.settings import load_config
from slmsearch.errors import ConfigError
from slmsearch.http_client import list_models
from slmsearch.processes.ports import free_port
from slmsearch.serving.engines import engines
from tests.slmsearch.serving.engines.conftest import gone_after, programs, runs, wait_until

__all__ = ["programs"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs that stand in for servers are scripts with a #! line")
Programs = Callable[[str, str], Path]
Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "weights.gguf"
    path.write_bytes(b"GGUF")
    return str(path)


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str]) -> Invoke:
    """Run a command in this process; return exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli(["serve", *arguments], prog_name="slmsearch")
        out, err = capfd.readouterr()
        assert ended.value.code is None or isinstance(ended.value.code, int)
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def started() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start `slmsearch serve` as a process; it is killed in the end."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "flows", "serve", *arguments]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def llama(model: str, port: int, *more: str) -> list[str]:
    return ["policy", "--engine", "llamacpp", "--model", model, "--port", str(port), *more]


def only_line(err: str) -> str:
    """Return what a failed command says in the end: one line."""
    lines = [line for line in err.splitlines() if line.startswith("slmsearch: ")]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_until_a_signal(programs: Programs, started: Any, model: str, number: int) -> None:
    programs("llama-server", "openai_server.py")
    process = started(*llama(model, free_port(), "--json"))
    told = json.loads(process.stdout.readline())
    assert told["settings"] == {"policy.base_url": told["base_url"], "policy.model": model}
    assert runs(told["pid"])
    process.send_signal(number)
    assert process.wait(30) == 0
    assert not runs(told["pid"])


def test_in_the_background_until_stop(programs: Programs, invoke: Invoke, model: str) -> None:
    programs("llama-server", "openai_server.py")
    port = free_port()
    code, out, err = invoke(*llama(model, port, "--detach"))
    assert code == 0, err
    assert f"slmsearch evaluate --policy openai:{model}@http://127.0.0.1:{port}/v1" in out
    code, out, _ = invoke("status", "--json")
    judge, policy = json.loads(out)["servers"]
    assert (code, judge["state"], policy["state"], policy["healthy"]) == (0, "stopped", "ready", True)
    code, out, err = invoke(*llama(model, port, "--json"))
    assert code == 0
    assert f"a policy server answers at http://127.0.0.1:{port}/v1 already; nothing to start" in err
    assert json.loads(out)["started"] is False
    code, _, err = invoke(*llama(model, free_port()))
    assert code == 3
    assert "a policy server runs already" in only_line(err) and "--stop" in err
    code, out, _ = invoke("policy", "--stop")
    assert (code, out) == (0, f"stopped llamacpp (process {policy['server']})\n")
    assert not runs(policy["server"]) and not runs(policy["supervisor"])
    assert invoke("policy", "--stop")[:2] == (0, "no policy server was started here; nothing to stop\n")
    assert "policy   not running" in invoke("status")[1]


def test_a_server_that_somebody_else_started_is_recognised(programs: Programs, invoke: Invoke, model: str) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/v1"
    program = programs("somebody-elses", "openai_server.py")
    process = subprocess.Popen([program, "--port", str(port), "--alias", model], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: list_models(address) == [model])
        code, out, err = invoke(*llama(model, port))
        assert (code, "stop" in out) == (0, False)
        assert f"a policy server answers at {address} already; nothing to start" in err
        assert f"policy   answers at {address}; not started here" in invoke("status", f"--policy.base_url={address}")[1]
        code, _, err = invoke(*llama("owner/other", port))
        assert code == 3 and "serves " in only_line(err) and "not owner/other" in only_line(err)
    finally:
        process.kill()
        process.wait()


def test_nothing_is_left_when_the_background_supervisor_is_killed(
    programs: Programs, invoke: Invoke, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("llama-server", "openai_server.py")
    monkeypatch.setenv("FAKE_MODE", "family")
    monkeypatch.setenv("FAKE_PIDS", str(tmp_path / "pids"))
    port = free_port()
    code, _, err = invoke(*llama(model, port, "--detach"))
    assert code == 0, err
    policy = json.loads(invoke("status", "--json")[1])["servers"][1]
    pids = [policy["server"], *map(int, (tmp_path / "pids").read_text().split())]
    os.kill(policy["supervisor"], signal.SIGKILL)
    gone_after(pids)
    code, out, _ = invoke("status")
    assert code == 1
    assert f"policy   killed: its supervisor (process {policy['supervisor']}) was killed" in out
    monkeypatch.setenv("FAKE_MODE", "ok")
    assert invoke(*llama(model, port, "--detach"))[0] == 0, "the port is free and the state is no hindrance"
    assert invoke("policy", "--stop")[0] == 0


def test_it_ends_with_the_process_that_started_it(programs: Programs, model: str) -> None:
    programs("llama-server", "openai_server.py")
    command = " ".join([sys.executable, "-m", "flows", "serve", *llama(model, free_port(), "--json")])
    shell = subprocess.Popen(["sh", "-c", f"{command} & wait"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert shell.stdout is not None
    told = json.loads(shell.stdout.readline())
    shell.kill()
    shell.wait()
    gone_after([told["pid"]])
    shell.stdout.close()


@pytest.mark.parametrize(
    ("mode", "more", "words"),
    [
        ("crash", (), "llama.cpp ended with exit code 3: fake server in mode crash"),
        ("crash", ("--detach",), "llama.cpp ended with exit code 3: fake server in mode crash"),
        ("oom", (), "out of memory: lower --ctx-size or --parallel"),
        ("killed", (), "was killed by SIGKILL"),
        ("silent", ("--start-timeout", "1"), "within 1 s"),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(
    programs: Programs, invoke: Invoke, model: str, monkeypatch: pytest.MonkeyPatch, mode: str, more: tuple[str, ...], words: str
) -> None:
    programs("llama-server", "openai_server.py")
    monkeypatch.setenv("FAKE_MODE", mode)
    code, out, err = invoke(*llama(model, free_port(), *more))
    assert (code, out) == (3, "")
    assert words in only_line(err)
    code, out, _ = invoke("status")
    assert code == 1 and "policy   failed: llama.cpp" in out
    assert invoke("policy", "--stop")[0] == 0
    assert invoke("status")[0] == 0


def test_a_port_in_use_names_its_holder(programs: Programs, invoke: Invoke, model: str) -> None:
    programs("llama-server", "openai_server.py")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        code, _, err = invoke(*llama(model, port))
    assert code == 3
    assert f"port {port} is in use by process {os.getpid()}" in only_line(err)


def test_a_missing_program_gives_its_install_command(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = invoke("judge", "--port", str(free_port()))
    assert code == 3
    assert "Ollama is not installed: curl -fsSL https://ollama.com/install.sh | sh" in only_line(err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("policy", "--engine", "llamacpp", "--model", "no/such.gguf"), "no GGUF at"),
        (("policy", "--engine", "llamacpp", "--model", "nothing.gguf"), "no GGUF at 'nothing.gguf'"),
        (("policy", "--engine", "transformers", "--model", "/no/such/model"), "no model at '/no/such/model'"),
        (("policy", "--engine", "transformers", "--model", "owner/model"), "owner/model is not in the Hub's cache and cannot be fetched"),
        (("policy", "--engine", "transformers", "--model", "no such model"), "it is no Hub id"),
        (("policy", "--engine", "transformers", "--parallel", "4"), "one request at a time"),
        (("policy", "--engine", "vllm", "--lora-adapter", "broken"), "write name=path"),
        (("policy", "--engine", "transformers", "--gpu-memory", "0.5"), "cannot be held to a share"),
        (("judge", "--judge.base_url", "http://192.0.2.1:8000/v1"), "is on another machine"),
        (("judge", "--judge.base_url", "not-an-address"), "is no HTTP address"),
        (("policy", "--engine", "llamacpp", "stop"), "'stop' is no option"),
    ],
)
def test_wrong_use_is_refused_before_anything_starts(programs: Programs, invoke: Invoke, arguments: tuple[str, ...], words: str) -> None:
    programs("llama-server", "openai_server.py")
    code, out, err = invoke(*arguments)
    assert code in (2, 3) and out == ""
    assert words in err
    assert "Traceback" not in err


@pytest.mark.skipif(sys.platform != "linux", reason="vLLM is for Linux")
@pytest.mark.skipif(find_spec("vllm") is not None, reason="the real vLLM would be found before the one that stands in for it")
def test_the_way_to_vllm_is_a_contract_on_its_command_line(programs: Programs, invoke: Invoke, tmp_path: Path) -> None:
    """No vLLM is started here: the stand-in refuses what vLLM's parser would."""
    programs("vllm", "vllm.py")
    for name, file, text in (("adapter", "adapter_config.json", '{"r": 32}'), ("weights", "config.json", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    options = ["--engine", "vllm", "--parallel", "16", "--ctx-size", "4096", "--gpu-memory", "0.4", "--port", str(free_port())]
    options += ["--lora-adapter", f"trained={tmp_path / 'adapter'}", "--start-timeout", "30", "--json"]
    served = ["policy", *options, "--model", str(tmp_path / "weights")]
    code, out, err = invoke(*served, "--detach", "--", "--enforce-eager")
    assert code == 0, err
    assert json.loads(out)["settings"]["policy.model"] == "trained"
    assert invoke("policy", "--stop")[0] == 0
    code, _, err = invoke(*served, "--", "--no-such-option")
    assert code == 3 and "unrecognized arguments: --no-such-option" in only_line(err)


def test_the_command_offers_the_engines_there_are() -> None:
    assert tuple(engines.ENGINES) == commands.ENGINES


def test_settings_choose_where_and_what(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"JUDGE_MODEL": "phi3:mini", "JUDGE_BASE_URL": "http://localhost:9000/v1"}
    config = load_config((), (), environment)
    _, request = make_request(config.judge, config.policy, "judge", Options(engine="vllm"))
    assert (request.host, request.port, request.model, request.parallel) == ("127.0.0.1", 9000, "phi3:mini", config.judge.concurrency)
    _, request = make_request(config.judge, config.policy, "judge", Options(engine="ollama", port=9001))
    assert (request.port, request.parallel) == (9001, None)
    policy = load_config((), ("--policy.dtype=bfloat16", "--policy.device=cpu"), {})
    _, request = make_request(policy.judge, policy.policy, "policy", Options(engine="transformers"))
    assert (request.port, request.dtype, request.device) == (8001, "bfloat16", "cpu")
    assert Path(request.model).is_absolute()
    with pytest.raises(ConfigError, match="two LoRA adapters have the same name"):
        make_request(policy.judge, policy.policy, "policy", Options(engine="vllm", adapters=("a=x", "a=y")))
