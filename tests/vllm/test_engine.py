"""The engine in this process beside the torch sampler: the same ids, the same log-probabilities, with and without an adapter."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from slmsearch.episodes.sampler import Sampling
from slmsearch.sampling.engine_sampler import CompletionRequest, EngineSampler
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.sampling.vllm import ColocatedEngine

TEMPERATURE = 0.7
PROMPTS = [[{"role": "user", "content": f"Where is {name}?"}] for name in ("Mira", "Dunmar")]
LENGTH = 512
"""Tokens that the engine takes, prompt and completion together."""


@pytest.fixture(scope="module")
def tokenizer(gqa_model: Path) -> Any:
    return AutoTokenizer.from_pretrained(gqa_model)


@pytest.fixture(scope="module")
def adapted(gqa_model: Path) -> Any:
    """The model under an adapter that matters."""
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(gqa_model), LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear")
    )
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return model.eval()


@pytest.fixture(scope="module")
def adapter(adapted: PeftModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("adapter")
    adapted.save_pretrained(str(path))
    return path


@pytest.fixture(scope="module")
def llm(gqa_model: Path) -> Any:
    """An engine with the settings of training."""
    from vllm import LLM

    return LLM(
        str(gqa_model),
        dtype="float32",
        max_model_len=LENGTH,
        logprobs_mode="processed_logprobs",
        enable_lora=True,
        max_lora_rank=8,
        enforce_eager=True,
        seed=0,
    )


def logprobs_of(model: Any, prompt: tuple[int, ...], ids: tuple[int, ...]) -> list[float]:
    """What a model gives each id after a prompt, without a cache."""
    with torch.no_grad():
        scores = (model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1] / TEMPERATURE).log_softmax(-1)
    return [float(scores[place, token]) for place, token in enumerate(ids)]


def largest_gap(model: Any, sampler: EngineSampler) -> float:
    """The largest difference between the log-probabilities of two turns as sampled, and those that the torch model gives them."""
    histories, gaps = sampler.open(PROMPTS, Sampling(TEMPERATURE, seed=3, max_new_tokens=24)), []
    rows = range(len(PROMPTS))
    for results in ([None] * len(PROMPTS), ["Mira is a town."] * len(PROMPTS)):
        written = sampler.sample(rows, results, [200] * len(PROMPTS))
        for row, turn in zip(rows, written, strict=True):
            assert len(turn.sampled_ids) > 1
            before = (*histories[row], *turn.context_ids)
            expected = logprobs_of(model, before, turn.sampled_ids)
            gaps += [abs(a - b) for a, b in zip(turn.sampled_logprobs, expected, strict=True)]
            histories[row] = (*before, *turn.sampled_ids)
    return max(gaps)


def test_logprobs_are_those_of_the_torch_model(llm: Any, tokenizer: Any, adapted: Any) -> None:
    with adapted.disable_adapter():
        assert largest_gap(adapted, EngineSampler(ColocatedEngine(llm), tokenizer)) < 1e-4


def test_logprobs_with_an_adapter_are_those_of_the_torch_model_with_it(llm: Any, tokenizer: Any, adapted: Any, adapter: Path) -> None:
    assert largest_gap(adapted, EngineSampler(ColocatedEngine(llm, adapter, 1), tokenizer)) < 1e-4
    with adapted.disable_adapter():
        assert largest_gap(adapted, EngineSampler(ColocatedEngine(llm, adapter, 1), tokenizer)) > 1e-2, "the adapter must matter"


def test_an_adapter_under_a_new_number_is_read_anew(llm: Any, tokenizer: Any, adapted: Any, tmp_path: Path) -> None:
    changed = [weight for name, weight in adapted.named_parameters() if "lora_B" in name]
    for weight in changed:
        weight.data.mul_(-1)
    try:
        adapted.save_pretrained(str(tmp_path))
        assert largest_gap(adapted, EngineSampler(ColocatedEngine(llm, tmp_path, 2), tokenizer)) < 1e-4
    finally:
        for weight in changed:
            weight.data.mul_(-1)


def test_greedy_turns_are_those_of_the_torch_sampler(llm: Any, tokenizer: Any, adapted: Any) -> None:
    texts = []
    with adapted.disable_adapter():
        for sampler in (EngineSampler(ColocatedEngine(llm), tokenizer), TorchSampler(adapted.get_base_model(), tokenizer)):
            sampler.open(PROMPTS, Sampling(temperature=0.0, max_new_tokens=24))
            texts.append([turn.sampled_ids for turn in sampler.sample([0, 1], [None, None], [100, 100])])
    assert texts[0] == texts[1]


def test_a_history_of_the_longest_kind_is_continued_up_to_the_limit(llm: Any) -> None:
    room = 8
    request = CompletionRequest(tuple([7] * (LENGTH - room)), max_tokens=room, seed=0)
    (completion,) = ColocatedEngine(llm).complete([request], TEMPERATURE, end_id=0)
    assert len(completion.ids) == len(completion.logprobs) == room


def test_a_stop_text_ends_a_turn_with_the_token_that_completes_it(llm: Any, tokenizer: Any) -> None:
    prompt = tuple(tokenizer("Where is Mira ?")["input_ids"])
    engine = ColocatedEngine(llm)
    (free,) = engine.complete([CompletionRequest(prompt, max_tokens=24, seed=0)], TEMPERATURE, end_id=0)
    text = tokenizer.decode(free.ids)
    stop = re.findall("[A-Za-z]{3}", text)[2]  # whole letters: a byte of one is written otherwise where the next is missing
    (stopped,) = engine.complete([CompletionRequest(prompt, 24, 0, (stop, "never written"))], TEMPERATURE, end_id=0)
    kept = len(stopped.ids)
    assert stopped.ids == free.ids[:kept] and len(stopped.logprobs) == kept < len(free.ids)
    assert stop in tokenizer.decode(stopped.ids) and stop not in tokenizer.decode(stopped.ids[:-1])
