"""Opening an index version and ranking pages for queries.

Rankings are exact and deterministic: every passage is compared with the query, a page counts by its best passage, similarities
are rounded to 1e-5 and ties broken by page id. Above `EXACT_LIMIT` passages Chroma's approximate search picks
`CANDIDATES` passages first, which are then compared exactly; that is deterministic for one version, but another build of the
same key may pick other candidates at the far end.
"""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slmsearch.config import RetrievalConfig
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval import versions
from slmsearch.retrieval.chroma import nearest_rows, opened_collection
from slmsearch.retrieval.embed import Embedder, Vectors, load_embedder
from slmsearch.retrieval.hits import Hit

EXACT_LIMIT = 200_000
"""Passages; 300 MB of vectors at 384 dimensions, about 10 ms a query."""
CANDIDATES = 200
ROUNDING = 100_000


def open_index(index_dir: Path, key: str, config: RetrievalConfig, embedder: Embedder | None = None) -> "VectorIndex":
    """Open a version for reading.

    Args:
        key: as `build_index` returned it; `versions.current_key` gives the newest.
        embedder: takes the place of the configured one.

    Raises:
        IndexUnusableError: it is missing, damaged, or made by another embedder than the configured one.
        EmbedderError: the embedder is missing.
    """
    manifest = versions.read_version(index_dir, key)
    embedder = embedder or load_embedder(config.embedder)
    if (manifest.embedder_id, manifest.embedder_revision) != (embedder.id, embedder.revision):
        made, asked = f"{manifest.embedder_id}@{manifest.embedder_revision[:12]}", f"{embedder.id}@{embedder.revision[:12]}"
        raise IndexUnusableError(f"index version {key} was made by {made}, queries would be embedded by {asked}; {versions.REMEDY}")
    directory = index_dir / key
    if not versions.is_complete(directory):
        raise IndexUnusableError(f"index version {key} is damaged: its files do not match its manifest; delete it and {versions.REMEDY}")
    return VectorIndex(directory, manifest, embedder)


class VectorIndex:
    """An open version; serves one process, any number of threads."""

    def __init__(self, directory: Path, manifest: versions.IndexManifest, embedder: Embedder) -> None:
        self.key = manifest.key
        self.manifest = manifest
        self._embedder = embedder
        self._chroma_dir = directory / versions.CHROMA
        self._exact = manifest.passages <= EXACT_LIMIT
        self._vectors: Vectors = np.load(directory / versions.VECTORS, mmap_mode=None if self._exact else "r")
        rows = [json.loads(line) for line in (directory / versions.PASSAGES).open(encoding="utf-8")]
        self._section_ids: list[str] = [row["section_id"] for row in rows]
        firsts = [row for row in rows if row["title"] is not None]
        self._page_ids: list[str] = [row["page_id"] for row in firsts]
        self._titles: list[str] = [row["title"] for row in firsts]
        is_first = np.array([row["title"] is not None for row in rows], dtype=bool)
        self._page_of_row = np.cumsum(is_first) - 1
        self._first_rows = np.flatnonzero(is_first)
        # Position of each page among the sorted ids: breaks ties.
        self._id_rank = np.empty(len(firsts), dtype=np.int64)
        self._id_rank[sorted(range(len(firsts)), key=self._page_ids.__getitem__)] = np.arange(len(firsts))

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank pages for each query, best first, ties by page id; at most `top_k` hits each.

        Raises:
            EmbedderError: queries cannot be embedded.
            IndexUnusableError: the embedder's vectors do not fit this version.
        """
        vectors = self._embedder.encode_queries(queries)
        if len(queries) and vectors.shape[1] != self.manifest.dimension:
            made, asked = self.manifest.dimension, vectors.shape[1]
            raise IndexUnusableError(f"index version {self.key} has {made} dimensions, its embedder now gives {asked}; {versions.REMEDY}")
        # Equal queries are ranked once.
        ranked: dict[str, list[Hit]] = {}
        with ExitStack() as stack:
            collection = None if self._exact else stack.enter_context(opened_collection(self._chroma_dir))
            for query, vector in zip(queries, vectors, strict=True):
                if query not in ranked:
                    rows = None if collection is None else np.array(nearest_rows(collection, vector, CANDIDATES))
                    ranked[query] = self._ranked(vector, rows, top_k)
        return [list(ranked[query]) for query in queries]

    def _ranked(self, vector: Vectors, rows: NDArray[np.int64] | None, top_k: int) -> list[Hit]:
        """Rank pages by their best passage among the given rows (all rows if None)."""
        if rows is None:
            scores = _similarity(self._vectors, vector)
            pages = np.arange(len(self._page_ids))
            starts = self._first_rows
        else:
            scores = _similarity(self._vectors[rows], vector)
            pages, starts = np.unique(self._page_of_row[rows], return_index=True)
        best = np.maximum.reduceat(scores, starts)
        kept = min(top_k, len(best))
        candidates = np.flatnonzero(best >= np.partition(best, len(best) - kept)[len(best) - kept])
        order = candidates[np.lexsort((self._id_rank[pages[candidates]], -best[candidates]))][:kept]
        ends = np.append(starts[1:], len(scores))
        hits = []
        for position in order:
            row = int(starts[position] + np.argmax(scores[starts[position] : ends[position]]))
            passage = row if rows is None else int(rows[row])
            page = int(pages[position])
            score = float(best[position]) / ROUNDING
            hits.append(Hit(self._page_ids[page], self._titles[page], score, self._section_ids[passage]))
        return hits


def _similarity(vectors: Vectors, query: Vectors) -> NDArray[np.int64]:
    """Return the cosine of each row with the query, in units of 1 / `ROUNDING`.

    One dot product per row instead of a matrix product: its order of summation depends neither on how many queries are asked at
    once nor on the number of threads, and where other processes want the cores too it is far faster than threaded BLAS.
    """
    similarity: NDArray[np.int64] = np.rint(np.vecdot(vectors, query) * ROUNDING).astype(np.int64)
    return similarity
