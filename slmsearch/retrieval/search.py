"""Search in an index version: its files opened, and the approximate search behind large ones; `ranking.py` ranks."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from slmsearch.config import RetrievalConfig
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval import versions
from slmsearch.retrieval.chroma import Place, chroma_place, nearest_keys, opened_collection
from slmsearch.retrieval.embed import Embedder, Vectors
from slmsearch.retrieval.embedders import load_embedder, same_space
from slmsearch.retrieval.lexical import LexicalIndex
from slmsearch.retrieval.ranking import CANDIDATES, RankedPassages, Rows
from slmsearch.retrieval.vectors import RowsByKey

EXACT_LIMIT = 200_000
"""Number of passages up to which all are compared; 300 MB of vectors at 384 dimensions."""


class SearchIndex(RankedPassages):
    """Open version; serves one process with any number of threads."""

    def __init__(
        self, directory: Path, manifest: versions.IndexManifest, embedder: Embedder, place: Place, ranking: str = "hybrid"
    ) -> None:
        self.key = manifest.key
        self.directory = directory
        self.manifest = manifest
        self._lease = versions.lease(directory)
        self._embedder = embedder
        self._place = place
        exact = manifest.passages <= EXACT_LIMIT
        vectors: Vectors = np.load(directory / versions.VECTORS, mmap_mode=None if exact else "r")
        lexical = LexicalIndex(directory / versions.LEXICAL, manifest.passages)
        rows = [json.loads(line) for line in (directory / versions.PASSAGES).open(encoding="utf-8")]
        super().__init__(rows, vectors, lexical, ranking, exact)
        self._collection: Any = None
        if not exact:
            if isinstance(place, Path):
                versions.require_graph(directory)
            self._rows_of = RowsByKey(versions.read_keys(directory)[1]).of

    def close(self) -> None:
        """Release the version, so that it may be removed."""
        self._open.close()
        self._lease.close()

    def _embedded(self, queries: list[str]) -> Vectors:
        vectors = self._embedder.encode_queries(queries)
        if len(queries) and vectors.shape[1] != self.manifest.dimension:
            made, asked = self.manifest.dimension, vectors.shape[1]
            raise IndexUnusableError(f"index version {self.key} has {made} dimensions, its embedder now gives {asked}; {versions.REMEDY}")
        return vectors

    def _nearest(self, vectors: Vectors) -> list[Rows]:
        if not vectors.any():
            return [np.zeros(0, dtype=np.int64)] * len(vectors)
        with self._lock:
            if self._collection is None:
                self._collection = self._open.enter_context(opened_collection(self._place))
        return [self._rows_of(keys) for keys in nearest_keys(self._collection, vectors, CANDIDATES)]


def open_index(index_dir: Path, key: str, config: RetrievalConfig, embedder: Embedder | None = None) -> SearchIndex:
    """Open a version for reading; an open version is not removed.

    Args:
        index_dir: directory of all versions.
        key: content key of the version.
        config: embedder, place of the vectors and ranking.
        embedder: replaces the configured one; None loads that.

    Raises:
        IndexUnusableError: the version is missing, damaged, or built with another embedder.
        EmbedderError: the embedder is missing.
    """
    manifest = versions.require_complete(index_dir, key)
    embedder = embedder or load_embedder(config.embedder)
    if manifest.embedder_id != embedder.id or not same_space(manifest.embedder_revision, embedder.revision):
        made, asked = f"{manifest.embedder_id}@{manifest.embedder_revision[:12]}", f"{embedder.id}@{embedder.revision[:12]}"
        raise IndexUnusableError(f"index version {key} was made by {made}, queries would be embedded by {asked}; {versions.REMEDY}")
    try:
        return SearchIndex(index_dir / key, manifest, embedder, chroma_place(index_dir / key, key, config), config.ranking)
    except OSError as error:
        raise IndexUnusableError(f"index version {key} cannot be read ({error}); {versions.REMEDY}") from error
