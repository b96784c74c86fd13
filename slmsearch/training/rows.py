"""Rows of a batch that go through the model one by one: which rows need it, in which blocks, and where their values belong.

Shapes: B rows, T tokens of a row.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from slmsearch.training.block_sizes import ROWS_PER_BLOCK, SHORT, TOKENS_PER_BLOCK
from slmsearch.training.encoding import IGNORED


def split_blocks(picked: list[int], attention_mask: Tensor) -> list[Tensor]:
    """Split rows, sorted by length, into blocks; all on the CPU."""
    blocks: list[list[int]] = [[]]
    for row, length in zip(picked, attention_mask[picked].sum(1).tolist(), strict=True):
        if len(blocks[-1]) >= (ROWS_PER_BLOCK if length <= SHORT else max(1, TOKENS_PER_BLOCK // length)):
            blocks.append([])
        blocks[-1].append(row)
    return [torch.tensor(block) for block in blocks]


def only_needed(model: Any, needed: Tensor) -> Callable[..., Any]:
    """Wrap a model so that labels of tokens that are not needed are ignored."""
    return lambda *, labels, **inputs: model(labels=labels.masked_fill(~needed, IGNORED), **inputs)


def find_distinct(input_ids: Tensor, attention_mask: Tensor, needed: Tensor) -> tuple[list[int], Tensor]:
    """Pick the rows to compute: those with needed tokens, one of each kind, in order of length.

    Returns:
        Indices of the rows to compute, and for every row its position among them; one past the end for rows left out.
    """
    # Equal rows need the same tokens: a group's equal episodes have equal rewards.
    rows = torch.cat([input_ids.masked_fill(attention_mask == 0, -1), needed.long()], dim=1).tolist()
    lengths = attention_mask.sum(1).tolist()
    first: dict[tuple[int, ...], int] = {}
    for i in sorted(needed.any(1).nonzero()[:, 0].tolist(), key=lambda i: lengths[i]):
        first.setdefault(tuple(rows[i]), i)
    picked = list(first.values())
    position = {row: n for n, row in enumerate(first)}
    place = [position.get(tuple(row), len(picked)) for row in rows]
    return picked, torch.tensor(place, device=input_ids.device)


def spread_values(blocks: Sequence[Tensor | None], place: Tensor) -> Tensor | None:
    """Copy the values of the computed rows to all rows that are equal to them; rows left out are 0."""
    present = [block for block in blocks if block is not None]
    if not present:
        return None
    values = torch.cat(present)
    return torch.cat([values, values.new_zeros(1, values.shape[1])])[place]
