"""The benchmark of supervised training, with a model of 80,000 weights: both sides learn the same tokens of the same episodes."""

import pytest

from slmsearch.config import LoraSection, PolicyConfig, RunConfig, SearcherConfig, TrainConfig
from slmsearch.errors import ModelError
from slmsearch.extensions.bench import sft


def test_a_model_that_cannot_be_had_is_one_line(tmp_path):
    config = RunConfig(policy=PolicyConfig(model=str(tmp_path), device="cpu"))
    with pytest.raises(ModelError, match="no model at"):
        sft.run_sft(config, 1, str)


@pytest.mark.slow
def test_both_sides_take_turns_over_the_same_tokens(model_dir):
    config = RunConfig(
        policy=PolicyConfig(model=str(model_dir), device="cpu"), searcher=SearcherConfig(), train=TrainConfig(lora=LoraSection(r=2))
    )
    said = []
    found = sft.run_sft(config, 2, said.append)
    result = found.values
    assert [line.split()[0] for line in said] == ["slmsearch", "trl"] * 3
    ours, peer = result["slmsearch"], result["trl"]
    assert ours["loss"] == pytest.approx(peer["loss"], rel=0.02)
    assert len(ours["seconds"]) == len(peer["cpu_seconds"]) == 2
    assert result["tokens_per_s_ratio"] == pytest.approx(ours["tokens_per_s"] / peer["tokens_per_s"], rel=0.01)
    assert 0 < result["written_tokens"] < result["tokens"]
    assert "ratio" in found.render()
