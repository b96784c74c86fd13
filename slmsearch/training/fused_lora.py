"""Linear layers with LoRA adapters, in as few passes over memory as there are products.

PEFT casts the input for the base weight and for the adapter, scales, and adds. On a CPU, whose memory is slow, these passes take as long as
the products. Here `addmm` scales and adds as part of a product, forward and backward. Same formula: y = x W' + s (x A') B' + bias.

Shapes: N tokens, I inputs, O outputs, R rank.
"""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor


class LoraProduct(torch.autograd.Function):
    """x W' + scale (x A') B', where W is frozen and A and B learn."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
        """Multiply x (N, I) by weight (O, I) and by a (R, I) and b (O, R), all in the weight's dtype."""
        inner = x @ a.T
        ctx.save_for_backward(x, weight, a, b, inner)
        ctx.scale = scale
        return (x @ weight.T).addmm_(inner, b.T, alpha=scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, a and b from that of the result (N, O)."""
        x, weight, a, b, inner = ctx.saved_tensors
        gradient = gradients[0].to(weight.dtype)
        through = (gradient @ b).mul_(ctx.scale)
        to_x = (gradient @ weight).addmm_(through, a) if ctx.needs_input_grad[0] else None
        return to_x, None, through.T @ x, (gradient.T @ inner).mul_(ctx.scale), None


@contextmanager
def fused_lora(model: Any) -> Iterator[int]:
    """Make a model's LoRA layers compute with `LoraProduct`; afterwards they are PEFT's again.

    Layers with dropout, with several adapters or another kind of them, merged or quantised ones stay unchanged.

    Yields:
        The number of changed layers.
    """
    from peft.tuners.lora import Linear

    layers = [module for module in model.modules() if type(module) is Linear and _is_plain(module)]
    for layer in layers:
        layer.forward = types.MethodType(_forward, layer)  # type: ignore[method-assign]
    try:
        yield len(layers)
    finally:
        for layer in layers:
            del layer.forward


def _is_plain(layer: Any) -> bool:
    active = layer.active_adapters
    if len(active) != 1 or layer.merged or layer.disable_adapters or active[0] not in layer.lora_A:
        return False
    name = active[0]
    plain = type(layer.base_layer) is torch.nn.Linear and isinstance(layer.lora_dropout[name], torch.nn.Identity)
    return plain and not layer.lora_variant and layer.lora_B[name].bias is None


def _forward(layer: Any, x: Tensor) -> Tensor:
    if not _is_plain(layer):  # for example, the adapter is disabled for now
        return cast(Tensor, type(layer).forward(layer, x))
    name, base = layer.active_adapters[0], layer.base_layer
    dtype = base.weight.dtype
    a, b = _weights_of(layer, name, dtype)
    result: Tensor = LoraProduct.apply(x.to(dtype).flatten(0, -2), base.weight, a, b, layer.scaling[name])
    if base.bias is not None:
        result = result + base.bias.to(dtype)
    return result.view(*x.shape[:-1], -1)


@contextmanager
def unchanged_adapters(model: Any) -> Iterator[None]:
    """Make these layers convert their adapter's weights once, instead of for every token; the weights must not change meanwhile.

    A weight's version does not show a change: torch's fused Adam leaves versions as they were.
    """
    layers = [module for module in model.modules() if isinstance(module.__dict__.get("forward"), types.MethodType)]
    for layer in layers:
        layer.__dict__["converted"] = {}
    try:
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("converted", None)


def _weights_of(layer: Any, name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return A and B in a dtype."""
    kept: dict[Any, tuple[Tensor, Tensor]] | None = layer.__dict__.get("converted")
    if kept and (name, dtype) in kept:
        return kept[name, dtype]
    weights = (layer.lora_A[name].weight.to(dtype), layer.lora_B[name].weight.to(dtype))
    if kept is not None and not torch.is_grad_enabled():
        kept[name, dtype] = weights
    return weights


def lower_frozen(model: Any) -> None:
    """Put the frozen linear layers into bfloat16: autocast multiplies in it anyway, and would otherwise convert them in every micro-batch.

    The head may share its weights with the embedding, which is not multiplied, and stays as it is.
    """
    ends = [end.weight for end in (model.get_input_embeddings(), model.get_output_embeddings()) if end is not None]
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module.weight.dtype == torch.float32 and not any(module.weight is end for end in ends):
            module.weight.data = module.weight.data if module.weight.requires_grad else module.weight.data.bfloat16()
