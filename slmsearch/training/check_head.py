"""Check, before the first update, that supervised training computes the logits that the model computes.

Shapes: T tokens.
"""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from slmsearch.errors import ModelError
from slmsearch.training.losses import token_losses

CHECKED_IDS = 16
"""Number of ids whose losses are compared."""
CLOSE_FRAC = 0.1
"""Largest difference, as a share of the spread of the losses: bfloat16 stays below, and a scale that is not applied is far above."""


@torch.no_grad()
def check_head(causal: Any, accelerator: Any) -> None:
    """Compare `token_losses` with the losses of a model's own logits.

    Args:
        causal: the causal language model below its wrappers; it is left in evaluation mode.
        accelerator: the trainer's, whose autocast is used.

    Raises:
        ModelError: they differ.
    """
    causal.eval()
    ids = torch.arange(CHECKED_IDS, device=causal.device)  # (T,)
    with accelerator.autocast():
        hidden = causal.base_model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
        own = cross_entropy(causal(input_ids=ids[None], use_cache=False).logits[0, :-1].float(), ids[1:], reduction="none")
        gap = torch.dist(token_losses(causal, hidden[:-1], ids[1:]), own)
    if not gap <= CLOSE_FRAC * torch.dist(own, own.mean()):
        kind = causal.config.model_type
        raise ModelError(f"supervised training does not know how models of type {kind} scale their logits: choose another policy.model")
