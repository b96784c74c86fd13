"""The measurement of memory plays and trains every phase, each in a process of its own, and puts it beside the plan."""

import pytest

from slmsearch.bench.memory import run_memory
from slmsearch.config import EvaluateConfig, PolicyConfig, RunConfig, SearcherConfig, TrainConfig
from slmsearch.learn.memory import EVALUATION, HELD_OUT, PREFLIGHT, SAMPLING, UPDATE


@pytest.mark.slow
def test_every_phase_is_measured_beside_its_plan(model_dir):
    config = RunConfig(
        policy=PolicyConfig(model=str(model_dir), device="cpu"),
        searcher=SearcherConfig(max_turns=2, max_turn_tokens=8, max_episode_tokens=64),
        train=TrainConfig(questions_per_step=1, group_size=2),
        evaluate=EvaluateConfig(batch_size=2),
    )
    said = []
    result = run_memory(config, said.append)
    assert set(result.values["phases"]) == {PREFLIGHT, HELD_OUT, SAMPLING, UPDATE, EVALUATION}
    for phase in result.values["phases"].values():
        assert phase["ratio"] == pytest.approx(phase["planned_gib"] / phase["measured_gib"])
    assert len(said) == 5
    assert UPDATE in result.render()
