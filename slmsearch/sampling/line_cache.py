"""A key-value cache whose lines (cache slots) have lengths of their own, and can be forked and moved.

transformers' `DynamicCache` copies everything it holds for every added token. Here a layer writes into buffers with spare columns. Every
line begins at the first column. To forget a line, or its last tokens, the cache only changes its length. Columns behind a line's length
hold arbitrary finite numbers, up to the last column that any line was written to; never NaN or infinity.

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
"""Unit in which columns are allocated, and the unit of buffers that should not move."""
LARGE_BYTES = 100e6
"""Size of buffers above which memory freed on a CPU is returned to the system: an evaluation held half as much again as it used."""


class LineCache(Cache):
    """Keys and values of lines, in buffers (L, K, C, D) for every layer."""

    def __init__(self, device: torch.device, most: int, fixed: bool = False) -> None:
        """Start empty.

        Args:
            device: where the buffers are kept.
            most: lines, at most.
            fixed: allocate all lines from the start, so that the buffers seldom move.
        """
        super().__init__(layer_class_to_replicate=DynamicLayer)
        self.lengths: list[int] = []
        """Tokens of each line."""
        self.device, self.moves = device, 0
        """Device of the buffers, and how often they were moved."""
        self._most, self.fixed = most, fixed
        self._buffers: list[tuple[Tensor, Tensor]] = []
        self._room = (0, 0)
        """Lines and columns of the buffers."""
        self._lines = torch.empty(0, dtype=torch.long)
        self._rows: Tensor | slice = slice(0)
        """Lines of the forward pass, and the same as a slice where they are the first ones."""
        self._columns, self._at = torch.empty(0, dtype=torch.long), dict[int, Tensor]()
        """Targets of its new keys: columns (S, N), and by K the row numbers of a flat buffer (S * K * N,)."""
        self._width = 0
        """Columns that the pass attends to, or skips."""
        self._written = 0
        """Columns up to which every line holds numbers."""

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(tensor.nbytes for tensors in self._buffers for tensor in tensors)

    def restart(self, most: int) -> None:
        """Forget all lines and keep the buffers; from now on there are at most `most` lines."""
        self.lengths, self._most = [], most

    def add(self, lines: int) -> None:
        """Append empty lines."""
        self.lengths += [0] * lines

    def begin(self, lines: Sequence[int], counts: Sequence[int], new: int) -> tuple[Tensor, Tensor]:
        """Prepare a forward pass that feeds tokens to lines, padded on the left to `new` columns. The lines grow at once.

        Args:
            lines: S lines.
            counts: tokens for each of them.
            new: N, at least the largest count.

        Returns:
            Positions of the new tokens (S, N), and which columns each may attend to (S, 1, N, width), bool.
        """
        # (S, 1) each: tokens fed to a line, and tokens that it held.
        given, before = np.asarray(counts)[:, None], np.array([self.lengths[line] for line in lines])[:, None]
        # (S, N): padding goes behind the line's new end, where the next token overwrites it.
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
        seen = torch.arange(self._width, device=self.device) <= self._columns[:, None, :, None]  # (S, 1, N, width), large
        positions = np.minimum(columns, np.maximum(before + given - 1, 0))  # (S, N): padding repeats the last token's position
        return torch.as_tensor(positions, device=self.device), seen

    def begin_step(self, lengths: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Prepare a pass of one token for each of the first S lines; their lengths (S,) stay on the device, so that the host need not wait.

        Columns up to `width` must be filled. The lines do not grow.

        Returns:
            Positions (S, 1), and which columns each token may attend to (S, 1, 1, width), bool.
        """
        self._width, self._columns, self._at = width, lengths[:, None], {}
        self._lines, self._rows = torch.arange(len(lengths), device=self.device), slice(len(lengths))
        seen = torch.arange(width, device=self.device) <= lengths[:, None, None, None]  # its own column included
        return self._columns, seen

    def fill(self, columns: int) -> int:
        """Fill all lines with zeros from where they hold no numbers up to a column, or to the last one; return that column."""
        columns = min(columns, self._room[1])
        if columns > self._written:
            for tensors in self._buffers:
                for tensor in tensors:
                    tensor[:, :, self._written : columns] = 0
            self._written = columns
        return columns

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values; see `Cache.update`.

        Args:
            key_states: (S, K, N, D).
            value_states: (S, K, N, D).
            layer_idx: number of the layer, from 0.
            args, kwargs: of `Cache.update`, ignored.

        Returns:
            Keys and values of the lines of this pass, (S, K, width, D) each.
        """
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
            rows = self._lines[:, None] * keys.shape[1] + torch.arange(keys.shape[1], device=self.device)  # (S, K)
            at = self._at[keys.shape[1]] = (rows[:, :, None] * keys.shape[2] + self._columns[:, None]).flatten()
        for tensor, states in zip((keys, values), new, strict=True):
            tensor.flatten(0, 2).index_copy_(0, at, states.flatten(0, 2))  # (L * K * C, D), a view, takes (S * K * N, D)
        return keys[self._rows, :, : self._width], values[self._rows, :, : self._width]

    def fork(self, parents: Sequence[int], lengths: Sequence[int], used: Collection[int]) -> list[int]:
        """Copy the beginnings of lines; overwrite unused lines first.

        Args:
            parents: lines to copy.
            lengths: tokens of each copy.
            used: lines that are still needed.

        Returns:
            The line of each copy.
        """
        idle = [line for line in range(len(self.lengths)) if line not in used]
        new = [*idle, *range(len(self.lengths), len(self.lengths) + len(parents))][: len(parents)]
        self.add(max(0, len(parents) - len(idle)))
        self.reserve(len(self.lengths), max(lengths))
        self._copy(parents, new, max(lengths))
        for line in idle:
            self.lengths[line] = 0
        for line, length in zip(new, lengths, strict=True):
            self.lengths[line] = length
        return new

    def swap(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Swap the lines of each pair."""
        if not pairs:
            return
        there = [line for pair in pairs for line in pair]
        here = [line for pair in pairs for line in reversed(pair)]
        lengths = [self.lengths[line] for line in here]
        self._copy(here, there, max(lengths))
        for line, length in zip(there, lengths, strict=True):
            self.lengths[line] = length

    def _copy(self, sources: Sequence[int], targets: Sequence[int], columns: int) -> None:
        taken, put = (torch.tensor(list(lines), device=self.device) for lines in (sources, targets))
        for tensors in self._buffers:
            for tensor in tensors:
                tensor[put, :, :columns] = tensor[taken, :, :columns]  # read whole before it is written: swaps work

    def reserve(self, lines: int, columns: int) -> None:
        """Move to larger buffers if `lines` or `columns` do not fit; lines double, as far as the maximum allows."""
        has_lines, has_columns = self._room
        lines = max(lines, self._most) if self.fixed else lines
        if lines <= has_lines and columns <= has_columns:
            return
        self.moves += 1
        if lines > has_lines:
            lines = max(lines, min(2 * has_lines, self._most))
        unit = COLUMNS_TO_STAY if self.fixed else COLUMNS
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
                trim_heap()  # the freed pieces are too small for the next layer's buffers
