"""How independent the parts of a plan are: 1 minus their mean likeness, from 0 (all the same) to 1."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slmsearch.retrieval.embed import Embedder


class Independence(Protocol):
    """Scores sets of subproblems."""

    name: str
    """Part of every evaluation and training key."""

    def score(self, plans: Sequence[Sequence[str]]) -> list[float]:
        """Score the subproblems of each plan; fewer than two have nothing to be independent of and score 0."""
        ...


class EmbeddingIndependence:
    """By the cosines of sentence embeddings, mean over pairs."""

    def __init__(self, embedder: Embedder) -> None:
        """Take an embedder that remembers what it has encoded: a group asks much the same."""
        self.name = f"{embedder.id}@{embedder.revision}"
        self._embedder = embedder

    def score(self, plans: Sequence[Sequence[str]]) -> list[float]:
        """See `Independence.score`."""
        texts = list(dict.fromkeys(text for plan in plans if len(plan) > 1 for text in plan))
        if not texts:
            return [0.0] * len(plans)
        vectors = dict(zip(texts, self._embedder.encode_queries(texts), strict=True))
        return [_spread(np.stack([vectors[text] for text in plan])) if len(plan) > 1 else 0.0 for plan in plans]


def _spread(vectors: NDArray[np.float32]) -> float:
    cosines = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
    return float(np.clip(1.0 - cosines.astype(np.float64), 0.0, 1.0).mean())
