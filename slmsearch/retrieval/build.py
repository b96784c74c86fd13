"""Building an index version: embed, store, verify, publish.

Not here: pruning old versions, and deciding which version a run takes.
"""

import errno
import json
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from slmsearch.config import RetrievalConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.store import read_manifest, read_pages
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval import versions
from slmsearch.retrieval.chroma import fill_collection, verify_collection
from slmsearch.retrieval.embed import Embedder, Progress, load_embedder
from slmsearch.retrieval.passages import CHUNKER_VERSION, Passage, make_passages
from slmsearch.retrieval.versions import IndexManifest
from slmsearch.staging import publish, staging_directory

BYTES_PER_VALUE = 14
"""Measured: `vectors.npy` holds 4, Chroma's files about 9."""
BYTES_PER_CHAR = 6
"""Measured: texts stand in Chroma's database and in its full-text index."""
SPARE_BYTES = 32 << 20


def index_key(pages_digest: str, config: RetrievalConfig, embedder: Embedder | None = None) -> str:
    """Name the version that these pages and settings make; loads no model.

    Raises:
        EmbedderError: the embedder is neither on disk nor to be had.
    """
    embedder = embedder or load_embedder(config.embedder)
    chunking = {"version": CHUNKER_VERSION, "max_chars": config.max_passage_chars}
    hnsw = {"ef_construction": config.hnsw_ef_construction, "max_neighbors": config.hnsw_max_neighbors}
    return versions.version_key(pages_digest, embedder.id, embedder.revision, chunking, hnsw)


def build_index(
    corpus_dir: Path, index_dir: Path, config: RetrievalConfig, progress: Progress | None = None, embedder: Embedder | None = None
) -> str:
    """Build the version of a corpus' pages, or find it complete; point `CURRENT` to it and return its key.

    Args:
        corpus_dir: a materialised corpus.
        progress: called with passages embedded and their total.
        embedder: takes the place of the configured one.

    Raises:
        CorpusError: the corpus is missing or damaged.
        EmbedderError: the embedder is missing or does not answer.
        IndexUnusableError: the version cannot be written or fails its checks; nothing of it stays, `CURRENT` is as it was.
    """
    corpus = read_manifest(corpus_dir)
    embedder = embedder or load_embedder(config.embedder)
    key = index_key(corpus.pages_digest, config, embedder)
    if not versions.is_complete(index_dir / key):
        with _disk_failures(index_dir):
            _build_version(corpus_dir, index_dir / key, config, embedder, progress)
    if versions.current_key(index_dir) != key:
        versions.set_current(index_dir, key)
    return key


def _build_version(corpus_dir: Path, target: Path, config: RetrievalConfig, embedder: Embedder, progress: Progress | None) -> None:
    start = time.monotonic()
    library = Library(read_pages(corpus_dir))
    passages = list(make_passages(library, config.max_passage_chars))
    target.parent.mkdir(parents=True, exist_ok=True)
    _require_space(target.parent, passages, embedder.dimension)
    vectors = embedder.encode([passage.text for passage in passages], progress)
    with staging_directory(target.parent, target.name) as staging:
        np.save(staging / versions.VECTORS, vectors)
        _write_passages(staging / versions.PASSAGES, library, passages)
        fill_collection(staging / versions.CHROMA, passages, vectors, config)
        recall = verify_collection(staging / versions.CHROMA, vectors)
        manifest = IndexManifest(
            key=target.name,
            pages_digest=read_manifest(corpus_dir).pages_digest,
            embedder_id=embedder.id,
            embedder_revision=embedder.revision,
            dimension=int(vectors.shape[1]),
            pages=len(library),
            passages=len(passages),
            max_passage_chars=config.max_passage_chars,
            hnsw_ef_construction=config.hnsw_ef_construction,
            hnsw_max_neighbors=config.hnsw_max_neighbors,
            chunker_version=CHUNKER_VERSION,
            files_key=versions.files_key(staging),
            recall=round(recall, 4),
            seconds=round(time.monotonic() - start, 2),
        )
        versions.write_manifest(staging, manifest)
        publish(staging, target, versions.is_complete)


def _write_passages(path: Path, library: Library, passages: Sequence[Passage]) -> None:
    titles = {page.id: page.title for page in library.pages()}
    with path.open("w", encoding="utf-8") as file:
        for passage in passages:
            # The title stands in a page's first row only.
            row = {"page_id": passage.page_id, "section_id": passage.section_id, "title": titles.pop(passage.page_id, None)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _require_space(directory: Path, passages: Sequence[Passage], dimension: int) -> None:
    """Refuse before the embedding, which takes minutes, rather than fail after it."""
    needed = len(passages) * dimension * BYTES_PER_VALUE + sum(len(passage.text) for passage in passages) * BYTES_PER_CHAR + SPARE_BYTES
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise IndexUnusableError(
            f"the index needs about {needed >> 20} MB of disk space and {directory} has {free >> 20} MB; free some or set paths.data_dir"
        )


@contextmanager
def _disk_failures(directory: Path) -> Iterator[None]:
    """Name the cause when files cannot be written; Chroma reports a full disk in its own ways."""
    from chromadb.errors import ChromaError

    try:
        yield
    except OSError as error:
        # NumPy reports a short write without a number.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)
        remedy = "no disk space left: free some or set paths.data_dir" if full else "check the directory and its permissions"
        raise IndexUnusableError(f"the index cannot be written to {directory} ({error.strerror or error}); {remedy}") from error
    except (ChromaError, sqlite3.Error) as error:
        cause = " ".join(str(error).split())[:200]
        raise IndexUnusableError(f"Chroma cannot write to {directory} ({cause}); check disk space and permissions there") from error
