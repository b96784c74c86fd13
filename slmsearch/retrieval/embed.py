"""Interface of embedders, which turn text into vectors, and the cache of query vectors.

This module imports nothing heavy. A local model is identified at once (`id`, `revision`: for an index key), but loaded for the first text.
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vectors: TypeAlias = NDArray[np.float32]
"""Vectors of unit length, one per row."""

Precision = Literal["float32", "bfloat16"]
"""Number format of the weights that encode passages."""

Progress = Callable[[int, int], None]
"""Function called with the number of items done and their total."""

REMEMBERED_QUERIES = 20_000
"""Number of query vectors cached in memory: 30 MB at 384 dimensions. Training repeats the same queries."""


class Embedder(ABC):
    """Embedder of texts as float32 vectors of unit length; it encodes each distinct query once."""

    id: str
    """Name of the model, independent of its location."""
    revision: str
    """Revision of the model: the weights' sha256 if they are on this machine."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = threading.Lock()

    @cached_property
    def dimension(self) -> int:
        """Length of a vector."""
        raise NotImplementedError

    @abstractmethod
    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Encode passages, `[n, dimension]`.

        Raises:
            EmbedderError: the model cannot be loaded, or the endpoint gave no valid answer.
        """

    @abstractmethod
    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode distinct, valid texts, each independent of the others."""

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode queries, recent ones from the cache; a query's vector does not depend on the other queries.

        Raises:
            EmbedderError: as for `encode`.
        """
        texts = [valid_text(text) for text in texts]
        with self._lock:
            found = {text: self._known[text] for text in texts if text in self._known}
            new = list(dict.fromkeys(text for text in texts if text not in found))
            if new:
                found.update(zip(new, self._encode_new_queries(new), strict=True))
            for text, vector in found.items():
                self._known[text] = vector
                self._known.move_to_end(text)
            while len(self._known) > REMEMBERED_QUERIES:
                self._known.popitem(last=False)
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        return np.stack([found[text] for text in texts])


def valid_text(text: str) -> str:
    """Replace lone surrogates, which a policy may write as an escape, UTF-8 cannot encode and tokenisers refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")
