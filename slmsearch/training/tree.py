"""Rows of tokens as trees: the beginnings that rows share go through the model once, forward and backward.

A node is a token after one history; a run is the nodes that a row adds to those before it. Rows are sorted, so that nodes lie in preorder:
every run is contiguous, and so is a run with all runs below it. Linear layers go over all nodes at once. So does attention on a CUDA
device (`models/flex.py`); elsewhere it goes run by run, and one masked call takes several runs where that is cheaper (`plan_attention`).
Shapes: B rows, T tokens of a row, C tokens of its completion, N nodes, M rows of a tree, A needed tokens of a tree, P pairs, D hidden size.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from slmsearch.models.attention import ATTENTION, Call, Span
from slmsearch.models.flex import to_device, tree_mask
from slmsearch.training.block_sizes import CHECKED_TOKENS, TOKENS_PER_BLOCK
from slmsearch.training.losses import causal_of, token_losses

logger = logging.getLogger(__name__)

CALL_COST = 1 << 19
"""Cost of a call of attention beside its pairs of query and key, in pairs times heads times head size: 0.15 ms of a core."""
CLOSE, CLOSE_ON_AVERAGE = 1e-4, 5e-2
"""Largest differences of log-probabilities with which trees are used: the largest difference in float32, and the mean where weights are
rounded to fewer bits. SmolLM2 in bfloat16 had a mean of 0.012; a single token's differ by tenths, those of a wrong tree by several."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes of some rows."""

    ids: Tensor
    """(N,) token of each node."""
    depths: Tensor
    """(N,) position of each node in its rows."""
    nodes: tuple[NDArray[np.int64], ...]
    """(T,) for each row: the node of each of its tokens."""
    ancestry: "TreeAncestry"


class _Run(NamedTuple):
    """The nodes that a row adds."""

    first: int
    end: int
    depth: int
    """Depth of its first node."""
    history: tuple[Span, ...]


