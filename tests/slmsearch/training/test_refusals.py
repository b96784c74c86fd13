"""Settings that cannot work are refused when they are read, with the reason."""

import pytest

from slmsearch.config import PolicyConfig, RunConfig, TrainConfig, VllmConfig


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_vllm_has_no_4_bit_weights(mode):
    with pytest.raises(ValueError, match=r"does not read bitsandbytes weights; unset policy\.load_in_4bit"):
        RunConfig(policy=PolicyConfig(load_in_4bit=True), train=TrainConfig(vllm=VllmConfig(mode=mode)))
    RunConfig(policy=PolicyConfig(load_in_4bit=True))


@pytest.mark.parametrize("dtype", ["bfloat16", "auto"])
def test_all_weights_are_trained_in_float32_only(dtype):
    with pytest.raises(ValueError, match=r"lose most of every small step in rounding: set policy\.dtype to float32"):
        RunConfig(policy=PolicyConfig(dtype=dtype), train=TrainConfig(method="full"))
    RunConfig(policy=PolicyConfig(dtype="float32"), train=TrainConfig(method="full"))
    RunConfig(policy=PolicyConfig(dtype=dtype))


def test_one_process_cannot_carry_weights_to_a_server_that_another_samples_from():
    with pytest.raises(ValueError, match="one process would sample while another carries the weights over"):
        TrainConfig(method="full", num_processes=2, vllm=VllmConfig(mode="server"))
    TrainConfig(num_processes=2, vllm=VllmConfig(mode="server"))
