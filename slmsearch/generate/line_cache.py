"""A key-value cache whose lines can be forked, dropped and squeezed.

transformers' `DynamicCache` copies everything it holds for every token that is added. Here a layer writes into buffers that have
room to spare, and hands out views of their used part.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

COLUMNS = 64
"""Columns are allocated in multiples of this."""


class LineLayer(DynamicLayer):
    """One layer: keys and values of `lines` x heads x columns x head size, in buffers that may be larger."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append columns to every line; see `CacheLayerMixin.update`."""
        if self.keys is None or self.values is None:
            self.dtype, self.device = key_states.dtype, key_states.device
            self.is_initialized = True
            self._hold(key_states, value_states)
        else:
            width = self.keys.shape[2]
            self._reserve(self.keys.shape[0], width + key_states.shape[2])
            self._show(self.keys.shape[0], width + key_states.shape[2])
            self.keys[:, :, width:], self.values[:, :, width:] = key_states, value_states
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def fork(self, parents: Tensor, most: int) -> None:
        """Append a copy of each of the lines `parents`; there will never be more than `most` lines."""
        assert self.keys is not None and self.values is not None
        lines, _, width, _ = self.keys.shape
        self._reserve(lines + len(parents), width, most)
        self._show(lines + len(parents), width)
        self.keys[lines:], self.values[lines:] = self.keys[parents], self.values[parents]

    def arrange(self, lines: Tensor, columns: Tensor) -> None:
        """Keep the given lines, in this order, and of each the given columns (lines x columns)."""
        assert self.keys is not None and self.values is not None
        index = columns[:, None, :, None].expand(-1, self.keys.shape[1], -1, self.keys.shape[3])
        self._hold(self.keys[lines].gather(2, index), self.values[lines].gather(2, index))

    def _hold(self, keys: Tensor, values: Tensor) -> None:
        """Take these as the content, in new buffers with room for more columns."""
        lines, heads, width, size = keys.shape
        room = -(-(width + 1) // COLUMNS) * COLUMNS
        self._key_buffer, self._value_buffer = keys.new_empty(lines, heads, room, size), values.new_empty(lines, heads, room, size)
        self._show(lines, width)
        self.keys[:], self.values[:] = keys, values  # type: ignore[index]

    def _reserve(self, lines: int, width: int, most: int = 0) -> None:
        """Move to larger buffers if so many lines or columns do not fit; twice as many lines where there may be so many."""
        most_lines, heads, most_columns, size = self._key_buffer.shape
        if lines <= most_lines and width <= most_columns:
            return
        assert self.keys is not None and self.values is not None
        keys, values = self.keys, self.values
        lines = lines if lines <= most_lines else max(lines, min(2 * most_lines, most))
        shape = (max(lines, most_lines), heads, -(-max(width, most_columns) // COLUMNS) * COLUMNS, size)
        self._key_buffer, self._value_buffer = keys.new_empty(shape), values.new_empty(shape)
        self._show(keys.shape[0], keys.shape[2])
        self.keys[:], self.values[:] = keys, values

    def _show(self, lines: int, width: int) -> None:
        self.keys, self.values = self._key_buffer[:lines, :, :width], self._value_buffer[:lines, :, :width]


class LineCache(Cache):
    """A cache of `LineLayer`s, and which of its columns each line uses."""

    def __init__(self, lines: int, device: torch.device, most: int) -> None:
        """Start with so many empty lines; there will never be more than `most`."""
        super().__init__(layer_class_to_replicate=LineLayer)
        self._most = most
        self.mask = torch.zeros(lines, 0, dtype=torch.bool, device=device)
        """True where a column holds a token of the line (lines x columns)."""

    def append(self, real: Tensor) -> Tensor:
        """Note the columns that the next forward pass adds.

        Args:
            real: True where a line gets a token (lines x new).

        Returns:
            Positions of the new columns' tokens in their lines (lines x new).
        """
        positions = (self.mask.sum(1, keepdim=True) + real.cumsum(1) - 1).clamp(min=0)
        self.mask = torch.cat([self.mask, real], dim=1)
        return positions

    def fork(self, parents: list[int]) -> None:
        """Append a copy of each of the given lines."""
        chosen = torch.tensor(parents, device=self.mask.device)
        self.mask = torch.cat([self.mask, self.mask[chosen]])
        for layer in self._line_layers():
            layer.fork(chosen, self._most)

    def arrange(self, lines: list[int]) -> None:
        """Keep the given lines, in this order, and squeeze out the columns that none of them uses."""
        chosen = torch.tensor(lines, device=self.mask.device)
        mask = self.mask[chosen]
        # A stable sort by "used" keeps the order of a line's columns and moves them to the right end; positions were fixed when the
        # columns were computed.
        columns = mask.to(torch.uint8).argsort(dim=1, stable=True)[:, -int(mask.sum(1).max()) :]
        self.mask = mask.gather(1, columns)
        for layer in self._line_layers():
            layer.arrange(chosen, columns)

    def _line_layers(self) -> list[LineLayer]:
        return [layer for layer in self.layers if isinstance(layer, LineLayer)]
