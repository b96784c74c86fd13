"""Artifacts on shared or object storage: copies of whole directories under a URL that fsspec understands.

    URL/<name>/...            the files
    URL/<name>.json           sha256 of each, written last: without it the copy does not exist

Names end in content keys, so an existing copy is never overwritten. Fetched files are checked against the list before they are published,
and a list cannot name files outside its directory.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from slmsearch.artifacts.directories import SEAL, find_damage, hash_files, publish, staging_directory
from slmsearch.artifacts.files import file_hash
from slmsearch.errors import ServiceError
from slmsearch.foreign import cause_of


def share(directory: Path, url: str, name: str, changing: Collection[str] = ()) -> bool:
    """Copy a directory to a URL; return True if the copy is new.

    Args:
        directory: directory to copy.
        url: folder or URL, such as s3://bucket/slmsearch.
        name: kind and content key, such as `corpora/0123abcd`.
        changing: files that readers may change meanwhile; they are copied and not checked.

    Raises:
        ServiceError: the storage refuses, or a file vanished meanwhile.
    """
    with _storage(url, name) as (store, place):
        if store.exists(f"{place}.json"):
            return False
        files = {**dict.fromkeys(changing, ""), **hash_files(directory, changing)}
        if (directory / SEAL).is_file():  # a file like others here
            files[SEAL] = file_hash(directory / SEAL)
        for file in files:
            store.makedirs(f"{place}/{file}".rpartition("/")[0], exist_ok=True)
            store.put_file(str(directory / file), f"{place}/{file}")
        store.pipe_file(f"{place}.json", json.dumps({"files": files}, sort_keys=True).encode())
    return True


def fetch(url: str, name: str, directory: Path, is_complete: Callable[[Path], bool] = Path.is_dir) -> bool:
    """Copy a directory that is named by its content from a URL to its place; return True if it is new here. See `share`.

    Raises:
        ServiceError: the storage has no such copy or refuses, or the files differ from the list.
    """
    if is_complete(directory):
        return False
    with staging_directory(directory.parent, directory.name) as staging, _storage(url, name) as (store, place):
        try:
            listed: dict[str, str] = json.loads(store.cat_file(f"{place}.json"))["files"]
            for file in map(_inside, listed):
                (staging / file).parent.mkdir(parents=True, exist_ok=True)
                store.get_file(f"{place}/{file}", str(staging / file))
        except FileNotFoundError as error:
            raise ServiceError(f"{url} holds no complete {name}; share it again") from error
        if find_damage(staging, {file: digest for file, digest in listed.items() if digest}):
            raise ServiceError(f"{name} at {url} is damaged: its files do not match its list; delete it there and share it again")
        publish(staging, directory, is_complete, unsealed=None)
    return True


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise ServiceError(f"a list of files names {name!r}, which is outside its directory; check who can write to the storage")
    return name


@contextmanager
def _storage(url: str, name: str) -> Iterator[tuple[Any, str]]:
    """Open the storage behind a URL and yield it with the path of the copy; errors of every storage become a ServiceError."""
    import fsspec

    try:
        store, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise ServiceError(f"{url} cannot be opened ({error}); give a folder or a URL that fsspec knows, as s3://bucket/folder") from error
    try:
        yield store, f"{str(root).rstrip('/')}/{name}"
    except ServiceError:
        raise
    except Exception as error:
        raise ServiceError(f"{url} refuses ({cause_of(error)}); check address and credentials") from error