@dataclass(frozen=True)
class TreeAncestry:
    """The ancestors of every node of a tree, which it attends to; see `Ancestry`."""

    runs: tuple[_Run, ...]
    ends: NDArray[np.int64]
    """(N,) one past the last node below each node; for padding nodes of the tree, as if all were below the first of them."""
    width: int
    device: torch.device | str

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The runs, put into calls, and one call for the padding nodes."""
        count, nodes = self.runs[-1].end, len(self.ends)
        return (*plan_attention(self.runs, self.width, self.device), *([Call(count, nodes, (), None)] if nodes > count else []))

    @cached_property
    def mask(self) -> BlockMask:
        """The ancestors as a mask for one kernel."""
        return tree_mask(self.ends, self.device)


def build_trees(
    rows: Sequence[Sequence[int]], most: int, width: int, device: torch.device | str = "cpu", multiple: int = 1
) -> list[tuple[list[int], Tree]]:
    """Build the trees of rows of token ids, in blocks of at most `most` nodes; a longer row has a block of its own.

    Args:
        rows: none of them empty.
        most: nodes of a block.
        width: query heads times head size, from which the cost of a call of attention follows.
        device: where the tensors are made.
        multiple: each tree is padded to a multiple of it, with nodes that belong to no row.

    Returns:
        For each tree the indices of its rows, in order, and the tree.
    """
    arrays = [np.asarray(row, dtype=np.int64) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: tuple(rows[i]))
    shared = [0, *(_count_shared(arrays[a], arrays[b]) for a, b in pairwise(order))]  # of each row, with the row before it
    trees = []
    while order:
        # sizes[n]: nodes of a tree of the first n + 1 rows; the first row shares nothing with a tree before it.
        sizes = np.cumsum([len(arrays[i]) - (same if n else 0) for n, (i, same) in enumerate(zip(order, shared, strict=True))])
        end = int(np.searchsorted(sizes, most, side="right")) or 1
        if end < len(order):
            half = int(np.searchsorted(sizes, most // 2, side="right")) or 1
            end = min(range(half, end + 1), key=lambda n: (shared[n], -n))  # in the second half, where neighbours share least
        picked = order[:end]
        trees.append((picked, _build([arrays[i] for i in picked], shared[:end], width, device, multiple)))
        order, shared = order[end:], shared[end:]
    return trees


def _count_shared(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """Count the tokens at the beginning that two rows share."""
    length = min(len(a), len(b))
    different = np.flatnonzero(a[:length] != b[:length])  # rows have different lengths: the shorter may begin the longer
    return int(different[0]) if len(different) else length


def _build(rows: Sequence[NDArray[np.int64]], shared: Sequence[int], width: int, device: torch.device | str, multiple: int) -> Tree:
    nodes: list[NDArray[np.int64]] = []
    runs: list[_Run] = []
    count, path = 0, tuple[Span, ...]()
    total = sum(len(row) - same for row, same in zip(rows, [0, *shared[1:]], strict=True))
    filled = total + -total % multiple  # N: padding nodes have id 0, depth 0 and no row
    ids, depths, ends = np.zeros(filled, dtype=np.int64), np.zeros(filled, dtype=np.int64), np.full(filled, filled, dtype=np.int64)
    for row, same in zip(rows, [0, *shared[1:]], strict=True):
        new = len(row) - same
        own = np.arange(count, count + new)  # the run: new nodes, numbered in preorder
        nodes.append(np.concatenate([nodes[-1][:same], own]) if nodes else own)
        ends[nodes[-1]] = count + new  # all nodes of the row, ancestors included, reach to the end of this run
        path = _cut(path, same)
        if new:
            runs.append(_Run(count, count + new, same, path))
            path = (*path, (count, count + new))
        count += new
    for row, places in zip(rows, nodes, strict=True):
        ids[places], depths[places] = row, np.arange(len(row))
    return Tree(to_device(ids, device), to_device(depths, device), tuple(nodes), TreeAncestry(tuple(runs), ends, width, device))


def _cut(path: tuple[Span, ...], length: int) -> tuple[Span, ...]:
    """Keep the first nodes of a path."""
    kept = []
    for first, end in path:
        if length <= 0:
            break
        kept.append((first, min(end, first + length)))
        length -= end - first
    return tuple(kept)


def plan_attention(runs: Sequence[_Run], width: int, device: torch.device | str) -> list[Call]:
    """Put neighbouring runs into calls, with the least cost of computed pairs and calls, by dynamic programming.

    Args:
        runs: all runs of one tree, in order.
        width: query heads times head size.
        device: where the masks are made.
    """
    overhead, best, since = CALL_COST / width, [0.0], [0]  # best[n]: least cost of the first n runs; since[n]: start of their last call
    for end in range(1, len(runs) + 1):
        costs = []
        for first in range(end - 1, -1, -1):
            history, own = runs[first].depth, runs[end - 1].end - runs[first].first
            alone = first == end - 1  # causal over history and run without a mask, or a masked rectangle like several
            pairs = min((history + own) ** 2 / 2, own * (history + own)) if alone else own * (history + own)
            costs.append((best[first] + overhead + pairs, first))
            if not alone and pairs > best[end - 1] + overhead + own * own:  # longer calls only cost more
                break
        cost, first = min(costs)
        best.append(cost)
        since.append(first)
    calls, end = list[Call](), len(runs)
    while end:
        calls.append(_make_call(runs[since[end] : end], device))
        end = since[end]
    return calls[::-1]


def _make_call(runs: Sequence[_Run], device: torch.device | str) -> Call:
    first, end, history = runs[0].first, runs[-1].end, runs[0].history
    if len(runs) == 1 and runs[0].depth <= end - first:
        return Call(first, end, history, None)
    depth = runs[0].depth
    mask = torch.zeros(end - first, depth + end - first, dtype=torch.bool)  # (nodes, history + nodes)
    for run in runs:
        rows = slice(run.first - first, run.end - first)
        length = run.end - run.first
        for start, stop in run.history:
            if start >= first:
                mask[rows, depth + start - first : depth + stop - first] = True
        mask[rows, : min(depth, sum(stop - start for start, stop in run.history if start < first))] = True
        mask[rows, depth + run.first - first : depth + run.end - first] = torch.ones(length, length, dtype=torch.bool).tril()
    return Call(first, end, history, mask.to(device))


@dataclass(frozen=True, slots=True)
class ScoredTree:
    """Rows of a batch as a tree, with the tokens whose log-probabilities are needed; all on the host except the tree."""

    members: NDArray[np.int64]
    """(M,) index of each of its rows in the batch."""
    tree: Tree
    pairs: NDArray[np.int64]
    """(2, P) distinct pairs of a node and the token behind it."""
    place: NDArray[np.int64]
    """(A,) index of the pair that gives each needed token's log-probability."""
    rows: NDArray[np.int64]
    """(A,) row of each needed token: an index of `members`."""
    columns: NDArray[np.int64]
    """(A,) column of each needed token among the T."""


