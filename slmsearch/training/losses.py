"""Token losses from hidden states, computed only where they are needed.

Shapes: N tokens, D hidden size.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from slmsearch.training.block_sizes import TILE_VALUES


def causal_of(model: Any) -> Any:
    """Return the causal language model below the wrappers of accelerate and PEFT."""
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def token_losses(causal: Any, hidden: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute the cross-entropy of tokens from the hidden states before them, no more than `TILE_VALUES` logits at a time.

    With several tiles, the backward pass recomputes their logits instead of keeping them.

    Args:
        causal: the causal language model whose head is used.
        hidden: (N, D).
        targets: (N,) ids.
        temperature: divides the logits.

    Returns:
        (N,) float32 losses.
    """
    head, settings = causal.get_output_embeddings(), causal.config.get_text_config()
    # Gemma caps its logits, Cohere multiplies them, Granite divides them.
    cap = getattr(settings, "final_logit_softcapping", None)
    scale = (getattr(settings, "logit_scale", None) or 1.0) / (getattr(settings, "logits_scaling", None) or 1.0)

    def compute(states: Tensor, ids: Tensor) -> Tensor:
        logits = head(states).float()
        logits = logits * scale if scale != 1.0 else logits
        logits = torch.tanh(logits / cap) * cap if cap else logits
        losses: Tensor = _CrossEntropy.apply(logits / temperature if temperature != 1.0 else logits, ids)
        return losses

    rows = max(1, TILE_VALUES // settings.vocab_size)
    if len(targets) <= rows:
        return compute(hidden, targets)
    tiles = zip(hidden.split(rows), targets.split(rows), strict=True)
    return torch.cat([checkpoint(compute, states, ids, use_reentrant=False) for states, ids in tiles])


class _CrossEntropy(torch.autograd.Function):
    """A cross-entropy whose gradient is as exact as float32 allows.

    On the CPU torch's own adds up the 49,152 probabilities of a token one after the other: their sum was off by 2e-5, and the error of the
    hidden state's gradient was five times that of this function. `logsumexp` adds them up in pairs.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor) -> Tensor:
        """Compute the losses (N,) of ids (N,) from logits (N, V)."""
        total = logits.logsumexp(-1)
        ctx.save_for_backward(logits, total, ids)
        return total - logits.gather(-1, ids[:, None])[:, 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the logits."""
        logits, total, ids = ctx.saved_tensors
        gradient = (logits - total[:, None]).exp_()
        gradient[torch.arange(len(ids), device=ids.device), ids] -= 1
        return gradient.mul_(gradients[0][:, None]), None
