"""Build of an index version: embed new passages, store, verify, publish.

`upkeep` removes old versions; callers decide which version a run uses.
"""

import errno
import json
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np

from slmsearch.artifacts.directories import publish, staging_directory
from slmsearch.config import RetrievalConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.store import read_manifest, read_pages
from slmsearch.errors import IndexUnusableError
from slmsearch.foreign import cause_of, without_credentials
from slmsearch.keys import content_key
from slmsearch.retrieval import versions
from slmsearch.retrieval.chroma import (
    HNSW_EF_CONSTRUCTION,
    HNSW_MAX_NEIGHBORS,
    chroma_place,
    fill_collection,
    update_collection,
    verify_collection,
)
from slmsearch.retrieval.embed import Embedder, Progress, Vectors
from slmsearch.retrieval.embedders import load_embedder
from slmsearch.retrieval.lexical import LEXICAL_VERSION, build_lexical
from slmsearch.retrieval.passages import CHUNKER_VERSION, Passage, make_passages
from slmsearch.retrieval.vectors import Keys, partial_directory, remove_chunks, vector_keys, write_vectors
from slmsearch.retrieval.versions import IndexManifest

BYTES_PER_VALUE = 10
"""Bytes on disk per value of a vector, measured: `vectors.npy` takes 4, Chroma's files about 5."""
BYTES_PER_CHAR = 4
"""Bytes on disk per character of a passage, for the lexical index and `passages.jsonl`."""
SPARE_BYTES = 32 << 20
EARLIER_VERSIONS = 3
"""Number of versions whose vectors are reused for equal texts, the current one first."""
UPDATE_FROM = 20_000
"""Number of distinct vectors from which a graph is copied; below, filling a collection takes seconds, and a copy would carry stale
vectors."""
MAX_CHANGED = 0.1
"""Maximum share of added and removed vectors for which another version's graph is copied and updated."""
MAX_STALE = 0.2
"""Maximum share of vectors removed from a graph since it was built whole: each leaves a detour."""


def index_key(pages_digest: str, config: RetrievalConfig, embedder: Embedder | None = None) -> str:
    """Return the key of the version of these pages and settings, without loading a model.

    Raises:
        EmbedderError: the embedder is neither on disk nor available.
    """
    embedder = embedder or load_embedder(config.embedder)
    chunking = {"chunker": CHUNKER_VERSION, "max_chars": config.max_passage_chars, "lexical": LEXICAL_VERSION}
    hnsw = {"ef_construction": HNSW_EF_CONSTRUCTION, "max_neighbors": HNSW_MAX_NEIGHBORS}
    made_with = [embedder.id, embedder.revision]
    return content_key(format=versions.FORMAT_VERSION, pages=pages_digest, embedder=made_with, chunking=chunking, hnsw=hnsw)


def build_index(
    corpus_dir: Path,
    index_dir: Path,
    config: RetrievalConfig,
    progress: Progress | None = None,
    embedder: Embedder | None = None,
    current: bool = True,
) -> str:
    """Build the version of a corpus' pages unless it is complete; point `CURRENT` to it and return its key.

    Vectors of equal passages are reused from earlier versions of the same embedder and from a killed build of this version.

    Args:
        corpus_dir: directory of a materialised corpus.
        progress: called with the number of passages embedded and their total.
        embedder: replaces the configured one.
        current: point `CURRENT` to the version; False for an index that is searched once, such as that of a night's fresh world.

    Raises:
        CorpusError: the corpus is missing or damaged.
        EmbedderError: the embedder is missing or does not answer.
        IndexUnusableError: the version cannot be written or fails its checks; only its vectors remain, and `CURRENT` is unchanged.
    """
    corpus = read_manifest(corpus_dir)
    embedder = embedder or load_embedder(config.embedder)
    key = index_key(corpus.pages_digest, config, embedder)
    if not versions.is_complete(index_dir / key):
        with _disk_failures(index_dir), partial_directory(index_dir, key) as partial:
            # Another process may have built the same version meanwhile.
            if not versions.is_complete(index_dir / key):
                _build_version(corpus_dir, index_dir / key, config, embedder, partial, progress)
            remove_chunks(partial)
    if current and versions.current_key(index_dir) != key:
        versions.set_current(index_dir, key)
    return key


