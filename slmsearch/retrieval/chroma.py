"""Chroma collection of an index version: filling, updating a copy, checking, searching.

It is in the version's directory or on a Chroma server. It holds each distinct vector once, under its key, without texts or locations, which
`SearchIndex` finds by the key. A `PersistentClient` serves one process and caches per path, so a published directory is never written
again. Chroma's own embedding function is disabled: it would download a model.
"""

import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from slmsearch.config import RetrievalConfig
from slmsearch.errors import IndexUnusableError
from slmsearch.foreign import cause_of, without_credentials
from slmsearch.retrieval.embed import Vectors
from slmsearch.retrieval.vectors import Keys, RowsByKey, read_rows
from slmsearch.retrieval.versions import CHROMA

COLLECTION = "passages"
ADD_BATCH = 5000
"""Number of vectors added per call; Chroma accepts at most 5,461."""
HNSW_EF_CONSTRUCTION = 100
"""Candidates compared for each vector added to the graph. 200 takes 1.6 times as long as 100; of the ten nearest among 117,800 passages a
search then finds 99.6 instead of 98.9 %."""
HNSW_MAX_NEIGHBORS = 16
"""Neighbours of a vector in the graph: Chroma's default."""
EF_SEARCH = 200
SAMPLE = 64
"""Number of vectors whose neighbours are compared with brute force."""
NEIGHBOURS = 10
MIN_RECALL = 0.9
SCORE_TOLERANCE = 1e-4
BLOCK = 65536
"""Number of rows compared at once by brute force."""


@dataclass(frozen=True, slots=True)
class Server:
    """Collection on a Chroma server."""

    url: str
    collection: str
    token: str | None = None


Place: TypeAlias = Path | Server


def chroma_place(version: Path, key: str, config: RetrievalConfig) -> Place:
    """Return the location of a version's collection: its directory, or the configured server."""
    if config.chroma_url is None:
        return version / CHROMA
    token = config.chroma_token.get_secret_value() if config.chroma_token else None
    return Server(config.chroma_url, f"slmsearch-{key}", token)


@contextmanager
def opened_collection(place: Place, create: bool = False) -> Iterator[Any]:
    """Open the collection, or create it and replace a partial one.

    Raises:
        IndexUnusableError: the server does not answer or has no such collection.
    """
    from chromadb.errors import NotFoundError

    client, name = _connected(place)
    with closing(client):
        if create:
            if isinstance(place, Server) and name in {collection.name for collection in client.list_collections()}:
                client.delete_collection(name)
            hnsw = {
                "space": "cosine",
                "ef_construction": HNSW_EF_CONSTRUCTION,
                "max_neighbors": HNSW_MAX_NEIGHBORS,
                "ef_search": EF_SEARCH,
            }
            collection = client.create_collection(name, embedding_function=None, configuration={"hnsw": hnsw})
        else:
            try:
                collection = client.get_collection(name, embedding_function=None)
            except (NotFoundError, ValueError) as error:
                where = place.url if isinstance(place, Server) else place
                raise IndexUnusableError(
                    f"{where} has no collection {name}; build the version again with `slmsearch index build`"
                ) from error
        yield collection


def fill_collection(place: Place, keys: Keys, vectors: Vectors) -> None:
    """Create the collection and add each distinct vector with its key."""
    with opened_collection(place, create=True) as collection:
        _add(collection, keys, vectors, distinct_rows(keys))


def update_collection(place: Place, keys: Keys, vectors: Vectors, kept: Keys) -> None:
    """Update a copy of another version's collection, which holds the keys `kept`, to this version: delete old vectors, add new ones."""
    with opened_collection(place) as collection:
        gone = np.setdiff1d(kept, keys)
        for start in range(0, len(gone), ADD_BATCH):
            collection.delete(ids=[_id(key) for key in gone[start : start + ADD_BATCH]])
        rows = distinct_rows(keys)
        _add(collection, keys, vectors, rows[~np.isin(keys[rows], kept)])


def drop_collection(server: Server) -> None:
    """Remove a version's collection from its server; a missing one is not an error."""
    client, name = _connected(server)
    with closing(client):
        if name in {collection.name for collection in client.list_collections()}:
            client.delete_collection(name)


