"""What turns text into vectors: the interface, and the memory of queries seen.

Nothing heavy is imported here. A local model is found and named (`id`, `revision`) at once, so that an index key can be
made, but loaded only when the first text is encoded.
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
"""One vector of unit length per row."""

Precision = Literal["float32", "bfloat16"]
"""Of the weights that encode passages."""

Progress = Callable[[int, int], None]
"""Called with the number of items done and their total."""

REMEMBERED_QUERIES = 20_000
"""Query vectors kept in memory: 30 MB at 384 dimensions. Training asks the same queries again and again."""


class Embedder(ABC):
    """Maps texts to float32 vectors of unit length; encodes each different query once."""

    id: str
    """Name of the model, the same wherever it was loaded from."""
    revision: str
    """What tells two versions of the model apart: the weights' sha256 where they are at hand."""

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
            EmbedderError: the model cannot be loaded, or the endpoint did not answer as it should.
        """

    @abstractmethod
    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode different, valid texts, each independent of the others."""

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode queries, those seen lately from memory; a query's vector does not depend on the others beside it.

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
    """Replace what UTF-8 cannot hold: a policy may write a lone surrogate as an escape, and tokenisers refuse it."""
    return text.encode("utf-8", "replace").decode("utf-8")
