"""Looking after index versions: checking them, going back to an earlier one, removing those that nobody needs."""

import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from slmsearch.artifacts.directories import remove, remove_abandoned
from slmsearch.artifacts.sharing import fetch, share
from slmsearch.config import RetrievalConfig
from slmsearch.errors import IndexUnusableError, ServiceError
from slmsearch.retrieval import versions
from slmsearch.retrieval.chroma import Server, chroma_place, drop_collection, verify_collection
from slmsearch.retrieval.lexical import LexicalIndex
from slmsearch.retrieval.vectors import LOCK_PREFIX, PARTIAL_PREFIX, lock_path

KEPT = 1
"""Versions kept besides those in use, for going back."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What pruning does with one directory."""

    name: str
    size: int
    """Bytes."""
    reason: str
    goes: bool
    """Whether it was removed; in a dry run, whether it would be."""


def verify_version(index_dir: Path, key: str, config: RetrievalConfig) -> float:
    """Check every file of a version against its manifest, and Chroma's graph against brute force; return its recall.

    Raises:
        IndexUnusableError: something is missing, changed or damaged.
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
    """Copy a version to a URL; return whether it was not there yet.

    Raises:
        IndexUnusableError: the version is missing or damaged, or the storage refuses.
    """
    versions.require_complete(index_dir, key)
    version = index_dir / key
    versions.require_graph(version)
    with versions.lease(version), _storage_errors(key):
        return share(version, url, key, versions.unsealed_files(version))


def pull_version(index_dir: Path, key: str, url: str) -> bool:
    """Copy a version from a URL to its place; return whether it was not here yet. `CURRENT` is left alone.

    Raises:
        IndexUnusableError: the storage has no such version or refuses, or what came is not what was pushed.
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
    """Point `CURRENT` to a version, without a key to the one that was current before, and return the keys before and after.

    Raises:
        IndexUnusableError: there is none to go back to, or it is damaged.
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


def prune(index_dir: Path, config: RetrievalConfig, in_use: Collection[str], keep: int = KEPT, dry_run: bool = False) -> list[Removal]:
    """Remove versions that nobody needs, and what killed builds and removals left.

    A version stays that `CURRENT` names, that is in use, that somebody has open, or that is among the last current ones.

    Args:
        index_dir: parent of the versions.
        config: token of the Chroma server, where one holds vectors.
        in_use: keys that runs and promoted models stand on.
        keep: versions kept besides those, the last current ones first.
        dry_run: only say what would be removed.

    Returns:
        One entry a directory, those that stay included.
    """
    if not index_dir.is_dir():
        return []
    with versions.pointer_lock(index_dir):
        found = [] if dry_run else [Removal(name, 0, "left by a killed process", True) for name in remove_abandoned(index_dir)]
        current = versions.current_key(index_dir)
        names = sorted(path.name for path in index_dir.iterdir() if path.is_dir() and not path.name.startswith("."))
        spare = [name for name in reversed(versions.history(index_dir)) if name in names and name != current and name not in in_use]
        for name in names:
            stays = "current" if name == current else "in use" if name in in_use else "kept to go back to" if name in spare[:keep] else None
            found.append(_removed(index_dir / name, stays, config, dry_run))
        found += [_partial_removed(path, dry_run) for path in sorted(index_dir.glob(f"{PARTIAL_PREFIX}*"))]
        if not dry_run:
            _remove_locks(index_dir)
    return found


def _removed(version: Path, stays: str | None, config: RetrievalConfig, dry_run: bool) -> Removal:
    size = _size(version)
    if stays is not None:
        return Removal(version.name, size, stays, False)
    try:
        held = versions.lease(version, alone=True)
    except IndexUnusableError:
        return Removal(version.name, size, "being read", False)
    except OSError:
        held = None
    with held or nullcontext():
        if not dry_run:
            _drop_from_server(version, config)
            remove(version)
    return Removal(version.name, size, "nobody needs it" if held else "no version: it has no manifest", True)


def _drop_from_server(version: Path, config: RetrievalConfig) -> None:
    with suppress(IndexUnusableError):  # a version of an older format, or one without a readable manifest: it has no collection of ours
        manifest = versions.read_version(version.parent, version.name)
        place = chroma_place(version, version.name, config.model_copy(update={"chroma_url": manifest.chroma_url}))
        if isinstance(place, Server):
            drop_collection(place)


def _partial_removed(partial: Path, dry_run: bool) -> Removal:
    size = _size(partial)
    try:
        with FileLock(lock_path(partial.parent, partial.name.removeprefix(PARTIAL_PREFIX)), timeout=0):
            if not dry_run:
                shutil.rmtree(partial, ignore_errors=True)
            return Removal(partial.name, size, "left by a killed build", True)
    except Timeout:
        return Removal(partial.name, size, "being built", False)


def _remove_locks(index_dir: Path) -> None:
    """Remove the locks of versions that are gone and that nobody builds."""
    for path in index_dir.glob(f"{LOCK_PREFIX}*"):
        if not (index_dir / path.name.removeprefix(LOCK_PREFIX)).exists():
            with suppress(Timeout), FileLock(path, timeout=0):
                path.unlink()


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
