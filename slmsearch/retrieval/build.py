"""Building an index version: embed what is new, store, verify, publish.

Not here: pruning old versions, and deciding which version a run takes.
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
"""Measured: `vectors.npy` holds 4, Chroma's files about 5."""
BYTES_PER_CHAR = 4
"""The lexical index, and the places in `passages.jsonl`."""
SPARE_BYTES = 32 << 20
EARLIER_VERSIONS = 3
"""Versions whose vectors are taken over where the texts are the same; the current one comes first."""
UPDATE_FROM = 20_000
"""Distinct vectors; below, filling a collection takes seconds and a copy is not worth its traces."""
MAX_CHANGED = 0.1
"""Part of the vectors that may be new or gone when another version's graph is copied and brought up to date."""
MAX_STALE = 0.2
"""Part of the vectors that may have been dropped from a graph since it was built whole: each leaves a detour in it."""


def index_key(pages_digest: str, config: RetrievalConfig, embedder: Embedder | None = None) -> str:
    """Name the version that these pages and settings make; loads no model.

    Raises:
        EmbedderError: the embedder is neither on disk nor to be had.
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
    """Build the version of a corpus' pages, or find it complete; point `CURRENT` to it and return its key.

    Passages that an earlier version of the same embedder holds are not embedded again, nor those that a killed build of this version has
    already embedded.

    Args:
        corpus_dir: a materialised corpus.
        progress: called with passages embedded and their total.
        embedder: takes the place of the configured one.
        current: point `CURRENT` to it; False for what is searched once, such as a night's fresh world.

    Raises:
        CorpusError: the corpus is missing or damaged.
        EmbedderError: the embedder is missing or does not answer.
        IndexUnusableError: the version cannot be written or fails its checks; nothing of it stays but vectors, `CURRENT` is as it was.
    """
    corpus = read_manifest(corpus_dir)
    embedder = embedder or load_embedder(config.embedder)
    key = index_key(corpus.pages_digest, config, embedder)
    if not versions.is_complete(index_dir / key):
        with _disk_failures(index_dir), partial_directory(index_dir, key) as partial:
            # Another builder of the same version may have been faster.
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
    """Return complete versions made by an embedder, the current one first, then the newest."""
    made = [v for v in versions.list_versions(index_dir) if (v.embedder_id, v.embedder_revision) == (embedder.id, embedder.revision)]
    current = versions.current_key(index_dir)
    made.sort(key=lambda v: (v.key == current, (index_dir / v.key / versions.MANIFEST).stat().st_mtime), reverse=True)
    return [version for version in made[:EARLIER_VERSIONS] if versions.is_complete(index_dir / version.key)]


def _store_vectors(
    staging: Path, target: Path, keys: Keys, vectors: Vectors, earlier: Sequence[IndexManifest], config: RetrievalConfig
) -> tuple[str | None, int]:
    """Fill the collection, or bring a copy of an earlier one up to date; return whose, and how many vectors its graph has lost."""
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
        cause = cause_of(error)
        raise IndexUnusableError(f"Chroma cannot write to {directory} ({cause}); check disk space and permissions there") from error
