"""Ranking of pages for queries by cosine of the embeddings and BM25, fused.

A passage's score is `DENSE` times its cosine with the query plus `LEXICAL` times its BM25 score divided by the best passage's; a page's
score is that of its best passage. Scores are rounded to 1e-5 and ties broken by page id, so rankings are deterministic. Up to a number of
passages (`search.EXACT_LIMIT`) each is compared. Above, Chroma's approximate search returns candidate vectors; the passages with one of
them, those with the best BM25 scores and those that BM25 could lift above the first are scored exactly. This is deterministic for one
version, but another build of the same key may have other distant candidates: a graph may never lead to a vector far from all others.

The weights were chosen on one half of the SQuAD pack (by page, seed 0): first page right / gold section among five on the other half 91.0 /
91.4 % for BM25 alone, 92.1 / 88.0 for the embeddings alone, 95.5 / 95.9 fused (docs/retrieval.md).
"""

import functools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from slmsearch.retrieval.embed import Vectors
from slmsearch.retrieval.hits import Hit
from slmsearch.retrieval.lexical import LexicalIndex

RANKING_VERSION = 4
"""Version of the ranking: raise it if the same index version ranks differently."""
DENSE, LEXICAL = 0.7, 0.3
WEIGHTS = {"hybrid": (DENSE, LEXICAL), "dense": (1.0, 0.0), "lexical": (0.0, 1.0)}
CANDIDATES = 800
"""Number of vectors from approximate search. Of the ten nearest among 117,800 passages, 200 hold 95 %, 400 98 %, 800 99 %, in 4, 7, 9
ms."""
LEFT = 200
"""Number of these that must be visible where passages are hidden; with fewer the query is compared with all."""
LIFTED = 2000
"""Maximum number of passages that BM25 adds to them; always includes its best `CANDIDATES`."""
BLOCK = 64
"""Number of queries compared with all passages at once."""
ALONE = 4
"""Number of queries up to which a dot product per row is faster than a matrix product, above all when other processes use the cores."""
THREADED_ROWS = 20_000
"""Number of passages from which queries are compared on several threads: the parts of one, or each its own."""
THREADS = min(4, os.cpu_count() or 1)
ROUNDING = 100_000
MARGIN = 1e-4
"""Generous bound on the error of a matrix product: pages this close to the last place are scored again, with a dot product per row."""
MAX_QUERY_CHARS = 1000
"""Length to which queries are cut, in characters; the embedder reads no more."""
Scores: TypeAlias = NDArray[np.float32]
Rows: TypeAlias = NDArray[np.int64]


