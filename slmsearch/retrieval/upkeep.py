"""Maintenance of index versions: check, copy, roll back, remove."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from slmsearch.artifacts.directories import remove
from slmsearch.artifacts.sharing import fetch, share
from slmsearch.config import RetrievalConfig
from slmsearch.errors import IndexUnusableError, ServiceError
from slmsearch.foreign import without_credentials
from slmsearch.retrieval import versions
from slmsearch.retrieval.chroma import Server, chroma_place, drop_collection, verify_collection
from slmsearch.retrieval.lexical import LexicalIndex
from slmsearch.retrieval.vectors import PARTIAL_PREFIX, lock_path


def verify_version(index_dir: Path, key: str, config: RetrievalConfig) -> float:
    """Check every file of a version against its manifest, and Chroma's graph against brute force; return its recall.

    Raises:
        IndexUnusableError: a file is missing, changed or damaged.
    """
    from chromadb.errors import ChromaError

    versions.read_version(index_dir, key)
    directory = index_dir / key
    try:
        with versions.lease(directory):
            manifest = versions.require_complete(index_dir, key)
            vectors = np.load(directory / versions.VECTORS, mmap_mode="r")
            keys = versions.read_keys(directory)[1]
            if not len(vectors) == len(keys) == manifest.passages:
                raise IndexUnusableError(
                    f"index version {key} holds {len(vectors)} of {manifest.passages} vectors; delete it and {versions.REMEDY}"
                )
            versions.require_graph(directory)
            LexicalIndex(directory / versions.LEXICAL, manifest.passages)
            return verify_collection(chroma_place(directory, key, config), keys, vectors)
    except (OSError, ValueError, sqlite3.Error, ChromaError) as error:
        raise IndexUnusableError(f"index version {key} cannot be read ({error}); delete it and {versions.REMEDY}") from error


def push_version(index_dir: Path, key: str, url: str) -> bool:
    """Copy a version to a URL; return True if the copy is new.

    Raises:
        IndexUnusableError: the version is missing or damaged, or the storage refuses.
    """
    versions.require_complete(index_dir, key)
    version = index_dir / key
    versions.require_graph(version)
    with versions.lease(version), _storage_errors(key):
        return share(version, url, key, versions.unsealed_files(version))


def pull_version(index_dir: Path, key: str, url: str) -> bool:
    """Copy a version from a URL to its place; return True if it is new here. `CURRENT` is unchanged.

    Raises:
        IndexUnusableError: the storage has no such version or refuses, or the files differ from the pushed ones.
    """
    versions.require_key(key)
    with _storage_errors(key):
        return fetch(url, key, index_dir / key, versions.is_complete)


@contextmanager
def _storage_errors(key: str) -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        raise IndexUnusableError(f"index version {key}: {error} (`slmsearch index push` shares a version)") from error


def roll_back(index_dir: Path, key: str | None = None) -> tuple[str, str]:
    """Point `CURRENT` to a version, by default the previous one, and return the keys before and after.

    Raises:
        IndexUnusableError: there is no earlier version, or it is damaged.
    """
    current = versions.current_key(index_dir)
    if key is None:
        earlier = [name for name in versions.history(index_dir) if name != current and versions.is_complete(index_dir / name)]
        if not earlier:
            raise IndexUnusableError("no earlier index version is left; `slmsearch index list` shows what there is")
        key = earlier[-1]
    versions.require_complete(index_dir, key)
    versions.set_current(index_dir, key)
    return current or "", key


def remove_version(version: Path, config: RetrievalConfig) -> None:
    """Remove a version's directory with its collection on a Chroma server, a directory that is not a version, or what a killed build left.

    Raises:
        IndexUnusableError: the version is the current one, a process reads it, or its Chroma server does not answer; nothing is removed.
    """
    index_dir, key = version.parent, version.name
    with versions.pointer_lock(index_dir):
        if versions.current_key(index_dir) == key:
            raise IndexUnusableError(f"index version {key} is the current one")
        with versions.lease(version, alone=True) if (version / versions.MANIFEST).is_file() else nullcontext():
            manifest = None
            with suppress(IndexUnusableError):  # a version of an older format, or without a readable manifest, has no collection
                manifest = versions.read_version(index_dir, key)
            if manifest is not None:
                named = config.chroma_url  # with user and password, which no manifest holds
                url = named if named and without_credentials(named) == manifest.chroma_url else manifest.chroma_url
                place = chroma_place(version, key, config.model_copy(update={"chroma_url": url}))
                if isinstance(place, Server):
                    drop_collection(place)
            if version.exists():
                remove(version, ignore_errors=False)
    with suppress(Timeout):  # another process builds it again
        remove_partial(index_dir / f"{PARTIAL_PREFIX}{key}")


def remove_partial(partial: Path, config: RetrievalConfig | None = None) -> None:
    """Remove the vectors of a killed build of a version, and unless the version exists the lock of its builders.

    With `config` also what it put on the Chroma server.

    Raises:
        Timeout: a process builds the version.
        IndexUnusableError: the server does not answer; nothing is removed.
    """
    index_dir, key = partial.parent, partial.name.removeprefix(PARTIAL_PREFIX)
    lock = lock_path(index_dir, key)
    with FileLock(lock, timeout=0):
        place = chroma_place(index_dir / key, key, config) if config and not (index_dir / key).exists() else None
        if isinstance(place, Server):
            drop_collection(place)
        shutil.rmtree(partial, ignore_errors=True)
        if not (index_dir / key).exists():
            lock.unlink(missing_ok=True)
