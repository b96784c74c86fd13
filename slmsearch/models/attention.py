"""The attention of every model that plays or learns here, in the form of transformers' `AttentionInterface`.

transformers' own repeats the key heads for every query head where there is a mask, and knows no trees. It gets what this cannot improve.

Shapes: B lines, N tokens, H query heads, K key heads, D head size.
"""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from slmsearch.models.flex import attend_flex, takes_flex

ATTENTION = "slmsearch"
"""Name under which transformers knows the attention."""
MADE_FOR = "sdpa"
"""Implementation that this attention replaces; models with another one keep it."""
UNKNOWN = ("softcap", "sliding_window", "s_aux", "position_bias")
"""Arguments of a layer's attention that are left to transformers."""

Span = tuple[int, int]
"""First node and end, exclusive."""


class Call(NamedTuple):
    """One call of attention over a tree of tokens: of the nodes `first` to `end` over `history` and themselves."""

    first: int
    end: int
    history: tuple[Span, ...]
    mask: Tensor | None
    """(nodes, history + nodes), True where a node attends. None: a single run of nodes, causal."""


class Ancestry(Protocol):
    """The nodes that each node of a tree attends to, its ancestors and itself, in two forms; each is made on first use."""

    @property
    def calls(self) -> Sequence[Call]:
        """Calls of attention."""

    @property
    def mask(self) -> BlockMask:
        """Mask of flex attention."""


def use_attention(model: Any) -> None:
    """Make a model use this attention, unless it has chosen another implementation than transformers' usual one."""
    if getattr(model.config, "_attn_implementation", None) == MADE_FOR:
        model.set_attn_implementation(ATTENTION)


def exact_length(model: Any) -> int:
    """Return the columns up to which the sampler's mask, which knows no windows, is exact; `attend` adds the sliding ones."""
    sliding = () if getattr(model.config, "_attn_implementation", None) == ATTENTION else ("sliding_window",)
    windows = [getattr(model.config.get_text_config(), name, None) for name in ("attention_chunk_size", "window_size", *sliding)]
    return min((window for window in windows if isinstance(window, int) and window > 0), default=sys.maxsize)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    ancestry: Ancestry | None = None,
    upcast: bool = False,
    recomputed: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute the attention of a layer.

    Args:
        module: the layer.
        query: (B, H, N, D).
        key: (B, K, N, D), one head for H / K query heads.
        value: (B, K, N, D).
        attention_mask: as for `scaled_dot_product_attention`; None: causal.
        scaling: factor of the scores.
        ancestry: which tokens see which in a forward pass over a tree (B = 1); the mask is not read.
        upcast: attend in float32 under autocast. With bfloat16 attention on the CPU, a model trained for the same steps copied worse (80 %
            of one-hop questions right instead of 96 %, one run each).
        recomputed: the layer is computed again in the backward pass (gradient checkpointing); a tree's attention then keeps nothing else.
        kwargs: see `UNKNOWN`.

    Raises:
        NotImplementedError: a tree, and the layer uses arguments that are left to transformers.
    """
    asked = [name for name in UNKNOWN if kwargs.get(name) is not None]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    dtype = query.dtype
    with torch.autocast(query.device.type, enabled=False) if upcast else nullcontext():
        if upcast:
            query, key, value = query.float(), key.float(), value.float()
        if ancestry is not None:
            if asked:
                raise NotImplementedError(f"attention over a tree knows no {asked[0]}")
            attended = _attend_tree(query[0], key[0], value[0], ancestry, scale, recomputed)[None]
        elif asked or kwargs.get("dropout") or (query.device.type != "cpu" and not _is_decoding(query, key, attention_mask)):
            window = kwargs.get("sliding_window")
            if window and attention_mask is not None:  # the sampler's mask knows no window: a token sees all columns up to its own
                columns = torch.arange(attention_mask.shape[-1], device=query.device)
                attention_mask = attention_mask & (attention_mask.sum(-1, keepdim=True) - columns <= window)
            return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        else:
            causal = attention_mask is None and query.shape[2] > 1
            gqa = query.shape[1] != key.shape[1]
            if gqa and attention_mask is not None and (dtype == torch.bfloat16 or query.device.type != "cpu"):
                attended = _attend_folded(query, key, value, attention_mask, scale)
            else:
                attended = scaled_dot_product_attention(query, key, value, attention_mask, is_causal=causal, scale=scale, enable_gqa=gqa)
    return attended.transpose(1, 2).contiguous().to(dtype), None


def _is_decoding(query: Tensor, key: Tensor, mask: Tensor | None) -> bool:
    """Return whether one token per line attends to a cache with fewer key heads, which transformers would copy for every query head."""
    return query.shape[2] == 1 and query.shape[1] != key.shape[1] and mask is not None


def _attend_tree(query: Tensor, key: Tensor, value: Tensor, ancestry: Ancestry, scale: float, recomputed: bool) -> Tensor:
    """Attend over a tree with query (H, N, D), key and value (K, N, D): in one kernel where the device has it, call by call elsewhere."""
    if takes_flex(query, key, value):
        return attend_flex(query, key, value, ancestry.mask, scale)
    attended: Tensor = _TreeAttention.apply(query, key, value, ancestry.calls, scale, recomputed)
    return attended


def _attend_folded(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attend with the query heads of a key head as if they were consecutive tokens.

    torch's kernel prepares the keys for each head again: for one token in 32 lines of 256 columns of SmolLM2, in bfloat16, it took 2.9 ms a
    layer instead of 0.5; in float32 there is no such difference.
    """
    lines, heads, tokens, size = query.shape
    shared = heads // key.shape[1]
    together = query.reshape(lines, key.shape[1], shared * tokens, size)
    repeated = mask.repeat(1, 1, shared, 1)
    return scaled_dot_product_attention(together, key, value, repeated, scale=scale).reshape(query.shape)


