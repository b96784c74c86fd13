"""Layers that see only the last tokens: sampled as the model computes them, or refused."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import ModelError
from slmsearch.models.attention import ATTENTION, use_attention
from slmsearch.sampling import torch_sampler
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training.bootstrap import build_tokenizer

WINDOW, ROWS = 12, 7
PROMPTS = [
    [{"role": "user", "content": "Who is Mira?" if row % 3 else "Where is Norwick, and " * (1 + row) + "why?"}] for row in range(ROWS)
]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(["Mira Talvoren was born in 1823 in Norwick. How many towns does the Dunmar River flow through?"] * 20)


def make_model(kind, tokenizer, **changes):
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, max_position_embeddings=1024, **ids, **sizes, **changes)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3 if weight.dim() == 2 else 1)
    use_attention(model)
    return model


@torch.no_grad()
@pytest.mark.parametrize("way", ["with draft tokens", "one thread", "on the device"])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("mistral", {}),
        ("gemma3_text", {"head_dim": 16, "layer_types": ["sliding_attention", "full_attention"] * 2}),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 2}),
        ("phi3", {}),
        ("olmo3", {}),
    ],
)
def test_a_sliding_window_is_that_of_the_model(tokenizer, monkeypatch, kind, changes, way):
    """Padded lines, rows that share a line until they differ, accepted and rejected draft tokens."""
    monkeypatch.setattr(torch_sampler, "is_small", lambda _: way == "one thread")
    monkeypatch.setattr(torch_sampler, "decodes_together", lambda _: way == "on the device")
    model, rows = make_model(kind, tokenizer, sliding_window=WINDOW, **changes), range(ROWS)
    assert model.config._attn_implementation == ATTENTION
    sampler = TorchSampler(model, tokenizer)
    histories, scored = [list(ids) for ids in sampler.open(PROMPTS, Sampling(0.9, 3, 9))], []
    for turn in range(3):
        results = [None if turn == 0 else "Mira was born in Norwick. " * (1 + row % 4) for row in rows]
        for row, sampled in zip(rows, sampler.sample(rows, results, [400] * ROWS), strict=True):
            histories[row] += [*sampled.context_ids, *sampled.sampled_ids]
            scored.append((row, len(histories[row]) - len(sampled.sampled_ids), sampled))
    assert min(map(len, histories)) > 2 * WINDOW
    for row, start, sampled in scored:
        logits = model(torch.tensor([histories[row]])).logits[0].float() / 0.9
        expected = logits.log_softmax(-1)[range(start - 1, start - 1 + len(sampled.sampled_ids)), sampled.sampled_ids]
        assert sampled.sampled_logprobs == pytest.approx(expected.tolist(), abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gemma2", {"head_dim": 16, "sliding_window": 64}),
        ("llama4_text", {"head_dim": 16, "num_local_experts": 2, "attention_chunk_size": 64, "intermediate_size_mlp": 64}),
    ],
)
def test_windows_that_are_not_applied_are_refused_where_an_episode_can_be_longer(tokenizer, kind, changes):
    sampler = TorchSampler(make_model(kind, tokenizer, **changes), tokenizer)
    held = len(sampler.open(PROMPTS[1:2], Sampling(1.0, 3, 9))[0])
    with pytest.raises(ModelError, match=r"may have 65 tokens, .* attention window of 64: lower .*max_episode_tokens") as refused:
        sampler.sample([0], [None], [65 - held])
    assert "\n" not in str(refused.value)
    assert sampler.sample([0], [None], [64 - held])[0].sampled_ids


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("lfm2", {"layer_types": ["conv", "full_attention"] * 2}),
        ("mamba", {"state_size": 8}),
        ("recurrent_gemma", {"lru_width": 64, "attention_window_size": 16, "block_types": ["recurrent", "attention"]}),
        ("rwkv", {"attention_hidden_size": 64}),
        ("bloom", {}),
    ],
)
def test_models_that_keep_more_than_keys_and_values_are_refused(tokenizer, kind, changes):
    sampler = TorchSampler(make_model(kind, tokenizer, **changes), tokenizer)
    with pytest.raises(ModelError, match=rf"cannot play models of type {kind}, .*: take another policy\.model") as refused:
        sampler.open(PROMPTS, Sampling())
    assert "\n" not in str(refused.value)