class _Groups:
    """Groups of adjacent rows, ranked by their best row: those of a page, or of a section."""

    def __init__(self, names: Sequence[str]) -> None:
        """Group rows by name; the rows of a group are adjacent."""
        is_first = np.array([i == 0 or names[i - 1] != name for i, name in enumerate(names)], dtype=bool)
        self.of_row = np.cumsum(is_first) - 1
        self.starts = np.flatnonzero(is_first)
        self.ends = np.append(self.starts[1:], len(names))
        ids = [names[row] for row in self.starts]
        # Position of each group among the sorted names; breaks ties.
        self.rank = np.empty(len(ids), dtype=np.int64)
        self.rank[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))

    def find_best(self, scores: Scores, top_k: int, taken: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return the groups that may be among the first `top_k` by their best row; of all groups, or of those in `taken`."""
        best = np.maximum.reduceat(scores, self.starts)
        if taken is not None:
            best[~taken] = -np.inf
        kept = min(top_k, len(best))
        bound = np.partition(best, len(best) - kept)[len(best) - kept]
        return np.flatnonzero((best >= bound - MARGIN) & (best > -np.inf))


class RankedPassages(ABC):
    """Passages in the order of their pages, and the ranking of pages by them; serves any number of threads."""

    def __init__(
        self, passages: Sequence[Mapping[str, str]], vectors: Vectors, lexical: LexicalIndex, ranking: str = "hybrid", exact: bool = True
    ) -> None:
        """Bind passages and the arrays over them.

        Args:
            passages: `page_id`, `section_id` and `title` of each; the title stands with a page's first passage.
            vectors: embeddings, (P, D), of unit length.
            lexical: BM25 over the same passages.
            ranking: `hybrid`, `dense` or `lexical`.
            exact: whether a query is compared with all passages; else `_nearest` gives candidates.
        """
        self._vectors, self._lexical, self._ranking, self._exact = vectors, lexical, ranking, exact
        self._section_ids = [passage["section_id"] for passage in passages]
        self._page_ids = [passage["page_id"] for passage in passages]
        self._titles = {passage["page_id"]: passage["title"] for passage in passages if passage["title"] is not None}
        self._pages = _Groups(self._page_ids)
        self._open = ExitStack()
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    @abstractmethod
    def _embedded(self, queries: list[str]) -> Vectors:
        """Embed queries, (Q, D)."""

    @abstractmethod
    def _nearest(self, vectors: Vectors) -> list[Rows]:
        """Return for each query the rows of some `CANDIDATES` nearest passages, approximately."""

    def search(
        self, queries: Sequence[str], top_k: int, ranking: str | None = None, within: str = "", hidden: Sequence[Collection[str]] = ()
    ) -> list[list[Hit]]:
        """Rank pages for each query, best first, ties by page id; at most `top_k` hits each, none for a blank query.

        Args:
            queries: texts of any length and script; they are cut at `MAX_QUERY_CHARS`.
            top_k: maximum number of pages.
            ranking: `hybrid`, `dense` or `lexical`; None takes the configured one.
            within: prefix of the ids of pages that may be found.
            hidden: for each query the sections that it must not find, see `corpus/view.py`; a page with a visible section may be found.

        Raises:
            EmbedderError: queries cannot be embedded.
            IndexUnusableError: the embedder's vectors do not fit this version.
        """
        return self._search(queries, top_k, ranking, within, self._pages, hidden)

    def search_sections(self, queries: Sequence[str], top_k: int, ranking: str | None = None) -> list[list[Hit]]:
        """Rank at most `top_k` sections, with the arguments of `search`; a page may occur more than once."""
        return self._search(queries, top_k, ranking, "", self._sections)

    @functools.cached_property
    def _sections(self) -> _Groups:
        return _Groups(self._section_ids)

    @functools.cached_property
    def _place_of(self) -> dict[str, int]:
        return {self._section_ids[row]: place for place, row in enumerate(self._sections.starts)}

    def _rows_of_sections(self, hidden: Collection[str]) -> Rows:
        """Return the rows of hidden sections; a page's title is one of them if all other rows of the page are."""
        if not hidden:
            return np.zeros(0, dtype=np.int64)
        gone = np.zeros(len(self._sections.starts), dtype=bool)
        gone[[place for name in hidden if (place := self._place_of.get(name)) is not None]] = True
        rows, titles = gone[self._sections.of_row], self._pages.starts  # (P,) of passages, and those with the titles
        counts = np.add.reduceat(rows, titles, dtype=np.int64)
        rows[titles] = (counts > 0) & (counts - rows[titles] == self._pages.ends - titles - 1)
        return np.flatnonzero(rows)

    def _search(
        self, queries: Sequence[str], top_k: int, ranking: str | None, within: str, groups: _Groups, hidden: Sequence[Collection[str]] = ()
    ) -> list[list[Hit]]:
        dense, lexical = WEIGHTS[ranking or self._ranking]
        without = [frozenset(names) for names in hidden] or [frozenset[str]()] * len(queries)
        wanted = [(query[:MAX_QUERY_CHARS], names) for query, names in zip(queries, without, strict=True)]
        # Equal queries are ranked once.
        distinct = [asked for asked in dict.fromkeys(wanted) if asked[0].strip()]
        texts_of = list(dict.fromkeys(query for query, _ in distinct))
        embedded = self._embedded(texts_of) if dense else np.zeros((len(texts_of), self._vectors.shape[1]), dtype=np.float32)
        place = {query: i for i, query in enumerate(texts_of)}
        taken = np.array([self._page_ids[row].startswith(within) for row in groups.starts], dtype=bool) if within else None
        found: dict[tuple[str, frozenset[str]], list[Hit]] = {}
        gone_of = {names: self._rows_of_sections(names) for names in dict.fromkeys(names for _, names in distinct)}
        for start in range(0, len(distinct), BLOCK):
            block = distinct[start : start + BLOCK]
            gone = [gone_of[names] for _, names in block]
            texts = [self._words(query, rows, lexical) for (query, _), rows in zip(block, gone, strict=True)]
            scaled = embedded[[place[query] for query, _ in block]] * np.float32(dense)
            if self._exact or taken is not None:
                ranked = self._compared_with_all(scaled, texts, top_k, groups, taken, gone)
            else:
                ranked = self._compared_with_candidates(scaled, texts, top_k, groups, gone)
            found.update(zip(block, ranked, strict=True))
        return [list(found.get(asked, ())) for asked in wanted]

    def _words(self, query: str, gone: Rows, weight: float) -> Scores | None:
        """Return the BM25 scores, rescaled to the best visible passage; hidden rows (`gone`) score 0."""
        if not weight:
            return None
        scores = self._lexical.scores(query)
        if len(gone):
            scores = scores.copy()
            scores[gone] = 0
            scores /= max(scores.max(initial=0), np.float32(1e-9))
        return scores * np.float32(weight)

    def _compared_with_all(
        self,
        vectors: Vectors,
        texts: Sequence[Scores | None],
        top_k: int,
        groups: _Groups,
        taken: NDArray[np.bool_] | None,
        gone: Sequence[Rows],
    ) -> list[list[Hit]]:
        """Rank all groups; a matrix product finds those that may be among the first, which are then scored row by row."""
        product = (vectors @ self._vectors.T) if len(vectors) > ALONE else [self._dot_products(vector) for vector in vectors]

        def rank(asked: tuple[Vectors, Scores, Scores | None, Rows]) -> list[Hit]:
            vector, near, text, away = asked
            scores = near if text is None else near + text
            scores[away] = -np.inf
            close = groups.find_best(scores, top_k, taken)
            rows = np.concatenate([np.arange(groups.starts[i], groups.ends[i]) for i in close]) if len(close) else close
            return self._ranked(vector, text, _without(rows, away), top_k, groups)

        rank_all = map if len(self._vectors) < THREADED_ROWS else self._pool().map
        return list(rank_all(rank, zip(vectors, product, texts, gone, strict=True)))

    def _dot_products(self, vector: Vectors) -> Scores:
        """Compare one query with all passages: a dot product per row, on several threads for many rows."""
        near: Scores = np.empty(len(self._vectors), dtype=np.float32)
        if len(near) < THREADED_ROWS:
            return np.vecdot(self._vectors, vector, out=near)
        threads = self._pool()
        step = -(-len(near) // THREADS)
        parts = [slice(start, start + step) for start in range(0, len(near), step)]
        for _ in threads.map(lambda part: np.vecdot(self._vectors[part], vector, out=near[part]), parts):
            pass
        return near

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = self._open.enter_context(ThreadPoolExecutor(THREADS, "compare"))
            return self._threads

    def _compared_with_candidates(
        self, vectors: Vectors, texts: Sequence[Scores | None], top_k: int, groups: _Groups, gone: Sequence[Rows]
    ) -> list[list[Hit]]:
        """Rank the groups of the nearest passages and of those that BM25 could lift above them."""
        hits = []
        for vector, near, text, away in zip(vectors, self._nearest(vectors), texts, gone, strict=True):
            rows = _without(near, away)
            if len(rows) < min(LEFT, len(self._vectors) - len(away)) and len(away):  # most of the nearest are hidden
                hits += self._compared_with_all(vector[None], [text], top_k, groups, None, [away])
                continue
            if text is not None:
                rows = np.union1d(rows, _without(self._lifted(vector, text, rows, top_k, groups), away))
            hits.append(self._ranked(vector, text, np.sort(rows), top_k, groups))
        return hits

    def _lifted(self, vector: Vectors, text: Scores, rows: NDArray[np.int64], top_k: int, groups: _Groups) -> NDArray[np.int64]:
        """Return the rows that BM25 may lift among the first groups, and those with the best BM25 scores.

        A row that the graph left out is farther than the last of the nearest, so BM25 must make up the difference for it to pass the
        `top_k`-th. A row that the graph does not lead to may be at any distance: the best BM25 scores are always compared.
        """
        needed = np.float32(0)
        if len(rows):
            near = np.vecdot(self._vectors[rows], vector)
            starts = np.unique(groups.of_row[rows], return_index=True)[1]
            best = np.maximum.reduceat(near + text[rows], starts)
            bound = np.sort(best)[-min(top_k, len(best))] if len(best) >= top_k else np.float32(-1)
            needed = max(bound - near.min(), np.float32(0))
        if len(text) > CANDIDATES:
            needed = min(needed, np.partition(text, -CANDIDATES)[-CANDIDATES])
        found = np.flatnonzero(text >= max(needed, np.float32(1e-9)))
        if len(found) > LIFTED:
            found = found[np.argsort(-text[found], kind="stable")[:LIFTED]]
        return found

    def _ranked(self, vector: Vectors, text: Scores | None, rows: NDArray[np.int64], top_k: int, groups: _Groups) -> list[Hit]:
        """Rank the groups of the given rows (ascending) by their best row among these.

        It computes one dot product per row: unlike a matrix product, its order of summation depends neither on the number of queries nor on
        the number of threads.
        """
        if not len(rows):
            return []
        scores = np.vecdot(self._vectors[rows], vector)
        scores = np.rint((scores if text is None else scores + text[rows]) * ROUNDING).astype(np.int64)
        found, starts = np.unique(groups.of_row[rows], return_index=True)
        best = np.maximum.reduceat(scores, starts)
        ends = np.append(starts[1:], len(rows))
        hits = []
        for position in np.lexsort((groups.rank[found], -best))[:top_k]:
            row = int(rows[starts[position] + np.argmax(scores[starts[position] : ends[position]])])
            page_id = self._page_ids[row]
            hits.append(Hit(page_id, self._titles[page_id], float(best[position]) / ROUNDING, self._section_ids[row]))
        return hits


def _without(rows: Rows, away: Rows) -> Rows:
    return rows[~np.isin(rows, away)] if len(away) else rows
