"""Against stand-ins that take vLLM's and TRL's arguments and return their results; a real engine needs a GPU.

The stand-ins play a real tiny model greedily, so that what the writer makes of them can be compared with the torch writer's.
"""

import sys
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace

import pytest
import torch
from transformers import set_seed

from slmsearch.generate.engine_writer import EngineWriter
from slmsearch.generate.torch_writer import TorchWriter
from slmsearch.generate.vllm import ColocatedEngine, ServedEngine
from slmsearch.generate.writer import Sampling
from slmsearch.learn.bootstrap import make_model
from slmsearch.learn.lending import lend_vllm
from slmsearch.learn.tokenizer import build_tokenizer

PROMPTS = [[{"role": "user", "content": f"When was {name} founded?"}] for name in ("Mira", "Dunmar", "Mira")]


@pytest.fixture(scope="module")
def policy():
    tokenizer = build_tokenizer(["When was Mira founded? In 1823, Dunmar said."] * 9)
    set_seed(0)
    return make_model(tokenizer).eval(), tokenizer


@dataclass
class SamplingParams:
    """The fields of vLLM's class that are used; any other is an error, as there."""

    temperature: float
    max_tokens: int
    seed: int | None
    logprobs: int
    stop_token_ids: list[int] = field(default_factory=list)


@pytest.fixture(autouse=True)
def vllm_module(monkeypatch):
    module = ModuleType("vllm")
    module.SamplingParams = SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", module)


@torch.no_grad()
def continue_greedily(model, ids, limit, stop):
    """Ids and log-probabilities of the likeliest continuation, computed without a cache."""
    written, logprobs = [], []
    while len(written) < limit and (not written or written[-1] not in stop):
        scores = model(torch.tensor([[*ids, *written]])).logits[0, -1].log_softmax(-1)
        written.append(int(scores.argmax()))
        logprobs.append(float(scores.max()))
    return written, logprobs


class Llm:
    """`vllm.LLM`, as much as is used."""

    def __init__(self, model):
        self.model, self.calls = model, []

    def generate(self, prompts, sampling_params, use_tqdm):
        self.calls.append((prompts, sampling_params))
        outputs = []
        for prompt, params in zip(prompts, sampling_params, strict=True):
            ids, logprobs = continue_greedily(self.model, prompt["prompt_token_ids"], params.max_tokens, params.stop_token_ids)
            by_token = [{i: SimpleNamespace(logprob=value, rank=1)} for i, value in zip(ids, logprobs, strict=True)]
            outputs.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, logprobs=by_token)]))
        return outputs

    def wake_up(self, tags):
        self.calls.append(("wake_up", tags))

    def sleep(self, level):
        self.calls.append(("sleep", level))


class Client:
    """TRL's `VLLMClient`, as much as is used."""

    def __init__(self, model):
        self.model = model

    def generate(self, prompts, temperature=1.0, max_tokens=16, logprobs=0, generation_kwargs=None):
        found = [continue_greedily(self.model, ids, max_tokens, generation_kwargs["stop_token_ids"]) for ids in prompts]
        return {"completion_ids": [ids for ids, _ in found], "logprobs": [[[value] for value in values] for _, values in found]}


def play(writer):
    """Two turns, rows dropping out, rooms of different size."""
    opened = writer.open(PROMPTS, Sampling(max_new_tokens=12))
    first = writer.write([0, 1, 2], [None] * 3, [200, 200, 5])
    second = writer.write([0, 1], ["a: Mira", "In 1823"], [150, 150])
    full = writer.write([0], ["a long result " * 9], [4])
    return opened, first, second, full


@pytest.mark.parametrize("engine", [lambda model: ColocatedEngine(Llm(model)), lambda model: ServedEngine(Client(model))])
def test_turns_are_those_of_the_torch_writer(policy, engine):
    model, tokenizer = policy
    expected, found = play(TorchWriter(model, tokenizer)), play(EngineWriter(engine(model), tokenizer))
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
        llm = Llm(model)
        writer = EngineWriter(ColocatedEngine(llm), tokenizer)
        writer.open(PROMPTS, Sampling(temperature=1.0, seed=7, max_new_tokens=4, first_row=8))
        for result in (None, "more"):
            writer.write([0, 1, 2], [result] * 3, [99] * 3)
        seeds.append([params.seed for _, batch in llm.calls for params in batch])
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 6


class Generation:
    """TRL's `VLLMGeneration`, as much as is used."""

    def __init__(self, model, mode="colocate", enable_sleep_mode=True):
        self.mode, self.enable_sleep_mode = mode, enable_sleep_mode
        self._llm_weights_sleeping = enable_sleep_mode
        self.llm, self.vllm_client, self.synced = Llm(model), Client(model), 0

    def sync_weights(self):
        self.synced += 1
        self._llm_weights_sleeping = False


def make_trainer(generation, step=0):
    return SimpleNamespace(vllm_generation=generation, _last_loaded_step=-1, state=SimpleNamespace(global_step=step))


def test_a_colocated_engine_is_awake_only_while_it_is_lent_and_has_the_weights_of_the_step(policy):
    model, tokenizer = policy
    generation = Generation(model)
    trainer = make_trainer(generation)
    lend = lend_vllm(tokenizer, "tool")
    for expected in (1, 2):  # asleep it lost the weights, so they come again in the same step
        with lend(trainer) as writer:
            assert writer.open(PROMPTS, Sampling())
            assert generation.synced == expected and not generation._llm_weights_sleeping
        assert generation._llm_weights_sleeping
    with pytest.raises(RuntimeError, match="broken"), lend(trainer):
        raise RuntimeError("broken")
    assert [call for call in generation.llm.calls if call[0] in ("wake_up", "sleep")] == [("wake_up", ["kv_cache"]), ("sleep", 2)] * 3


def test_a_served_engine_gets_the_weights_once_a_step(policy):
    model, tokenizer = policy
    generation = Generation(model, "server", enable_sleep_mode=False)
    trainer = make_trainer(generation)
    lend = lend_vllm(tokenizer, "tool")
    for step, expected in ((0, 1), (0, 1), (1, 2)):
        trainer.state.global_step = step
        with lend(trainer) as writer:
            writer.open(PROMPTS, Sampling())
        assert generation.synced == expected
