"""Attention over a tree of tokens in one kernel: torch's flex attention, on devices that it is compiled for.

Nodes lie in preorder, so that the nodes below a node are contiguous: a node attends to another one if it lies between that one and the end
of the nodes below it. A mask skips some blocks of nodes, takes others whole, and tests only the rest node by node. The host makes the
masks, and the number of nodes is padded to a power of two, so that a few kernels serve all trees.

Shapes: H query heads, K key heads, N nodes, D head size.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

from slmsearch.foreign import cause_of

logger = logging.getLogger(__name__)

COMPILED_ON = {"cuda"}
"""Types of devices on which trees use this attention: flex attention has no backward pass on a CPU."""
BLOCK = 128
"""Nodes of a block of the mask."""
FEWEST = 1024
"""Smallest number of nodes that a tree is padded to."""
KERNELS = 64
"""Number of compiled forms that torch may keep: five or six sizes, with and without gradient, of a few models and dtypes; its own limit is
8."""


def filled_up(nodes: int) -> int:
    """Return the number of nodes that a tree of `nodes` nodes is padded to."""
    return max(FEWEST, 1 << (nodes - 1).bit_length())


def to_device(array: NDArray[Any], device: torch.device | str) -> Tensor:
    """Copy an array to a device; on a CUDA device the host does not wait for the copy."""
    tensor = torch.from_numpy(array)
    waits = torch.device(device).type != "cuda"
    return tensor.to(device) if waits else tensor.pin_memory().to(device, non_blocking=True)


def tree_mask(ends: NDArray[np.int64], device: torch.device | str) -> BlockMask:
    """Make the mask of a tree from the end of the nodes below each node (N,); padding nodes attend to themselves."""
    nodes = filled_up(len(ends))
    whole = np.concatenate([ends, np.arange(len(ends) + 1, nodes + 1)]).astype(np.int32)
    blocks = nodes // BLOCK
    firsts, by_block = np.arange(blocks) * BLOCK, whole.reshape(blocks, BLOCK)
    before = np.tri(blocks, k=-1, dtype=bool)  # rows are blocks of queries
    full = before & (by_block.min(1) >= firsts[:, None] + BLOCK)
    part = (before & (by_block.max(1) > firsts[:, None]) & ~full) | np.eye(blocks, dtype=bool)
    counts = np.stack([part.sum(1), full.sum(1)])
    order = np.stack([np.argsort(~kind, axis=1, kind="stable") for kind in (part, full)])
    packed = to_device(np.concatenate([whole, counts.ravel(), order.ravel()]).astype(np.int32), device)  # one copy
    last, counted, ordered = packed.split([nodes, counts.size, order.size])
    (parts, fulls), (part_at, full_at) = counted.view(2, 1, 1, blocks), ordered.view(2, 1, 1, blocks, blocks)

    def is_above(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        below: Tensor = (key <= query) & (query < last[key])
        return below

    return BlockMask.from_kv_blocks(parts, part_at, fulls, full_at, BLOCK_SIZE=BLOCK, mask_mod=is_above, seq_lengths=(nodes, nodes))


def attend_flex(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float) -> Tensor:
    """Attend with query (H, N, D), key and value (K, N, D) under a mask of at least N nodes; return (H, N, D)."""
    nodes, filled = query.shape[1], mask.seq_lengths[0] - query.shape[1]
    inputs = [pad(tensor.to(_dtype(value)), (0, 0, 0, filled))[None] for tensor in (query, key, value)]
    with torch._dynamo.config.patch(recompile_limit=KERNELS):
        attended = _kernel(query.device.type)(*inputs, block_mask=mask, scale=scale, enable_gqa=len(query) != len(key))
    own: Tensor = attended[0, :, :nodes]
    return own


def takes_flex(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether flex attention supports such tensors, forward and backward; if not, log the reason once."""
    if query.device.type not in COMPILED_ON:
        return False
    return _why_not(query.device, _dtype(value), len(query), len(key), query.shape[-1]) is None


def _dtype(value: Tensor) -> torch.dtype:
    """Return the dtype to attend in: that of autocast, as for torch's other attention, or the values' own."""
    kind = value.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else value.dtype


@cache
def _kernel(kind: str) -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


@cache
def _why_not(device: torch.device, dtype: torch.dtype, heads: int, key_heads: int, size: int) -> str | None:
    """Try the smallest tree, forward and backward; return the error, or None."""
    try:
        with torch.enable_grad(), torch.autocast(device.type, enabled=False):
            query, key, value = (
                torch.zeros(count, 1, size, dtype=dtype, device=device).requires_grad_() for count in (heads, key_heads, key_heads)
            )
            attend_flex(query, key, value, tree_mask(np.ones(1, dtype=np.int64), device), 1.0).sum().backward()
    except Exception as error:  # the compiler, its back end and the C compiler raise errors of their own
        why = f"flex attention does not take {heads} heads of {size} ({key_heads} of keys) in {dtype} here: {cause_of(error)}"
        logger.warning("updates over trees make one call of attention a branch, which is slower on a card: %s", why)
        return why
    return None
