"""Advantages against their definitions."""

from statistics import mean
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trl import GRPOTrainer

from slmsearch.config import TrainConfig
from slmsearch.training import grpo
from slmsearch.training.grpo import SearchTrainer, compute_advantages

REWARDS = st.lists(st.one_of(st.none(), st.floats(-2, 2)), min_size=4, max_size=4)


@given(st.lists(REWARDS, min_size=1, max_size=3))
def test_rloo_compares_with_the_others_of_the_group(groups):
    advantages = compute_advantages([reward for group in groups for reward in group], 4, "rloo", 0.5)
    for n, group in enumerate(groups):
        for i, reward in enumerate(group):
            others = [other for j, other in enumerate(group) if j != i and other is not None]
            expected = 0.0 if reward is None or not others else reward - mean(others)
            assert advantages[4 * n + i] == pytest.approx(expected, abs=1e-9)


def test_rloo_is_a_multiple_of_grpo():
    rewards = [1.0, 0.0, 0.0, 0.98]
    expected = [(reward - mean(rewards)) * 4 / 3 for reward in rewards]
    assert compute_advantages(rewards, 4, "rloo", 0.5) == pytest.approx(expected)


def test_reinforce_compares_with_a_constant():
    assert compute_advantages([1.0, None, 0.0, 0.5], 2, "reinforce", 0.5) == [0.5, 0.0, -0.5, 0.0]


@pytest.mark.parametrize(("algorithm", "expected"), [("grpo", [9.0, 9.0]), ("rloo", [1.0, -1.0]), ("reinforce", [0.5, -0.5])])
def test_the_trainer_takes_the_configured_advantages(algorithm, expected, monkeypatch):
    played = {"advantages": torch.full((2,), 9.0), "completion_ids": torch.zeros(2, 1, dtype=torch.long)}
    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", lambda self, inputs: dict(played))
    monkeypatch.setattr(grpo, "gather_object", lambda local: [0.0, 0.0, *local])  # this is the second of two processes
    trainer = SearchTrainer.__new__(SearchTrainer)
    trainer.search = TrainConfig(algorithm=algorithm, group_size=2)
    trainer.bridge = SimpleNamespace(rewards=[1.0, 0.0], sampled_mask=[[1], [1]])
    trainer.accelerator = SimpleNamespace(process_index=1)
    assert trainer._generate_and_score_completions([])["advantages"].tolist() == expected


def test_scaling_is_for_grpo_only():
    with pytest.raises(ValueError, match="scale_rewards requires algorithm grpo"):
        TrainConfig(algorithm="rloo", scale_rewards="group")
