"""Fused layers do what the plain ones do."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from slmsearch.retrieval import embed_passages
from slmsearch.retrieval.embed_passages import FusedLinear, FusedResidual, can_fuse, fuse_layers


@pytest.fixture
def bert() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    return BertModel(config).eval()


def hidden_states(model: BertModel) -> torch.Tensor:
    ids = torch.arange(48).reshape(2, 24)
    mask = torch.ones_like(ids)
    mask[1, -5:] = 0
    with torch.inference_mode():
        return model(input_ids=ids, attention_mask=mask).last_hidden_state.float()


needs_instructions = pytest.mark.skipif(not can_fuse(), reason="this processor lacks the instructions that oneDNN needs for bfloat16")


@needs_instructions
def test_a_fused_model_is_nearer_to_float32_than_rounding_takes_a_plain_one(bert: BertModel):
    exact, plain = hidden_states(bert), copy.deepcopy(bert).to(torch.bfloat16)
    rounded = hidden_states(plain)
    # Of each layer query, key, value; attention's and the layer's own residual; the intermediate layer. And the pooler.
    assert fuse_layers(plain) == 2 * 6 + 1
    kinds = [type(module) for module in plain.modules()]
    assert (kinds.count(FusedLinear), kinds.count(FusedResidual), kinds.count(nn.Linear)) == (2 * 4 + 1, 2 * 2, 0)
    fused = hidden_states(plain)
    assert (fused - exact).abs().mean() < 1.2 * (rounded - exact).abs().mean()
    assert torch.nn.functional.cosine_similarity(fused, exact, dim=-1).min() > 0.999


@needs_instructions
def test_another_activation_stays_outside(bert: BertModel):
    config = copy.deepcopy(bert.config)
    config.hidden_act = "relu"
    model = BertModel(config).eval()
    exact, half = hidden_states(model), copy.deepcopy(model).to(torch.bfloat16)
    assert fuse_layers(half)
    assert torch.nn.functional.cosine_similarity(hidden_states(half), exact, dim=-1).min() > 0.999


def test_without_the_operators_nothing_is_replaced(bert: BertModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embed_passages.torch.ops, "mkldnn", SimpleNamespace())
    assert fuse_layers(bert) == 0
    assert not any(isinstance(module, FusedLinear) for module in bert.modules())


def test_on_a_processor_that_cannot_nothing_is_replaced(bert: BertModel, monkeypatch: pytest.MonkeyPatch):
    operators = {name: None for name in ("_linear_pointwise", "_reorder_linear_weight")}
    monkeypatch.setattr(embed_passages.torch.ops, "mkldnn", SimpleNamespace(**operators, _is_mkldnn_bf16_supported=lambda: False))
    assert fuse_layers(bert.to(torch.bfloat16)) == 0
    assert hidden_states(bert).isfinite().all()
