"""A key-value cache whose lines have lengths of their own, and can be forked and moved.

transformers' `DynamicCache` copies everything it holds for every token that is added. Here a layer writes into buffers that have room to
spare. Every line begins at the first column, so that to forget its last tokens, or those of a line that is not needed any more, means to
forget a number. Columns behind a line's length hold what does not matter, as far as any line was ever written; never what is not a number.

Shapes: L lines, S lines of a forward pass, N new tokens, K key heads, C columns, D head size.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from slmsearch.processes.processor import trim_heap

COLUMNS, COLUMNS_TO_STAY = 64, 256
"""Columns are allocated in multiples of this, and where buffers are to stay in multiples of that."""
LARGE_BYTES = 100e6
"""Size of buffers from which on a CPU's memory that was moved from is given back: an evaluation held half as much again as it used."""


class LineCache(Cache):
    """Keys and values of lines, in buffers of L x K x C x D for every layer."""

    def __init__(self, device: torch.device, most: int, fixed: bool = False) -> None:
        """Start empty; there will never be more than `most` lines. A `fixed` cache has room for all of them from the start."""
        super().__init__(layer_class_to_replicate=DynamicLayer)
        self.lengths: list[int] = []
        """Tokens of each line."""
        self.device, self.moves = device, 0
        """Where the buffers are, and how often they were moved."""
        self._most, self._fixed = most, fixed
        self._buffers: list[tuple[Tensor, Tensor]] = []
        self._room = (0, 0)
        """Lines and columns of the buffers."""
        self._lines = torch.empty(0, dtype=torch.long)
        self._rows: Tensor | slice = slice(0)
        """Lines of the forward pass, and the same as a slice where they are the first ones."""
        self._columns, self._at = torch.empty(0, dtype=torch.long), dict[int, Tensor]()
        """Where its new keys go: columns (S x N), and by K the rows of a flat buffer (S * K * N)."""
        self._width = 0
        """Columns that it attends to, or passes over."""
        self._written = 0
        """Columns up to which every line holds numbers."""

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(tensor.nbytes for tensors in self._buffers for tensor in tensors)

    def restart(self, most: int) -> None:
        """Forget all lines, and keep the buffers; there will be at most so many lines."""
        self.lengths, self._most = [], most

    def add(self, lines: int) -> None:
        """Append empty lines."""
        self.lengths += [0] * lines

    def begin(self, lines: Sequence[int], counts: Sequence[int], new: int) -> tuple[Tensor, Tensor]:
        """Prepare a forward pass that feeds so many tokens to each of these lines, padded on the left to `new` columns.

        The lines grow by them at once.

        Returns:
            Positions of the new columns' tokens in their lines (S x N), and what each may attend to (S x 1 x N x columns).
        """
        given, before = np.asarray(counts)[:, None], np.array([self.lengths[line] for line in lines])[:, None]
        # What pads goes behind the line's new end, where the next token overwrites it.
        columns = before + (np.arange(new) - new + given) % new
        self._width = int(before.max()) + new
        self.reserve(len(self.lengths), self._width)
        self.fill(self._width)
        is_first = list(lines) == list(range(len(lines)))
        self._lines = torch.tensor(list(lines), device=self.device)
        self._rows = slice(len(lines)) if is_first else self._lines
        self._columns, self._at = torch.as_tensor(columns, device=self.device), {}
        for line, count in zip(lines, counts, strict=True):
            self.lengths[line] += count
        seen = torch.arange(self._width, device=self.device) <= self._columns[:, None, :, None]  # made where it is read: it is large
        positions = np.minimum(columns, np.maximum(before + given - 1, 0))
        return torch.as_tensor(positions, device=self.device), seen

    def begin_step(self, lengths: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Prepare a pass that feeds a token to each of the first S lines, whose lengths (S) are on the device: the host waits for nothing.

        Columns up to `width` must be filled. Lines do not grow by it.

        Returns:
            Positions (S x 1), and what each token may attend to (S x 1 x 1 x width).
        """
        self._width, self._columns, self._at = width, lengths[:, None], {}
        self._lines, self._rows = torch.arange(len(lengths), device=self.device), slice(len(lengths))
        seen = torch.arange(width, device=self.device) <= lengths[:, None, None, None]
        return self._columns, seen

    def fill(self, columns: int) -> int:
        """Let all lines hold numbers up to a column, or to the last there is; return it."""
        columns = min(columns, self._room[1])
        if columns > self._written:
            for tensors in self._buffers:
                for tensor in tensors:
                    tensor[:, :, self._written : columns] = 0
            self._written = columns
        return columns

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values (S x K x N x D); return those of the lines of this pass. See `Cache.update`."""
        new = (key_states, value_states)
        if layer_idx == len(self._buffers):
            lines, columns = self._room
            made = [states.new_empty((lines, states.shape[1], columns, states.shape[3])) for states in new]
            for tensor in made:
                tensor[:, :, : self._width] = 0
            self._buffers.append((made[0], made[1]))
        keys, values = self._buffers[layer_idx]
        at = self._at.get(keys.shape[1])
        if at is None:
            rows = self._lines[:, None] * keys.shape[1] + torch.arange(keys.shape[1], device=self.device)
            at = self._at[keys.shape[1]] = (rows[:, :, None] * keys.shape[2] + self._columns[:, None]).flatten()
        for tensor, states in zip((keys, values), new, strict=True):
            tensor.flatten(0, 2).index_copy_(0, at, states.flatten(0, 2))
        return keys[self._rows, :, : self._width], values[self._rows, :, : self._width]

    def fork(self, parents: Sequence[int], lengths: Sequence[int], used: Collection[int]) -> list[int]:
        """Copy the first tokens of each of the given lines, over lines that are not used where there are any; return the copies."""
        idle = [line for line in range(len(self.lengths)) if line not in used]
        new = [*idle, *range(len(self.lengths), len(self.lengths) + len(parents))][: len(parents)]
        self.add(max(0, len(parents) - len(idle)))
        self.reserve(len(self.lengths), max(lengths))
        self._copy(parents, new)
        for line in idle:
            self.lengths[line] = 0
        for line, length in zip(new, lengths, strict=True):
            self.lengths[line] = length
        return new

    def swap(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Let lines change places."""
        if not pairs:
            return
        there = [line for pair in pairs for line in pair]
        here = [line for pair in pairs for line in reversed(pair)]
        lengths = [self.lengths[line] for line in here]
        self._copy(here, there)
        for line, length in zip(there, lengths, strict=True):
            self.lengths[line] = length

    def _copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        taken, put = (torch.tensor(list(lines), device=self.device) for lines in (sources, targets))
        for tensors in self._buffers:
            for tensor in tensors:
                tensor[put, :, : self._written] = tensor[taken, :, : self._written]

    def reserve(self, lines: int, columns: int) -> None:
        """Move to larger buffers if so many lines or columns do not fit; twice as many lines where there may be so many."""
        has_lines, has_columns = self._room
        lines = max(lines, self._most) if self._fixed else lines
        if lines <= has_lines and columns <= has_columns:
            return
        self.moves += 1
        if lines > has_lines:
            lines = max(lines, min(2 * has_lines, self._most))
        unit = COLUMNS_TO_STAY if self._fixed else COLUMNS
        self._room = (max(lines, has_lines), max(has_columns, -(-columns // unit) * unit))
        trims = self.device.type == "cpu" and self.nbytes > LARGE_BYTES
        for layer, tensors in enumerate(self._buffers):
            moved = []
            for tensor in tensors:
                larger = tensor.new_empty((self._room[0], tensor.shape[1], self._room[1], tensor.shape[3]))
                larger[:has_lines, :, : self._written] = tensor[:, :, : self._written]
                larger[has_lines:, :, : self._written] = 0
                moved.append(larger)
            self._buffers[layer] = (moved[0], moved[1])
            if trims:
                trim_heap()  # what was moved from is in pieces too small for what comes next