def plan_scoring(
    ids: NDArray[np.int64], real: NDArray[np.bool_], needed: NDArray[np.bool_], most: int, width: int, device: torch.device | str
) -> list[ScoredTree]:
    """Put the rows of a batch that have needed tokens into trees of at most `most` nodes; see `score_tree` and `build_trees`.

    Args:
        ids: (B, T).
        real: (B, T), False where padded.
        needed: (B, T).
        most: nodes of a tree.
        width, device: see `build_trees`.
    """
    rows, wanted, picked = [], [], np.flatnonzero(needed.any(1))
    for row in picked:
        own, asked = ids[row][real[row]], np.flatnonzero(needed[row][real[row]])  # without padding: indices into `own`, not columns
        rows.append(own[: asked[-1]])  # the last needed token is only predicted, so it needs no node
        wanted.append((asked, own[asked], np.flatnonzero(needed[row])))
    found = []
    for members, tree in build_trees(rows, most, width, device):
        parents = np.concatenate([tree.nodes[n][wanted[i][0] - 1] for n, i in enumerate(members)])
        targets = np.concatenate([wanted[i][1] for i in members])  # (A,), as `parents`: the node before a token predicts it
        pairs, place = np.unique(np.stack([parents, targets]), axis=1, return_inverse=True)  # P <= A
        columns = [wanted[i][2] for i in members]
        whose = np.repeat(np.arange(len(members)), [len(own) for own in columns])
        found.append(ScoredTree(picked[members], tree, pairs, place, whose, np.concatenate(columns)))
    return found


def score_tree(trainer: Any, model: Any, input_ids: Tensor, attention_mask: Tensor, needed: Tensor, completion_tokens: int) -> Tensor:
    """Compute log-probabilities of needed tokens over trees of the rows that have any.

    Args:
        trainer: TRL's; its temperature and autocast are used.
        model: as trained, with its wrappers.
        input_ids: (B, T), prompts padded on the left, completions on the right.
        attention_mask: (B, T), 0 where padded.
        needed: (B, T), True only for tokens of the last C.
        completion_tokens: C.

    Returns:
        (B, C); 0 for tokens that are not needed.
    """
    ids, real, needs = (tensor.cpu().numpy() for tensor in (input_ids, attention_mask.bool(), needed))  # waits for the card
    trees = plan_scoring(ids, real, needs, TOKENS_PER_BLOCK, attention_width(causal_of(model)), input_ids.device)
    return score_trees(trainer, model, trees, input_ids.shape)[:, -completion_tokens:]


def score_trees(trainer: Any, model: Any, trees: Sequence[ScoredTree], shape: Sequence[int]) -> Tensor:
    """Compute the needed log-probabilities of the trees of a batch; see `score_tree`.

    Args:
        trainer, model: see `score_tree`.
        trees: at least one.
        shape: (B, T) of the batch, which is the shape of the result.
    """
    causal = causal_of(model)
    device, values, row_at, column_at = trees[0].tree.ids.device, [], [], []
    for scored in trees:
        chosen = to_device(scored.pairs, device)
        with trainer.accelerator.autocast():
            hidden = tree_hidden(model, causal, scored.tree)
            losses = token_losses(causal, hidden[chosen[0]], chosen[1], trainer.temperature)  # hidden (N, D), losses (P,)
        values.append(-losses[to_device(scored.place, device)])
        row_at.append(scored.members[scored.rows])
        column_at.append(scored.columns)
    places = (to_device(np.concatenate(row_at), device), to_device(np.concatenate(column_at), device))
    logprobs = torch.cat(values)  # (A of all trees,)
    return logprobs.new_zeros(tuple(shape)).index_put(places, logprobs)


