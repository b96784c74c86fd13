"""Vectors of an index version: reused for texts that were embedded before, embedded otherwise.

New vectors are stored in chunks beside the versions (`.partial-<key>/`) until the version is published, so that a killed build resumes.
Memory holds one chunk; the rest is memory-mapped.
"""

import hashlib
import mmap
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from slmsearch.artifacts.files import replace_file
from slmsearch.retrieval.embed import Embedder, Progress, Vectors

CHUNK = 8192
"""Number of texts embedded between two writes: some seconds to a minute of work."""
PARTIAL_PREFIX = ".partial-"
LOCK_PREFIX = ".building-"
Keys = NDArray[np.uint64]
Known = tuple[Keys, Vectors]
"""Keys of texts and their vectors, row by row."""


@contextmanager
def partial_directory(index_dir: Path, key: str) -> Iterator[Path]:
    """Lock the chunks of a version and yield their directory; a second builder of the same version waits. On exit, an empty one is
    removed."""
    partial = index_dir / f"{PARTIAL_PREFIX}{key}"
    index_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(lock_path(index_dir, key)):  # outside, since the directory is removed while others wait
        partial.mkdir(exist_ok=True)
        try:
            yield partial
        finally:
            if not any(partial.glob("*.npz")):
                shutil.rmtree(partial, ignore_errors=True)


def lock_path(index_dir: Path, key: str) -> Path:
    """Return the lock of a version's builders; it stays as long as the version."""
    return index_dir / f"{LOCK_PREFIX}{key}"


def remove_chunks(partial: Path) -> None:
    """Remove the chunks of a published version."""
    for path in partial.glob("*.npz"):
        path.unlink(missing_ok=True)


def write_vectors(
    target: Path, texts: Sequence[str], embedder: Embedder, earlier: Sequence[Known], partial: Path, progress: Progress | None
) -> tuple[Keys, int]:
    """Write the vectors of all passages as one `.npy` file; return the keys of their texts, and the number that had to be embedded.

    Args:
        target: file, float32 `(n, dimension)`.
        texts: texts of the passages; those with the same key have the same vector.
        embedder: embedder of the texts without a known vector.
        earlier: vectors of other versions of the same embedder.
        partial: directory with chunks of this version embedded before.
        progress: called with the number of passages done and their total.
    """
    keys = np.array([hash_bytes(text.encode()) for text in texts], dtype=np.uint64)
    unique, first_rows, places = np.unique(keys, return_index=True, return_inverse=True)
    # A version without new texts is written without loading the model.
    dimension = earlier[0][1].shape[1] if earlier else embedder.dimension
    out = np.lib.format.open_memmap(target, mode="w+", dtype=np.float32, shape=(len(keys), dimension))
    missing = np.ones(len(unique), dtype=bool)

    for known in (*earlier, *_chunks(partial, dimension)):
        _place(out, places, unique, missing, known)
    # Corpus order, so that a page's passages share a chunk.
    waiting = sorted(int(row) for row in first_rows[missing])
    done = len(unique) - len(waiting)
    for start in range(0, len(waiting), CHUNK):
        rows = waiting[start : start + CHUNK]
        shown = progress and _shifted(progress, done + start, len(unique))
        chunk = (keys[rows], embedder.encode([texts[row] for row in rows], shown))
        with replace_file(partial / f"{int(chunk[0].min()):016x}.npz") as file:
            np.savez(file, keys=chunk[0], vectors=chunk[1])
        _place(out, places, unique, missing, chunk)
    out.flush()
    if progress:
        progress(len(unique), len(unique))
    return keys, len(waiting)


def hash_bytes(content: bytes) -> int:
    """Hash to 64 bits: among a million texts the probability that any two share a hash is 3e-8."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def vector_keys(vectors: Vectors) -> Keys:
    """Hash each vector; rows with the same key have the same vector, which Chroma stores once.

    Many copies of one vector would be each other's only neighbours in the graph, and hide the other vectors from a search.
    """
    keys = np.empty(len(vectors), dtype=np.uint64)
    for start in range(0, len(vectors), CHUNK):
        block = read_rows(vectors, slice(start, start + CHUNK))
        keys[start : start + len(block)] = [hash_bytes(vector.tobytes()) for vector in block]
    return keys


class RowsByKey:
    """Lookup of the rows with a key."""

    def __init__(self, keys: Keys) -> None:
        """Sort the keys of all rows; a row has one key, a key any number of rows."""
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def of(self, wanted: Keys) -> NDArray[np.int64]:
        """Return the rows of distinct keys, in the order of the keys, a key's rows ascending; none for an unknown key."""
        starts = np.searchsorted(self._sorted, wanted, side="left")
        counts = np.searchsorted(self._sorted, wanted, side="right") - starts
        before = np.cumsum(counts) - counts
        rows: NDArray[np.int64] = self._order[np.repeat(starts - before, counts) + np.arange(counts.sum())]
        return rows


def read_rows(vectors: Vectors, rows: NDArray[np.int64] | slice) -> Vectors:
    """Copy rows; for a mapped file, release the pages of memory just read, so that a full pass takes no memory.

    Pages that a process has read count as its memory until the system needs them elsewhere: two thirds of a gigabyte per 400,000 rows of
    384 values.
    """
    copied = np.array(vectors[rows])
    if isinstance(vectors, np.memmap) and vectors.mode == "r" and isinstance(vectors.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        vectors.base.madvise(mmap.MADV_DONTNEED)
    return copied


def _place(out: Vectors, places: NDArray[np.int64], unique: Keys, missing: NDArray[np.bool_], known: Known) -> None:
    """Copy the missing vectors to their rows."""
    keys, vectors = known
    at = np.minimum(np.searchsorted(unique, keys), len(unique) - 1)
    known_rows = np.flatnonzero(unique[at] == keys)
    source = np.full(len(unique), -1)
    source[at[known_rows]] = known_rows
    source[~missing] = -1
    wanted = np.flatnonzero(source[places] >= 0)
    for start in range(0, len(wanted), CHUNK):
        rows = wanted[start : start + CHUNK]
        out[rows] = vectors[source[places[rows]]]
    missing &= source < 0


def _chunks(partial: Path, dimension: int) -> Iterator[Known]:
    """Load the chunks of an interrupted build; an unreadable chunk is embedded again."""
    for path in sorted(partial.glob("*.npz")):
        try:
            with np.load(path) as chunk:
                keys, vectors = chunk["keys"], chunk["vectors"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            path.unlink(missing_ok=True)
            continue
        if len(keys) and vectors.shape == (len(keys), dimension):
            yield keys, vectors


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    return lambda here, _: progress(done + here, total)
