"""An update's batch, cut into parts of a limited number of nodes; each part goes forward and backward before the next.

Memory then holds the activations of one part, however long the episodes of a step are. The larger a part is, the fewer kernels the host
has to launch for the same tokens, and the faster are products on a CPU (`memory.fit_nodes`). Gradients change only by the order of sums:
the loss is a sum over tokens. Shapes: B rows, T tokens of a row, C tokens of its completion.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from slmsearch.models.flex import to_device
from slmsearch.training.losses import causal_of
from slmsearch.training.tree import ScoredTree, attention_width, plan_scoring

Part = tuple[Tensor, list[ScoredTree] | None]
"""Indices of rows of the batch, and their tree, whose members are these rows; None: they are scored row by row."""


def lay_out(inputs: Mapping[str, Tensor], needed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Put prompts and completions side by side: ids, 1 where they are real, and which tokens are needed, each (B, T)."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    real = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    # needed (B, C) -> (B, T): prompt tokens are never needed
    return ids, real, pad(needed, (inputs["prompt_ids"].shape[1], 0))


def cut_batch(model: Any, ids: Tensor, real: Tensor, needed: Tensor, most: int, over_trees: bool) -> Iterator[Part]:
    """Cut the rows that have needed tokens into parts of at most `most` nodes, or tokens; a longer row is a part of its own.

    Args:
        model: as trained.
        ids: (B, T).
        real: (B, T), 0 where padded.
        needed: (B, T).
        most: nodes of a part.
        over_trees: parts are trees.
    """
    device = ids.device
    places, are_real, needs = (tensor.cpu().numpy() for tensor in (ids, real.bool(), needed))  # the host waits for the card only here
    if over_trees:
        for scored in plan_scoring(places, are_real, needs, most, attention_width(causal_of(model)), device):
            yield to_device(scored.members, device), [replace(scored, members=np.arange(len(scored.members)))]
        return
    lengths, rows = are_real.sum(1), np.flatnonzero(needs.any(1))  # (B,); row indices
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    while len(rows):
        count = max(1, int(np.searchsorted(lengths[rows].cumsum(), most, side="right")))
        yield to_device(rows[:count].copy(), device), None
        rows = rows[count:]


class Unheard:
    """An accelerator that gathers nothing.

    Between forward and backward pass TRL's loss measures how often it clipped. The project does not use that number, and the host would
    wait for the card each time.
    """

    def __init__(self, accelerator: Any) -> None:
        """Stand in for an accelerator."""
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        """Return the accelerator's attribute."""
        return getattr(self._accelerator, name)

    def gather(self, tensor: Tensor) -> Tensor:
        """Return NaN, on the host."""
        return torch.full(tensor.shape, float("nan"))

    def reduce(self, tensor: Tensor, reduction: str) -> Tensor:
        """Return NaN, on the host."""
        return torch.full(tensor.shape, float("nan"))
