"""Search results, and the interface of every index."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Hit:
    """Page found for a query."""

    page_id: str
    title: str
    score: float
    """Score of the page's best passage, in [-1, 1]; 1 if the query equals its text and no other passage has a higher BM25 score."""
    section_id: str
    """Section of the best passage; the page's title section if the title matched best."""


class Index(Protocol):
    """Index that answers queries with pages, deterministically."""

    key: str
    """Content key of the served version."""

    def search(self, queries: Sequence[str], top_k: int, *, hidden: Sequence[Collection[str]] = ()) -> list[list[Hit]]:
        """Rank pages for each query, best first, ties by page id; at most `top_k` hits each.

        Args:
            queries: texts of the queries.
            top_k: maximum number of pages.
            hidden: for each query the sections that it must not find; empty for no restriction.

        Raises:
            IndexUnusableError, EmbedderError: the service behind it failed.
        """
        ...
