"""Losses of tokens from hidden states, computed where they are needed.

Shapes: N tokens, D hidden size.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from slmsearch.learn.memory import TILE_VALUES


def causal_of(model: Any) -> Any:
    """Return the causal language model below the wrappers of accelerate and PEFT."""
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def token_losses(causal: Any, hidden: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute the cross-entropy of tokens from the hidden states before them, no more than `TILE_VALUES` logits at a time.

    Where there are several tiles their logits are not kept but computed again on the way back.

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
        return cross_entropy(logits / temperature if temperature != 1.0 else logits, ids, reduction="none")

    rows = max(1, TILE_VALUES // settings.vocab_size)
    if len(targets) <= rows:
        return compute(hidden, targets)
    tiles = zip(hidden.split(rows), targets.split(rows), strict=True)
    return torch.cat([checkpoint(compute, states, ids, use_reentrant=False) for states, ids in tiles])
