"""`slmsearch judge qualify`, from a served judge to MLflow."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.cli.main import cli
from slmsearch.config import JudgeConfig
from slmsearch.judge.prompt import render_prompt
from slmsearch.judge.qualify import load_cases
from tasks.record import JUDGE_STAGE
from tests.judge_server import DIGEST, Behaviour, JudgeServer

RIGHT = {render_prompt(case.as_question(), case.answer): case.correct for case in load_cases()}
Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer(Behaviour(truth=lambda prompt: RIGHT.get(prompt, False))) as server:
        yield server


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str], isolated_environment: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command; return exit code, stdout and stderr."""
    (isolated_environment / "mlruns").mkdir()
    shutil.copy(empty_store, isolated_environment / "mlruns" / "mlflow.db")

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli(arguments, prog_name="slmsearch")
        out, err = capfd.readouterr()
        assert ended.value.code is None or isinstance(ended.value.code, int)
        return ended.value.code or 0, out, err

    return run


def flags(server: JudgeServer, **more: Any) -> list[str]:
    given = {"kind": "ollama", "model": "judge", "base_url": server.url, **more}
    return [part for name, value in given.items() for part in (f"--judge.{name}", str(value))]


def test_a_judge_is_measured_and_the_result_is_recorded(invoke: Invoke, server: JudgeServer, isolated_environment: Path) -> None:
    code, out, err = invoke("judge", "qualify", "--json", *flags(server))
    assert code == 0, err
    result = json.loads(out)
    assert result["passed"] and result["judge"] == f"ollama:{DIGEST}"
    assert len(list((isolated_environment / "data" / "judge" / "qualifications").iterdir())) == 1
    client = MlflowClient(f"sqlite:///{isolated_environment}/mlruns/mlflow.db")
    run = client.get_run(result["mlflow_run_id"])
    assert (run.info.run_name, run.info.status) == (JUDGE_STAGE, "FINISHED")
    assert run.data.metrics["judge/accuracy"] == 1.0 and run.data.metrics["judge/failed"] == 0
    assert run.data.metrics["time/judge_verdict_s"] > 0
    assert run.data.tags["slmsearch.judge_passed"] == "true"
    assert {item.path for item in client.list_artifacts(run.info.run_id)} == {"judge", "judge.json"}


def test_a_judge_that_does_not_pass_is_exit_1_and_the_table_says_why(invoke: Invoke, server: JudgeServer) -> None:
    server.behaviour = Behaviour(truth=lambda prompt: True)
    code, out, _ = invoke("judge", "qualify", *flags(server))
    assert code == 1
    assert "not passed: accuracy" in out and "injection: 42 of 42 accepted" in out


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ([], 2, "exact judge needs no qualification"),
        (["--judge.kind", "ollama", "--judge.base_url", "http://127.0.0.1:1"], 3, "127.0.0.1:1"),
        (["--judge.kind", "openai", "--judge.base_url", "http://127.0.0.1:1"], 3, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    invoke: Invoke, arguments: list[str], code: int, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JudgeConfig, "retries", 0)
    found, out, err = invoke("judge", "qualify", *arguments)
    assert (found, out) == (code, "")
    assert named in err.splitlines()[-1] and "Traceback" not in err


def test_a_model_that_ollama_does_not_have_is_named_with_the_command_that_gets_it(invoke: Invoke, server: JudgeServer) -> None:
    code, _, err = invoke("judge", "qualify", *flags(server, model="qwen2.5:7b"))
    assert code == 3
    assert "ollama pull qwen2.5:7b" in err