class _TreeAttention(torch.autograd.Function):
    """Attention call by call. It adds gradients up in place, where autograd would make a tensor of all nodes for every slice."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, calls: Sequence[Call], scale: float, recomputed: bool) -> Tensor:
        """Attend with query (H, N, D), key and value (K, N, D) over the calls; return (H, N, D)."""
        result = torch.empty_like(query)
        ctx.calls, ctx.scale, ctx.parts = calls, scale, []
        learns = any(ctx.needs_input_grad)
        ctx.save_for_backward(*(query, key, value) if learns else ())
        for call in calls:
            inputs, part = _attend_call(query, key, value, call, scale, learns and not recomputed)
            result[:, call.first : call.end] = part.detach()
            if learns:
                ctx.parts.append(None if recomputed else (inputs, part))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        """Return the gradients of query, key and value from that of the result (H, N, D)."""
        gradient, (query, key, value) = gradients[0], ctx.saved_tensors
        to_query = gradient.new_empty(query.shape)
        to_key, to_value = gradient.new_zeros(key.shape), gradient.new_zeros(key.shape)
        if ctx.parts is None:
            raise RuntimeError("attention over a tree goes backward once: its parts are freed")
        for call, kept in zip(ctx.calls, ctx.parts, strict=True):
            inputs, part = kept or _attend_call(query, key, value, call, ctx.scale, learns=True)
            own = slice(call.first, call.end)
            of_query, of_key, of_value = torch.autograd.grad(part, inputs, gradient[:, own].to(part.dtype))
            to_query[:, own] = of_query[:, call.first - call.end :]
            for total, new in ((to_key, of_key), (to_value, of_value)):
                start = 0
                for first, end in (*call.history, (call.first, call.end)):
                    total[:, first:end] += new[:, start : start + end - first]
                    start += end - first
        ctx.parts = None
        return to_query, to_key, to_value, None, None, None


def _gather(tensor: Tensor, spans: Sequence[Span]) -> Tensor:
    """Concatenate some spans of nodes (heads, nodes, size), detached from autograd."""
    parts = [tensor[:, first:end].detach() for first, end in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _attend_call(query: Tensor, key: Tensor, value: Tensor, call: Call, scale: float, learns: bool) -> tuple[list[Tensor], Tensor]:
    """Make one call; return its inputs and its result."""
    spans = (*call.history, (call.first, call.end))
    with torch.enable_grad() if learns else nullcontext():
        inputs = [_gather(query, spans if call.mask is None else spans[-1:]), _gather(key, spans), _gather(value, spans)]
        inputs = [tensor.requires_grad_(learns) for tensor in inputs]
        (own, keys, values), gqa = (tensor[None] for tensor in inputs), query.shape[0] != key.shape[0]
        attended = scaled_dot_product_attention(own, keys, values, call.mask, is_causal=call.mask is None, scale=scale, enable_gqa=gqa)
        return inputs, attended[0, :, call.first - call.end :]


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
