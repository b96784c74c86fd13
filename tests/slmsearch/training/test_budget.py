"""What fits into a time, whatever the machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError
from slmsearch.training import budget
from slmsearch.training.budget import Speed, plan_start, plan_training

CONFIG = RunConfig().changed({"sft.batch_size": 8, "train.questions_per_step": 4, "train.group_size": 8, "train.monitor.held_out": 64})


@given(st.floats(1.0, 20_000.0), st.floats(0.01, 60.0), st.integers(1, 5000), st.integers(1, 20_000))
def test_what_is_planned_fits(left_s: float, update_s: float, questions: int, examples: int) -> None:
    try:
        planned = plan_start(left_s, Speed(update_s, examples), questions, CONFIG.sft)
    except ConfigError as error:
        assert "give more time with --budget" in str(error)
        return
    assert 1 <= planned["sft.steps"] <= max(1, round(budget.MAX_EPOCHS * examples / 8)) and 1 <= planned["evaluate.limit"] <= questions
    played_s = budget.PLAYED_PER_EXAMPLE * update_s / 8
    used = planned["sft.steps"] * update_s + budget.PLAYED * planned["evaluate.limit"] * played_s
    assert used <= (1 - 2 * budget.REWARDED_FRAC) * (left_s - budget.FIXED_S) * 1.001


@given(st.floats(-100.0, 10_000.0), st.floats(0.01, 10.0), st.integers(1, 600))
def test_training_and_the_control_beside_it_fit(left_s: float, played_s: float, limit: int) -> None:
    config = CONFIG.changed({"evaluate.limit": limit})
    planned = plan_training(left_s, played_s, config.evaluate.limit, config.train)
    steps, every = planned["train.steps"], planned["train.checkpoint_steps"]
    assert steps >= 2 and every < steps <= 2 * every
    trained = steps * budget.SAMPLED_PER_PLAYED * played_s * 32 + budget.SCORINGS * 64 * played_s
    assert steps == 2 or 2 * trained + budget.PLAYED_AFTER * limit * played_s <= left_s


def test_an_hour_and_a_minute() -> None:
    planned = plan_start(3300, Speed(5.3, 3300), 400, CONFIG.sft)
    assert (planned["sft.steps"], planned["evaluate.limit"]) == (312, 400)
    with pytest.raises(ConfigError, match="60 s are left of the budget and at least 515 s are needed"):
        plan_start(60, Speed(5.3, 3300), 400, CONFIG.sft)
