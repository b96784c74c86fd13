"""Artefacts on shared or object storage: copies of whole directories under a URL that fsspec understands.

    URL/<kind>/<name>/...            the files
    URL/<kind>/<name>.json           size and sha256 of each, written last: without it the copy does not exist

Names are content keys, so a copy that is there is never written again. What is fetched is checked against its list before it takes its
place, and a list can name nothing outside its directory.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from slmsearch.errors import ServiceError
from slmsearch.staging import SEAL, discard, hash_files, staging_directory

Complete = Callable[[Path], bool]
"""Says whether a directory here holds all it should."""


def share(directory: Path, url: str, kind: str, name: str) -> bool:
    """Copy a directory to a URL; return whether it was not there yet.

    Args:
        directory: what to copy; must not change meanwhile.
        url: folder or URL, such as s3://bucket/slmsearch.
        kind: what it is, such as `corpora`.
        name: content key.

    Raises:
        ServiceError: the storage refuses, or a file went away meanwhile.
    """
    store, root = _storage(url)
    place = f"{root}/{kind}/{name}"
    try:
        if store.exists(f"{place}.json"):
            return False
        files = _hashes(directory)
        for file in files:
            store.makedirs(f"{place}/{file}".rpartition("/")[0], exist_ok=True)
            store.put_file(str(directory / file), f"{place}/{file}")
        store.pipe_file(f"{place}.json", json.dumps({"files": files}, sort_keys=True).encode())
    except Exception as error:  # every storage raises its own
        raise _refused(url, error) from error
    return True


def is_shared(url: str, kind: str, name: str) -> bool:
    """Say whether a complete copy is at a URL.

    Raises:
        ServiceError: the storage refuses.
    """
    store, root = _storage(url)
    try:
        return bool(store.exists(f"{root}/{kind}/{name}.json"))
    except Exception as error:
        raise _refused(url, error) from error


def fetch(url: str, kind: str, name: str, directory: Path, is_complete: Complete = Path.is_dir) -> bool:
    """Copy a directory from a URL to its place; return whether it was not here yet.

    Args:
        url: as for `share`.
        kind: as for `share`.
        name: as for `share`.
        directory: its place, named by its content as well.
        is_complete: says whether it is here already.

    Raises:
        ServiceError: the storage has no such copy or refuses, or what came is not what its list says.
    """
    if is_complete(directory):
        return False
    store, root = _storage(url)
    place = f"{root}/{kind}/{name}"
    with staging_directory(directory.parent, directory.name) as staging:
        try:
            listed = json.loads(store.cat_file(f"{place}.json"))["files"]
            for file in map(_inside, listed):
                (staging / file).parent.mkdir(parents=True, exist_ok=True)
                store.get_file(f"{place}/{file}", str(staging / file))
        except FileNotFoundError as error:
            raise ServiceError(f"{url} holds no complete {kind}/{name}; share it again") from error
        except ServiceError:
            raise
        except Exception as error:
            raise _refused(url, error) from error
        if _hashes(staging) != listed:
            raise ServiceError(f"{kind}/{name} at {url} is damaged: its files are not those of its list; delete it there, share it again")
        _put_in_place(staging, directory, is_complete)
    return True


def forget(url: str, kind: str, name: str) -> None:
    """Remove a copy from a URL; one that is not there is no error.

    Raises:
        ServiceError: the storage refuses.
    """
    store, root = _storage(url)
    place = f"{root}/{kind}/{name}"
    try:
        for path in (f"{place}.json", place):
            if store.exists(path):
                store.rm(path, recursive=True)
    except FileNotFoundError:  # somebody else was faster
        return
    except Exception as error:
        raise _refused(url, error) from error


def _hashes(directory: Path) -> dict[str, str]:
    """Return the sha256 of every file; the seal is a file like others here."""
    found, seal = hash_files(directory), directory / SEAL
    return {**found, SEAL: hashlib.sha256(seal.read_bytes()).hexdigest()} if seal.is_file() else found


def _put_in_place(staging: Path, directory: Path, is_complete: Complete) -> None:
    """Rename without sealing: what comes is sealed already where its kind is, and a seal of ours would change its files."""
    if directory.exists() and not is_complete(directory):
        discard(directory)
    try:
        os.replace(staging, directory)
    except OSError:
        if not is_complete(directory):  # else another process fetched the same
            raise


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise ServiceError(f"a list names the file {name!r}, which lies outside its directory; whoever wrote it is not to be trusted")
    return name


def _storage(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        store, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise ServiceError(f"{url} cannot be opened ({error}); give a folder or a URL that fsspec knows, as s3://bucket/folder") from error
    return store, str(root).rstrip("/")


def _refused(url: str, error: Exception) -> ServiceError:
    said = " ".join(str(error).split())[:200] or type(error).__name__
    return ServiceError(f"{url} refuses ({said}); check address and credentials")