def attention_width(causal: Any) -> int:
    """Return a model's query heads times their size."""
    shape = causal.config.get_text_config()
    return int(shape.num_attention_heads * (getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads))


def tree_inputs(causal: Any, tree: Tree) -> dict[str, object]:
    """Return the arguments of a model's call that sends a tree through it."""
    return {
        "input_ids": tree.ids[None],
        "position_ids": tree.depths[None],
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=tree.ids.device),  # 4-d: transformers makes none
        "use_cache": False,
        "ancestry": tree.ancestry,
        "recomputed": _is_recomputed(causal),
    }


def _is_recomputed(causal: Any) -> bool:
    """Return whether layers are recomputed in the backward pass; transformers sets all alike, and asks a thousand modules each time."""
    return next((bool(module.gradient_checkpointing) for module in causal.modules() if hasattr(module, "gradient_checkpointing")), False)


def tree_hidden(model: Any, causal: Any, tree: Tree) -> Tensor:
    """Send a tree through the wrapped model, so that DDP notices; return the backbone's last hidden states (N, D).

    Args:
        model, causal: as trained, with and without its wrappers.
        tree: N nodes.
    """
    seen: list[Tensor] = []
    hook = causal.base_model.register_forward_hook(lambda module, inputs, output: seen.append(output.last_hidden_state))
    try:
        model(**tree_inputs(causal, tree), logits_to_keep=tree.depths[:1] * 0)  # by index: of a slice, heads copy bfloat16 weights
    finally:
        hook.remove()
    return seen[0][0]


@dataclass(frozen=True, slots=True)
class TreeCheck:
    """Difference between trees and rows on a batch."""

    difference: float
    """Difference of log-probabilities; infinite where the model cannot be sent trees."""
    passed: bool

    def as_json(self) -> dict[str, object]:
        """Return it as `trees.json` holds it; an infinite difference or NaN is null."""
        return {"difference": self.difference if math.isfinite(self.difference) else None, "used": self.passed}


@torch.no_grad()
def check_tree(trainer: Any, model: Any, input_ids: Tensor, attention_mask: Tensor, needed: Tensor, completion_tokens: int) -> TreeCheck:
    """Score rows of a batch over trees and one by one, and compare them.

    Args:
        trainer, model, input_ids, attention_mask, needed, completion_tokens: see `score_tree`.
    """
    causal, rows = causal_of(model), needed.any(1).nonzero()[:, 0]
    rows = rows[: max(2, CHECKED_TOKENS // int(attention_mask.sum(1).max()))]
    needed = needed[rows]
    arguments = (model, input_ids[rows], attention_mask[rows], needed, completion_tokens)
    exact = causal.dtype == torch.float32 and not getattr(causal, "is_quantized", False)

    def measure() -> float:
        gaps = (score_tree(trainer, *arguments) - trainer.score_rows(*arguments)[0]).abs()
        return float(gaps.max() if exact else gaps.sum() / needed.sum().clamp(min=1))

    return compare(causal, measure, exact)


def compare(causal: Any, measure: Callable[[], float], exact: bool) -> TreeCheck:
    """Return by how much log-probabilities over trees differ, and whether trees may be used; see `CLOSE`.

    Args:
        causal: the unwrapped model.
        measure: computes the difference.
        exact: the weights are float32.
    """
    difference, why = math.inf, f"its attention is {causal.config._attn_implementation}"
    if causal.config._attn_implementation == ATTENTION:
        try:
            difference = measure()
            why = f"log-probabilities differ by {difference:.2g}"
        except (NotImplementedError, TypeError, ValueError) as error:
            why = str(error)
    passed = difference <= (CLOSE if exact else CLOSE_ON_AVERAGE)  # False for NaN
    if not passed:
        logger.warning("updates go row by row, which is slower: this model scores trees of tokens differently (%s)", why)
    return TreeCheck(difference, passed)
