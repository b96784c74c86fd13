"""What autograd keeps of a forward pass for the backward one, counted without weights: bytes a token and layer.

A model of one layer, and one of two, go over a row of tokens as an update does, with adapter, autocast and attention; only that no tensor
holds anything. What is kept once, such as an adapter's weights in another dtype, is no part of it.
"""

import copy
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM

from slmsearch.config import LoraSection
from slmsearch.models.attention import Call, use_attention
from slmsearch.training.fused_lora import fused_lora, lower_frozen

COUNTED_TOKENS = 64
"""Tokens of the shorter row; the longer one has as many more."""


@dataclass(frozen=True, slots=True)
class Pass:
    """How a model goes forward."""

    dtype: torch.dtype
    """Of its weights."""
    lora: LoraSection | None
    """None: all weights learn."""
    autocast: bool
    """To bfloat16."""
    fused: bool
    """The adapter multiplies as in `fused_lora.py`."""
    lowered: bool = False
    """Frozen linear layers lie in bfloat16, as supervised training has them."""


def count_saved(shape: Any, how: Pass) -> float:
    """Count the bytes kept of a token in a layer of a model with this configuration of transformers."""
    of_layers = []
    for layers in (1, 2):
        model = _skeleton(shape, layers, how)
        short, long = (_count(model, tokens, how) for tokens in (COUNTED_TOKENS, 2 * COUNTED_TOKENS))
        of_layers.append((long - short) / COUNTED_TOKENS)
    return of_layers[1] - of_layers[0]


def _skeleton(shape: Any, layers: int, how: Pass) -> Any:
    """Make a model without memory."""
    shape = copy.deepcopy(shape)
    shape.num_hidden_layers = layers
    if getattr(shape, "layer_types", None):
        shape.layer_types = (shape.layer_types * layers)[:layers]
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(shape, dtype=how.dtype)
        use_attention(model)
        if how.lora is not None:
            lora = LoraConfig(task_type="CAUSAL_LM", r=how.lora.r, target_modules=how.lora.target_modules)
            model = get_peft_model(model, lora)
        if how.lowered:
            lower_frozen(model)
    return model


def _count(model: Any, tokens: int, how: Pass) -> int:
    """Count the bytes kept of a row."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with FakeTensorMode(allow_non_fake_inputs=True):
        weights = _put_on_cpu(model)
        backbone = (model.get_base_model() if how.lora is not None else model).base_model
        inputs = {
            "input_ids": torch.zeros(1, tokens, dtype=torch.long),
            "position_ids": torch.arange(tokens)[None],
            "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool),
            "ancestry": SimpleNamespace(calls=[Call(0, tokens, (), None)]),
        }
        with (
            fused_lora(model) if how.fused else nullcontext(),
            torch.autocast("cpu", torch.bfloat16, enabled=how.autocast),
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            output = backbone(**inputs, use_cache=False)
        del output
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)


def _put_on_cpu(model: Any) -> set[int]:
    """Let weights and buffers stand for ones on a CPU, inside a `FakeTensorMode`; return where the weights lie."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    own = made.setdefault(id(tensor), torch.empty(tensor.shape, dtype=tensor.dtype))
                    held[name] = torch.nn.Parameter(own, tensor.requires_grad) if held is module._parameters else own
    return {weight.untyped_storage()._cdata for weight in model.parameters()}
