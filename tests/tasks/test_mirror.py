"""Curves are mirrored only where a project is named; a mirror that breaks costs no training."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli.settings import load_config
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError, ServiceError
from tasks.mirror import check_mirror, mirrored


class Refused(Exception):
    """Stands for wandb's own base of errors."""


def with_project(name: str, home: Path) -> RunConfig:
    return RunConfig.model_validate({"tracking": {"wandb_project": f"team/{name}"}, "paths": {"mlruns_dir": str(home)}})


def stand_in(init: Callable[..., Any]) -> SimpleNamespace:
    return SimpleNamespace(init=init, Error=Refused, Settings=lambda **settings: settings)


def test_nothing_leaves_without_a_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it would fail
    check_mirror(RunConfig().tracking)
    with mirrored(RunConfig(), "key") as mirror:
        mirror(1, {"loss": 1.0})


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"-e '\.\[wandb\]'"):
        check_mirror(with_project("p", tmp_path).tracking)
    with pytest.raises(ConfigError, match=r"-e '\.\[wandb\]'"), mirrored(with_project("p", tmp_path), "key"):
        pass


def test_steps_are_mirrored_and_the_run_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Any] = []
    run = SimpleNamespace(log=lambda values, step: seen.append((step, values)), finish=lambda: seen.append("finished"))
    monkeypatch.setitem(sys.modules, "wandb", stand_in(lambda **kwargs: seen.append(kwargs) or run))
    with mirrored(with_project("p", tmp_path), "key") as mirror:
        mirror(3, {"loss": 1.0})
    assert (seen[0]["project"], seen[0]["entity"], seen[0]["id"], seen[0]["resume"]) == ("p", "team", "key", "allow")
    assert seen[0]["settings"]["console"] == "off" and seen[0]["settings"]["disable_git"] is True
    assert seen[1:] == [(3, {"loss": 1.0}), "finished"]


def test_a_run_that_cannot_be_opened_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(**_: Any) -> None:
        raise Refused("no API key\nconfigured")

    monkeypatch.setitem(sys.modules, "wandb", stand_in(refuse))
    with pytest.raises(ServiceError, match="no API key configured; set WANDB_API_KEY"), mirrored(with_project("p", tmp_path), "key"):
        pass


def test_a_mirror_that_breaks_is_given_up_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(values: Any, step: int) -> None:
        raise BrokenPipeError("gone")

    run = SimpleNamespace(log=fail, finish=lambda: pytest.fail("there is nothing left to finish"))
    monkeypatch.setitem(sys.modules, "wandb", stand_in(lambda **_: run))
    with mirrored(with_project("p", tmp_path), "key") as mirror:
        mirror(1, {"loss": 1.0})
        mirror(2, {"loss": 1.0})
    assert [record.getMessage() for record in caplog.records] == [
        "Weights & Biases lost step 1 (BrokenPipeError: gone); no more is mirrored, MLflow has it all"
    ]


def test_the_project_comes_from_the_environment_and_the_team_is_left_to_wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = load_config(environment={"WANDB_PROJECT": "p", "SLMSEARCH_PATHS__MLRUNS_DIR": str(tmp_path)})
    seen: list[Any] = []
    run = SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", stand_in(lambda **kwargs: seen.append(kwargs) or run))
    with mirrored(config, "key"):
        pass
    assert (seen[0]["project"], seen[0]["entity"]) == ("p", None), "wandb reads WANDB_ENTITY"


def test_offline_everything_stays_in_the_directory_of_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    before = os.getcwd()
    with mirrored(with_project("p", tmp_path / "mlruns"), "key") as mirror:
        for step in (1, 2):
            mirror(step, {"reward/mean": step / 2})
    assert os.getcwd() == before
    (stored,) = (tmp_path / "mlruns" / "wandb").glob("offline-run-*-key/*.wandb")
    content = stored.read_bytes()
    assert content.count(b"reward/mean") >= 2
    assert b"learning_rate" in content, "the settings of training"
