"""A real server's life under its supervisor: `transformers serve` with tiny-searcher, interrupted and killed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from slmsearch.config import PolicyConfig
from slmsearch.processes.ports import free_port
from slmsearch.training.export_gguf import Interface, export_gguf
from tests.root import ROOT

MODEL = str(ROOT / "data" / "models" / "tiny-searcher")


@pytest.fixture
def start() -> Iterator[Callable[..., tuple["subprocess.Popen[str]", dict[str, Any]]]]:
    """Start a server in the foreground; return its supervisor and what it said."""
    processes: list[subprocess.Popen[str]] = []

    def run(*options: str) -> tuple["subprocess.Popen[str]", dict[str, Any]]:
        command = [sys.executable, "-m", "flows", "serve", "policy", *options, "--port", str(free_port()), "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def ask(told: dict[str, Any]) -> str:
    client = openai.OpenAI(base_url=told["base_url"], api_key="none")
    question: Any = [{"role": "user", "content": "Where is Lower Kelvinen?"}]
    reply = client.chat.completions.create(model=told["model"], messages=question, temperature=0.0, max_tokens=48)
    return reply.choices[0].message.content or ""


@pytest.mark.slow
def test_it_is_recognised_and_ctrl_c_ends_it_in_order(start: Any, tmp_path: Path) -> None:
    supervisor, told = start("--engine", "transformers", "--model", MODEL, "--policy.device", "cpu")
    assert ask(told) == '<tool>search_pages("Lower Kelvinen")</tool>'
    options = ["--engine", "transformers", "--port", told["base_url"].split(":")[2].removesuffix("/v1"), "--paths.data_dir", str(tmp_path)]
    command = [sys.executable, "-m", "flows", "serve", "policy", *options, "--json", "--model"]
    again = subprocess.run([*command, MODEL], capture_output=True, text=True)
    assert json.loads(again.stdout)["started"] is False, again.stderr
    other = subprocess.run([*command, f"{MODEL}-clean"], capture_output=True, text=True)
    assert other.returncode == 3 and f"serves {MODEL}, not {MODEL}-clean" in other.stderr
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(60) == 0
    assert not psutil.pid_exists(told["pid"])


@pytest.mark.slow
def test_a_killed_supervisor_leaves_no_server(start: Any) -> None:
    supervisor, told = start("--engine", "transformers", "--model", MODEL, "--policy.device", "cpu")
    server = psutil.Process(told["pid"])
    supervisor.kill()
    supervisor.wait()
    server.wait(30)
    with pytest.raises(openai.APIConnectionError):
        ask(told)


def test_a_model_that_llama_cpp_is_too_old_for_is_said_in_one_line(tmp_path: Path) -> None:
    """The real server, and an architecture that comes one day."""
    weights = export_gguf(PolicyConfig(model=MODEL), tmp_path / "tiny", "f32", Interface("", "", (), "tool")).file
    known = weights.read_bytes()
    assert b"general.architecture" in known[:100] and known.index(b"qwen3") < 100
    weights.write_bytes(known.replace(b"qwen3", b"qwenX", 1))
    command = [sys.executable, "-m", "flows", "serve", "policy", "--engine", "llamacpp", "--model", str(weights)]
    ended = subprocess.run([*command, "--port", str(free_port()), "--paths.data_dir", str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode == 3 and "this llama.cpp is too old for the model: update it" in ended.stderr.splitlines()[-1], ended.stderr


def test_llama_cpp_serves_an_exported_model(start: Any, tmp_path: Path) -> None:
    """Without tiny-searcher's own tokenizer, so that only text without numbers is the same to it: a question, a first turn."""
    weights = export_gguf(PolicyConfig(model=MODEL), tmp_path / "tiny", "f32", Interface("", "", (), "tool")).file
    supervisor, told = start("--engine", "llamacpp", "--model", str(weights), "--ctx-size", "512", "--parallel", "2")
    assert ask(told) == '<tool>search_pages("Lower Kelvinen")</tool>'
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(60) == 0
    assert not psutil.pid_exists(told["pid"])
