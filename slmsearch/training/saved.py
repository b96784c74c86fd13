"""Bytes that autograd keeps of a forward pass for the backward pass, per token and layer, counted without weights.

A model of one layer, and one of two, go over a row of tokens as in an update, with adapter, autocast and attention, but no tensor has
memory. Tensors that are kept once, such as an adapter's weights in another dtype, are not counted.
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
"""Tokens of the shorter row; the longer one has twice as many."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Settings of a forward pass."""

    dtype: torch.dtype
    """Data type of the weights."""
    lora: LoraSection | None
    """Adapter; None: all weights learn."""
    autocast: bool
    """True if autocast to bfloat16 is on."""
    fused: bool
    """True if the adapter multiplies as in `fused_lora.py`."""
    lowered: bool = False
    """True if frozen linear layers are bfloat16, as in supervised training."""


def count_saved(shape: Any, how: Pass) -> float:
    """Count the bytes kept per token and layer, for a configuration of transformers."""
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
        windowed = getattr(backbone.config.get_text_config(), "sliding_window", None)  # updates of such models go row by row
        inputs = {
            "input_ids": torch.zeros(1, tokens, dtype=torch.long),
            "position_ids": torch.arange(tokens)[None],
            "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool),
            "ancestry": None if windowed else SimpleNamespace(calls=[Call(0, tokens, (), None)]),
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
    """Put weights and buffers on a CPU, without memory, inside a `FakeTensorMode`; return the storages of the weights."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    own = made.setdefault(id(tensor), torch.empty(tensor.shape, dtype=tensor.dtype))
                    held[name] = torch.nn.Parameter(own, tensor.requires_grad) if held is module._parameters else own
    return {weight.untyped_storage()._cdata for weight in model.parameters()}
