"""What is learnt from is not what is measured with."""

import pytest

from flows.preflight import check_splits
from flows.runner import LEARNING, run_flow
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


@pytest.mark.parametrize("flow", LEARNING)
def test_a_flow_that_learns_is_checked(flow: str) -> None:
    with pytest.raises(ConfigError, match="both test"):
        run_flow(flow, RunConfig(train=TrainConfig(split="test")), print)
