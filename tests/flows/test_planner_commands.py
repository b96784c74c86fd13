"""Commands of the planner, of export and of infer, in this process."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from flows.cli.main import cli
from slmsearch.environments.planner.plan import render_plan
from slmsearch.environments.planner.problems import generate_problems, gold_plan
from tests.slmsearch.training.hub import FakeHub, serving

Invoke = Callable[..., tuple[int, str, str]]
PROBLEM = next(problem for problem in generate_problems(3, 12) if problem.operations == 5)


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str]) -> Invoke:
    """Run a command; return exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli(arguments, prog_name="slmsearch")
        code = ended.value.code
        out, err = capfd.readouterr()
        assert code is None or isinstance(code, int)
        return code or 0, out, err

    return run


@pytest.fixture
def served() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An OpenAI-compatible server that plans one problem; returns its address and what it was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({"object": "list", "data": [{"id": "base-model", "object": "model", "created": 0, "owned_by": "me"}]})

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            message = {"role": "assistant", "content": f"Here it is: {render_plan(gold_plan(PROBLEM))}"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
            self.reply({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage})

        def reply(self, values: dict[str, Any]) -> None:
            sent = json.dumps(values).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter's directory, with a tokenizer so that no base is needed."""
    path = tmp_path / "adapter"
    path.mkdir()
    (path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "owner/base"}))
    (path / "adapter_model.safetensors").write_bytes(b"weights")
    (path / "tokenizer_config.json").write_text("{}")
    (path / "checkpoint-5").mkdir()
    return path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        yield served


def test_infer_finds_the_model_plans_and_lets_the_worker_solve(invoke: Invoke, served: tuple[str, list[dict[str, Any]]]) -> None:
    url, asked = served
    options = ("--environment", "planner", "--base-url", url, "--max-tokens", "300", "--temperature", "0.5", "--json")
    code, out, err = invoke("infer", PROBLEM.text, *options)
    assert code == 0, err
    result = json.loads(out)
    assert result["model"] == "base-model"
    assert result["answers"][0]["answer"] == str(PROBLEM.answer)
    assert (asked[0]["max_tokens"], asked[0]["temperature"]) == (300, 0.5)
    assert asked[0]["messages"][-1]["content"] == PROBLEM.text
    code, out, _ = invoke("infer", f"{PROBLEM.text}\udcff", "--environment", "planner", "--base-url", url, "--lora-adapter", "planner-lora")
    assert code == 0
    assert asked[1]["model"] == "planner-lora"
    assert asked[1]["messages"][-1]["content"] == f"{PROBLEM.text}?"
    assert out.strip().endswith(f"= {PROBLEM.answer}")
    for option in ("--model", "--lora-adapter"):  # names that neither JSON nor MLflow takes
        code, _, err = invoke("infer", "2 + 2?", "--base-url", url, option, "named\udcff")
        assert code == 2 and f"Invalid value for '{option}': 'named\\udcff' holds bytes that are no UTF-8" in err
    assert len(asked) == 2


def test_infer_without_a_server_is_one_clear_line(invoke: Invoke) -> None:
    code, _, err = invoke("infer", "2 + 2?", "--environment", "planner", "--base-url", "http://127.0.0.1:9/v1")
    assert code == 3
    assert "no server answers at http://127.0.0.1:9/v1" in err


def test_a_dry_run_lists_and_sends_nothing(invoke: Invoke, adapter: Path, tmp_path: Path, hub: FakeHub) -> None:
    kept = tmp_path / "kept"
    options = ("--adapter-path", str(adapter), "--repo-name", "me/planner", "--dry-run", "--local-save-path", str(kept), "--json")
    code, out, err = invoke("export", "push", *options)
    assert code == 0, err
    result = json.loads(out)
    assert result["sent"] is False
    assert set(result["files"]) == {"README.md", "adapter_config.json", "adapter_model.safetensors", "tokenizer_config.json"}
    assert (kept / "README.md").read_text().startswith("---")
    assert hub.repos == {} and hub.tokens == set()


def test_push_needs_a_token_from_the_environment_and_sends_the_card(
    invoke: Invoke, adapter: Path, tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, kept = ("--adapter-path", str(adapter), "--repo-name", "me/planner", "--private"), tmp_path / "kept"
    code, out, err = invoke("export", "push", *options, "--local-save-path", str(kept), "--json")
    assert (code, json.loads(out)["boundary"]) == (2, "usage")
    assert "HF_TOKEN" in err
    assert not kept.exists(), "it is asked for before the work"
    assert hub.repos == {}
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    (tmp_path / "card.md").write_text("# mine\n")
    code, out, err = invoke("export", "push", *options, "--model-card", str(tmp_path / "card.md"))
    assert code == 0, err
    assert "me/planner" in out
    assert hub.files["me/planner"]["README.md"] == b"# mine\n"
    assert "checkpoint-5" not in " ".join(hub.files["me/planner"])


def test_export_of_what_is_no_adapter(invoke: Invoke, tmp_path: Path) -> None:
    code, _, err = invoke("export", "merge", "--adapter-path", str(tmp_path), "--local-save-path", str(tmp_path / "out"))
    assert code == 3
    assert "adapter_config.json" in err
