"""What a search returns, and the interface every index serves."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Hit:
    """One page found for a query."""

    page_id: str
    title: str
    score: float
    """Of the page's best passage, in [-1, 1]; 1 where the query is its text and no other holds its words so densely."""
    section_id: str
    """The passage that matched best; the page's title section when the title did."""


class Index(Protocol):
    """Answers queries with pages, deterministically."""

    key: str
    """Content key of the version served."""

    def search(self, queries: Sequence[str], top_k: int, *, hidden: Sequence[Collection[str]] = ()) -> list[list[Hit]]:
        """Rank pages for each query, best first, ties by page id; at most `top_k` hits each.

        Args:
            queries: texts.
            top_k: pages wanted.
            hidden: for each query the sections that it must not find; none: it may find all.

        Raises:
            IndexUnusableError, EmbedderError: the service behind it broke.
        """
        ...