def _build_version(
    corpus_dir: Path, target: Path, config: RetrievalConfig, embedder: Embedder, partial: Path, progress: Progress | None
) -> None:
    start = time.monotonic()
    library = Library(read_pages(corpus_dir))
    passages = list(make_passages(library, config.max_passage_chars))
    earlier = _earlier_versions(target.parent, embedder)
    _require_space(target.parent, passages, earlier[0].dimension if earlier else embedder.dimension)
    with staging_directory(target.parent, target.name) as staging:
        paths = [target.parent / version.key for version in earlier]
        known = [(versions.read_keys(path)[0], np.load(path / versions.VECTORS, mmap_mode="r")) for path in paths]
        texts = [passage.text for passage in passages]
        text_keys, embedded = write_vectors(staging / versions.VECTORS, texts, embedder, known, partial, progress)
        _write_passages(staging / versions.PASSAGES, library, passages)
        build_lexical(texts, staging / versions.LEXICAL)
        vectors = np.load(staging / versions.VECTORS, mmap_mode="r")
        keys = vector_keys(vectors)
        np.save(staging / versions.KEYS, np.stack([text_keys, keys], axis=1))
        base, stale = _store_vectors(staging, target, keys, vectors, earlier, config)
        place = chroma_place(staging, target.name, config)
        manifest = IndexManifest(
            key=target.name,
            pages_digest=read_manifest(corpus_dir).pages_digest,
            embedder_id=embedder.id,
            embedder_revision=embedder.revision,
            dimension=int(vectors.shape[1]),
            pages=len(library),
            passages=len(passages),
            max_passage_chars=config.max_passage_chars,
            hnsw_ef_construction=HNSW_EF_CONSTRUCTION,
            hnsw_max_neighbors=HNSW_MAX_NEIGHBORS,
            chunker_version=CHUNKER_VERSION,
            lexical_version=LEXICAL_VERSION,
            embedded=embedded,
            base=base,
            stale=stale,
            chroma_url=config.chroma_url and without_credentials(config.chroma_url),
            files_key=versions.files_key(staging),
            recall=round(verify_collection(place, keys, vectors), 4),
            seconds=round(time.monotonic() - start, 2),
        )
        (staging / versions.MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")
        publish(staging, target, versions.is_complete, versions.unsealed_files(staging))


def _earlier_versions(index_dir: Path, embedder: Embedder) -> list[IndexManifest]:
    """Return complete versions of an embedder, the current one first, then the newest."""
    made = [v for v in versions.list_versions(index_dir) if (v.embedder_id, v.embedder_revision) == (embedder.id, embedder.revision)]
    current = versions.current_key(index_dir)
    made.sort(key=lambda v: (v.key == current, (index_dir / v.key / versions.MANIFEST).stat().st_mtime), reverse=True)
    return [version for version in made[:EARLIER_VERSIONS] if versions.is_complete(index_dir / version.key)]


def _store_vectors(
    staging: Path, target: Path, keys: Keys, vectors: Vectors, earlier: Sequence[IndexManifest], config: RetrievalConfig
) -> tuple[str | None, int]:
    """Fill the collection, or update a copy of an earlier one; return the key of that version, and the number of vectors its graph has
    lost."""
    place = chroma_place(staging, target.name, config)
    held = np.unique(keys)
    for version in earlier if len(held) >= UPDATE_FROM else ():
        kept = np.unique(versions.read_keys(target.parent / version.key)[1])
        gone, new = np.setdiff1d(kept, held, assume_unique=True), np.setdiff1d(held, kept, assume_unique=True)
        same_graph = (version.hnsw_ef_construction, version.hnsw_max_neighbors) == (HNSW_EF_CONSTRUCTION, HNSW_MAX_NEIGHBORS)
        stale = version.stale + len(gone)
        close = len(gone) + len(new) <= MAX_CHANGED * len(held) and stale <= MAX_STALE * len(held)
        whole = versions.find_graph_damage(target.parent / version.key) is None
        if isinstance(place, Path) and version.chroma_url is None and same_graph and close and whole:
            shutil.copytree(target.parent / version.key / versions.CHROMA, place)
            update_collection(place, keys, vectors, kept)
            return version.key, stale
    fill_collection(place, keys, vectors)
    return None, 0


def _write_passages(path: Path, library: Library, passages: Sequence[Passage]) -> None:
    titles = {page.id: page.title for page in library.pages()}
    with path.open("w", encoding="utf-8") as file:
        for passage in passages:
            # Only a page's first row holds the title.
            row = {"page_id": passage.page_id, "section_id": passage.section_id, "title": titles.pop(passage.page_id, None)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _require_space(directory: Path, passages: Sequence[Passage], dimension: int) -> None:
    """Check disk space before embedding, which takes minutes."""
    needed = len(passages) * dimension * BYTES_PER_VALUE + sum(len(passage.text) for passage in passages) * BYTES_PER_CHAR + SPARE_BYTES
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise IndexUnusableError(
            f"the index needs about {needed >> 20} MB of disk space and {directory} has {free >> 20} MB; free some or set paths.data_dir"
        )


@contextmanager
def _disk_failures(directory: Path) -> Iterator[None]:
    """Convert errors of writing to one with the cause; Chroma reports a full disk in its own ways."""
    from chromadb.errors import ChromaError

    try:
        yield
    except OSError as error:
        # NumPy reports a short write without an errno.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)
        remedy = "no disk space left: free some or set paths.data_dir" if full else "check the directory and its permissions"
        raise IndexUnusableError(f"the index cannot be written to {directory} ({error.strerror or error}); {remedy}") from error
    except (ChromaError, sqlite3.Error) as error:
        cause = cause_of(error)
        raise IndexUnusableError(f"Chroma cannot write to {directory} ({cause}); check disk space and permissions there") from error
