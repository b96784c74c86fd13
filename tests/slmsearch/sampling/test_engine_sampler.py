"""Against stand-ins that take vLLM's and TRL's arguments and return their results; a real engine needs a GPU.

The stand-ins play a real tiny model greedily, so that what the sampler makes of them can be compared with the torch sampler's.
"""

import sys
from dataclasses import replace

import pytest
from transformers import set_seed

from slmsearch.episodes.sampler import Sampling
from slmsearch.sampling.engine_sampler import EngineSampler
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.sampling.vllm import ColocatedEngine, ServedEngine
from slmsearch.training.bootstrap import build_tokenizer, make_model
from tests.slmsearch.sampling import fake_vllm

PROMPTS = [[{"role": "user", "content": f"When was {name} founded?"}] for name in ("Mira", "Dunmar", "Mira")]


@pytest.fixture(scope="module")
def policy():
    tokenizer = build_tokenizer(["When was Mira founded? In 1823, Dunmar said."] * 9)
    set_seed(0)
    return make_model(tokenizer).eval(), tokenizer


@pytest.fixture(autouse=True)
def vllm_module(monkeypatch):
    for name, module in fake_vllm.modules().items():
        monkeypatch.setitem(sys.modules, name, module)


def play(sampler):
    """Two turns, rows dropping out, rooms of different size."""
    opened = sampler.open(PROMPTS, Sampling(max_new_tokens=12))
    first = sampler.sample([0, 1, 2], [None] * 3, [200, 200, 5])
    second = sampler.sample([0, 1], ["a: Mira", "In 1823"], [150, 150])
    full = sampler.sample([0], ["a long result " * 9], [4])
    return opened, first, second, full


@pytest.mark.parametrize(
    "engine", [lambda model: ColocatedEngine(fake_vllm.Llm(lambda: model)), lambda model: ServedEngine(fake_vllm.Client(lambda: model))]
)
def test_turns_are_those_of_the_torch_writer(policy, engine):
    model, tokenizer = policy
    expected, found = play(TorchSampler(model, tokenizer)), play(EngineSampler(engine(model), tokenizer))
    assert found[0] == expected[0]
    for theirs, ours in zip(expected[1:], found[1:], strict=True):
        for a, b in zip(theirs, ours, strict=True):
            assert a.sampled_logprobs == pytest.approx(b.sampled_logprobs, abs=1e-4)
            assert replace(a, sampled_logprobs=()) == replace(b, sampled_logprobs=())
    assert len(found[1][2].sampled_ids) == 5 and not found[1][2].ended
    assert found[3][0].sampled_ids == ()


def test_equal_prompts_draw_differently_and_the_same_again(policy):
    model, tokenizer = policy
    seeds = []
    for _ in range(2):
        llm = fake_vllm.Llm(lambda: model)
        sampler = EngineSampler(ColocatedEngine(llm), tokenizer)
        sampler.open(PROMPTS, Sampling(temperature=1.0, seed=7, max_new_tokens=4, first_row=8))
        for result in (None, "more"):
            sampler.sample([0, 1, 2], [result] * 3, [99] * 3)
        seeds.append([params.seed for _, batch in llm.calls for params in batch])
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 6
