"""The Chroma collection inside an index version: filling it, checking it, asking it.

A `PersistentClient` serves one process and caches per path, so it is opened for one job, closed, and never shared. Chroma's
own embedding function is switched off: it would download a model.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from slmsearch.config import RetrievalConfig
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval.embed import Vectors
from slmsearch.retrieval.passages import Passage

COLLECTION = "passages"
ADD_BATCH = 1000
"""Chroma takes 5,461 at most."""
SAMPLE = 64
"""Passages whose neighbours are compared with brute force."""
NEIGHBOURS = 10
MIN_RECALL = 0.9
SCORE_TOLERANCE = 1e-4


@contextmanager
def opened_collection(directory: Path, config: RetrievalConfig | None = None) -> Iterator[Any]:
    """Open the collection; create it with the given settings if there are any."""
    import chromadb
    from chromadb.config import Settings

    # Its published type lacks `close` and wants a typed dict.
    client: Any = chromadb.PersistentClient(path=str(directory), settings=Settings(anonymized_telemetry=False))
    try:
        if config is None:
            yield client.get_collection(COLLECTION, embedding_function=None)
        else:
            hnsw = {
                "space": "cosine",
                "ef_construction": config.hnsw_ef_construction,
                "max_neighbors": config.hnsw_max_neighbors,
                "ef_search": 200,
            }
            yield client.create_collection(COLLECTION, embedding_function=None, configuration={"hnsw": hnsw})
    finally:
        client.close()


def fill_collection(directory: Path, passages: Sequence[Passage], vectors: Vectors, config: RetrievalConfig) -> None:
    """Create the collection and add every passage under its row number."""
    with opened_collection(directory, config) as collection:
        for start in range(0, len(passages), ADD_BATCH):
            batch = passages[start : start + ADD_BATCH]
            collection.add(
                ids=[str(start + offset) for offset in range(len(batch))],
                embeddings=vectors[start : start + len(batch)],
                documents=[passage.text for passage in batch],
                metadatas=[{"page_id": passage.page_id, "section_id": passage.section_id} for passage in batch],
            )


def verify_collection(directory: Path, vectors: Vectors) -> float:
    """Check count, dimension, file integrity and recall of a collection just built; return the recall.

    Raises:
        IndexUnusableError: a check failed.
    """
    with opened_collection(directory) as collection:
        count = collection.count()
        if count != len(vectors):
            raise IndexUnusableError(f"Chroma kept {count} of {len(vectors)} passages; run the build again")
        stored = np.asarray(collection.get(ids=["0"], include=["embeddings"])["embeddings"])
        if stored.shape != (1, vectors.shape[1]):
            raise IndexUnusableError(f"Chroma kept vectors of {stored.shape[-1]} dimensions instead of {vectors.shape[1]}; build again")
        recall = _measured_recall(collection, vectors)
    if recall < MIN_RECALL:
        raise IndexUnusableError(f"Chroma finds only {recall:.0%} of the true neighbours; raise retrieval.hnsw_ef_construction")
    with closing(sqlite3.connect(directory / "chroma.sqlite3")) as database:
        verdict = database.execute("PRAGMA integrity_check").fetchone()[0]
    if verdict != "ok":
        raise IndexUnusableError(f"Chroma's database is damaged ({verdict}); check the disk and build again")
    return recall


def nearest_rows(collection: Any, vector: Vectors, count: int) -> list[int]:
    """Return the row numbers of the passages that approximate search holds for nearest."""
    found = collection.query(query_embeddings=vector[None, :], n_results=count, include=[])
    return sorted(int(row) for row in found["ids"][0])


def _measured_recall(collection: Any, vectors: Vectors) -> float:
    """Search for a sample of passages; a hit counts if it is as near as a true neighbour, whatever its id.

    Passages with equal texts are equally near, so comparing ids would punish a correct index.
    """
    rows = np.unique(np.linspace(0, len(vectors) - 1, SAMPLE).astype(int))
    # Among few passages everything is a neighbour; a third of them still says something.
    k = min(NEIGHBOURS, -(-len(vectors) // 3))
    hits = 0
    for row in rows:
        similarity = vectors @ vectors[row]
        threshold = np.partition(similarity, len(similarity) - k)[len(similarity) - k] - SCORE_TOLERANCE
        found = list(set(nearest_rows(collection, vectors[row], k)))
        hits += int(np.sum(similarity[found] >= threshold))
    return hits / (len(rows) * k)