def verify_collection(place: Place, keys: Keys, vectors: Vectors) -> float:
    """Check count, dimension, file integrity and recall of a collection; return the recall.

    Raises:
        IndexUnusableError: a check failed.
    """
    with opened_collection(place) as collection:
        count, rows = collection.count(), distinct_rows(keys)
        if count != len(rows):
            raise IndexUnusableError(f"Chroma kept {count} of {len(rows)} vectors; run the build again")
        stored = np.asarray(collection.get(ids=[_id(keys[0])], include=["embeddings"])["embeddings"])
        if stored.shape != (1, vectors.shape[1]):
            raise IndexUnusableError(f"Chroma kept vectors of {stored.shape[-1]} dimensions instead of {vectors.shape[1]}; build again")
        recall = _measured_recall(collection, keys, vectors, rows)
    if recall < MIN_RECALL:
        raise IndexUnusableError(f"Chroma finds only {recall:.0%} of the true neighbours; take another retrieval.embedder.model")
    if isinstance(place, Path):
        with closing(sqlite3.connect(place / "chroma.sqlite3")) as database:
            verdict = database.execute("PRAGMA integrity_check").fetchone()[0]
        if verdict != "ok":
            raise IndexUnusableError(f"Chroma's database is damaged ({verdict}); check the disk and build again")
    return recall


def nearest_keys(collection: Any, vectors: Vectors, count: int) -> list[NDArray[np.uint64]]:
    """Return, for each vector, the ascending keys of its nearest vectors by approximate search."""
    found = collection.query(query_embeddings=vectors, n_results=count, include=[])
    return [np.array(sorted(int(name, 16) for name in ids), dtype=np.uint64) for ids in found["ids"]]


def distinct_rows(keys: Keys) -> NDArray[np.int64]:
    """Return the first row of each key, ascending."""
    return np.sort(np.unique(keys, return_index=True)[1])


def _add(collection: Any, keys: Keys, vectors: Vectors, rows: NDArray[np.int64]) -> None:
    for start in range(0, len(rows), ADD_BATCH):
        batch = rows[start : start + ADD_BATCH]
        collection.add(ids=[_id(keys[row]) for row in batch], embeddings=read_rows(vectors, batch))


def _id(key: np.uint64) -> str:
    return f"{int(key):016x}"


def _connected(place: Place) -> tuple[Any, str]:
    """Return a client and the collection's name there; clients' published types lack `close` and require typed dicts."""
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    if isinstance(place, Path):
        return chromadb.PersistentClient(path=str(place), settings=settings), COLLECTION
    url = urlsplit(place.url)
    port = url.port or (443 if url.scheme == "https" else 8000)
    headers = {"x-chroma-token": place.token} if place.token else {}
    if url.username or url.password:
        told = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(told.encode()).decode()}"
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    whole = urlunsplit((url.scheme, f"{host}:{port}", url.path, "", ""))  # Chroma leaves out user, password and port of an address
    try:
        client = chromadb.HttpClient(host=whole, port=port, ssl=url.scheme == "https", headers=headers, settings=settings)
    except Exception as error:  # Chroma raises its HTTP library's errors, and ValueError
        cause = cause_of(error)
        raise IndexUnusableError(
            f"no Chroma server answers at {without_credentials(place.url)} ({cause}); start it, or fix retrieval.chroma_url"
        ) from error
    return client, place.collection


def _measured_recall(collection: Any, keys: Keys, vectors: Vectors, rows: NDArray[np.int64]) -> float:
    """Search for a sample of the vectors at `rows`; a hit counts if it is as near as a true neighbour, under any key."""
    sample = read_rows(vectors, rows[np.unique(np.linspace(0, len(rows) - 1, SAMPLE).astype(int))])
    # Among few vectors all are neighbours; a third of them is still informative.
    k = min(NEIGHBOURS, -(-len(rows) // 3))
    nearest = np.full((k, len(sample)), -np.inf, dtype=np.float32)
    for start in range(0, len(rows), BLOCK):
        similarity = np.concatenate([nearest, read_rows(vectors, rows[start : start + BLOCK]) @ sample.T])
        nearest = np.partition(similarity, len(similarity) - k, axis=0)[-k:]
    thresholds = nearest.min(axis=0) - SCORE_TOLERANCE
    by_key = RowsByKey(keys[rows])
    hits = 0
    for position, found in enumerate(nearest_keys(collection, sample, k)):
        near = read_rows(vectors, rows[by_key.of(np.unique(found))])
        hits += int(np.sum(near @ sample[position] >= thresholds[position]))
    return hits / (len(sample) * k)
