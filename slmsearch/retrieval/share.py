"""Index versions on shared or object storage: copies of whole versions under a URL that fsspec understands.

`URL/<key>/...` holds the files of a version, its manifest written last, so that a copy without one does not exist. What is pulled is
checked against its manifest before it takes its place.
"""

import json
from pathlib import Path
from typing import Any

from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval import versions
from slmsearch.staging import publish, staging_directory


def push_version(index_dir: Path, key: str, url: str) -> bool:
    """Copy a version to a URL; return whether it was not there yet.

    Raises:
        IndexUnusableError: the version is missing or damaged, or the storage refuses.
    """
    versions.read_version(index_dir, key)
    version = index_dir / key
    if not versions.is_complete(version):
        raise IndexUnusableError(f"index version {key} is damaged: its files do not match its manifest; {versions.REMEDY}")
    store, root = _storage(url)
    with versions.lease(version):
        try:
            if store.exists(f"{root}/{key}/{versions.MANIFEST}"):
                return False
            files = sorted(path.relative_to(version).as_posix() for path in version.rglob("*") if path.is_file())
            for name in sorted(files, key=lambda name: (name == versions.MANIFEST, name)):
                store.makedirs(f"{root}/{key}/{name}".rpartition("/")[0], exist_ok=True)
                store.put_file(str(version / name), f"{root}/{key}/{name}")
        except Exception as error:  # every storage raises its own
            raise _refused(url, error) from error
    return True


def pull_version(index_dir: Path, key: str, url: str) -> bool:
    """Copy a version from a URL to its place; return whether it was not here yet. `CURRENT` is left alone.

    Raises:
        IndexUnusableError: the storage has no such version or refuses, or what came does not match its manifest.
    """
    if not key or "/" in key or key.startswith("."):
        raise IndexUnusableError(f"{key!r} is no index key; list them with `slmsearch index list`")
    if versions.is_complete(index_dir / key):
        return False
    store, root = _storage(url)
    with staging_directory(index_dir, key) as staging:
        try:
            if not store.exists(f"{root}/{key}/{versions.MANIFEST}"):
                raise IndexUnusableError(f"{url} has no complete index version {key}; push it there with `slmsearch index push`")
            for found in store.find(f"{root}/{key}"):
                name = found.rpartition(f"/{key}/")[2]
                target = staging / name
                if not target.resolve().is_relative_to(staging.resolve()):
                    raise IndexUnusableError(f"{url} holds a file {name!r} outside the version; remove it")
                target.parent.mkdir(parents=True, exist_ok=True)
                store.get_file(found, str(target))
        except IndexUnusableError:
            raise
        except Exception as error:  # every storage raises its own
            raise _refused(url, error) from error
        if not _matches(staging):
            raise IndexUnusableError(f"index version {key} at {url} is damaged: its files do not match its manifest; push it again")
        publish(staging, index_dir / key, versions.is_complete, versions.unsealed_files(staging))
    return True


def _matches(staging: Path) -> bool:
    """Say whether the files fit the manifest, whose key is not the directory's name yet."""
    try:
        recorded = json.loads((staging / versions.MANIFEST).read_text(encoding="utf-8"))["files_key"]
        return bool(recorded == versions.files_key(staging)) and versions.find_graph_damage(staging) is None
    except (OSError, ValueError, KeyError):
        return False


def _storage(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        store, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise IndexUnusableError(
            f"{url} cannot be opened ({error}); give a folder or a URL that fsspec knows, as s3://bucket/indexes"
        ) from error
    return store, str(root).rstrip("/")


def _refused(url: str, error: Exception) -> IndexUnusableError:
    return IndexUnusableError(
        f"{url} refuses ({' '.join(str(error).split())[:200] or type(error).__name__}); check address and credentials"
    )
