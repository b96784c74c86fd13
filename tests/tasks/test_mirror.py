"""Curves are mirrored only where a project is named, and nothing is imported otherwise."""

import sys
from types import SimpleNamespace

import pytest

from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError
from tasks.mirror import mirrored


def with_project(name):
    config = RunConfig()
    return config.model_copy(update={"tracking": config.tracking.model_copy(update={"wandb_project": name})})


def test_nothing_leaves_without_a_project(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it would fail
    with mirrored(RunConfig(), "key") as mirror:
        mirror(1, {"loss": 1.0})


def test_a_missing_package_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="slmsearch\\[wandb\\]"), mirrored(with_project("p"), "key"):
        pass


def test_steps_are_mirrored_and_the_run_is_ended(monkeypatch):
    seen = []
    run = SimpleNamespace(log=lambda values, step: seen.append((step, values)), finish=lambda: seen.append("finished"))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **kwargs: seen.append(kwargs) or run))
    with mirrored(with_project("p"), "key") as mirror:
        mirror(3, {"loss": 1.0})
    assert seen[0]["project"] == "p" and seen[0]["id"] == "key" and seen[0]["resume"] == "allow"
    assert seen[1:] == [(3, {"loss": 1.0}), "finished"]
