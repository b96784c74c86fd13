"""What is learnt from is not what is measured with."""

import pytest

from flows.ops.runner import LEARNING, run_flow
from flows.stages.preflight import check_splits
from slmsearch.config import EvaluateConfig, RunConfig, TrainConfig
from slmsearch.errors import ConfigError


def test_the_defaults_are_apart() -> None:
    check_splits(EvaluateConfig(), TrainConfig())


@pytest.mark.parametrize("flow", LEARNING)
def test_a_flow_that_learns_is_not_decided_by_what_it_learnt_from(flow: str) -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.split is train"):
        run_flow(flow, RunConfig(evaluate=EvaluateConfig(split="train")), print)
