"""What is learnt from is not what is measured with."""

from pathlib import Path
from typing import Any

import pytest

from flows.preflight import check_splits
from flows.runner import LEARNING, run_flow
from flows.settings import load_config, recordable
from slmsearch.config import EvaluateConfig, RunConfig, SentinelConfig, TrainConfig
from slmsearch.errors import ConfigError


def test_the_defaults_are_apart() -> None:
    check_splits(RunConfig())


@pytest.mark.parametrize(
    "config", [RunConfig(train=TrainConfig(split="test")), RunConfig(evaluate=EvaluateConfig(split="train"))], ids=["train", "evaluate"]
)
def test_the_questions_of_the_decision_are_not_learnt_from_unless_both_are_named(config: RunConfig) -> None:
    with pytest.raises(ConfigError, match=r"train\.split and evaluate\.split are both .* name both to do it all the same"):
        check_splits(config)
    split = config.train.split
    check_splits(RunConfig(train=TrainConfig(split=split), evaluate=EvaluateConfig(split=split)))


def test_the_held_out_questions_are_not_learnt_from_unless_they_are_named() -> None:
    with pytest.raises(ConfigError, match=r"by which the best weights are chosen: .* train\.sentinel\.enabled"):
        check_splits(RunConfig(train=TrainConfig(split="validation")))
    check_splits(RunConfig(train=TrainConfig(split="validation", sentinel=SentinelConfig(enabled=False))))
    check_splits(RunConfig(train=TrainConfig(split="validation", sentinel=SentinelConfig(held_out=64))))


SOURCES = {
    "flags": lambda folder: {"overrides": ["--train.split", "test", "--evaluate.split=test"]},
    "variables": lambda folder: {"environment": {"SLMSEARCH_TRAIN__SPLIT": "test", "SLMSEARCH_EVALUATE__SPLIT": "test"}},
    "file": lambda folder: {"files": [write_yaml(folder, "train: {split: test}\nevaluate: {split: test}\n")]},
    "file and flag": lambda folder: {"files": [write_yaml(folder, "evaluate: {split: test}\n")], "overrides": ["--train.split", "test"]},
    "sections as JSON": lambda folder: {"overrides": ['--train={"split": "test"}', '--evaluate={"split": "test"}']},
}


def write_yaml(folder: Path, text: str) -> Path:
    (folder / "run.yaml").write_text(text)
    return folder / "run.yaml"


@pytest.mark.parametrize(
    "given",
    [
        {"overrides": ["--train.split", "test"]},
        {"overrides": ["--train.split", "test", "--evaluate.limit", "5", "--train.steps", "3"]},
        {"environment": {"SLMSEARCH_EVALUATE__SPLIT": "train"}},
    ],
)
def test_a_split_named_once_where_settings_are_read_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="are both"):
        check_splits(load_config(**{"environment": {}, **given}))


@pytest.mark.parametrize("source", SOURCES)
def test_both_named_where_settings_are_read_go_through_and_reach_a_worker(source: str, tmp_path: Path) -> None:
    config = load_config(**{"environment": {}, **SOURCES[source](tmp_path)})
    check_splits(config)
    check_splits(RunConfig.model_validate(recordable(config, only_changed=True)))


def test_held_out_questions_named_with_their_default_reach_a_worker() -> None:
    default = str(SentinelConfig().held_out)
    config = load_config(overrides=["--train.split", "validation", "--train.sentinel.held_out", default], environment={})
    check_splits(RunConfig.model_validate(recordable(config, only_changed=True)))


@pytest.mark.parametrize("flow", LEARNING)
def test_a_flow_that_learns_is_checked(flow: str) -> None:
    with pytest.raises(ConfigError, match="both test"):
        run_flow(flow, RunConfig(train=TrainConfig(split="test")), print)
