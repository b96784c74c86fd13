"""Files that are replaced atomically, and hashes of their content."""

import functools
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from slmsearch.artifacts.writers import writer_mark

STAGING_PREFIX = ".tmp-"


def file_hash(path: Path) -> str:
    """Return the sha256 of a file's bytes, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_hash(path: Path) -> str:
    """Return `file_hash`, cached until time or size changes: weights of several gigabytes take seconds to read."""
    found = path.stat()
    return _hash(path, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=256)
def _hash(path: Path, _mtime_ns: int, _num_bytes: int) -> str:
    return file_hash(path)


def replace_text(path: Path, text: str, private: bool = False) -> None:
    """Replace a file's text atomically: a reader sees the old or the new text, also after a power cut. Only the user may read a private
    file."""
    with replace_file(path, 0o600 if private else 0o666) as file:
        file.write(text.encode())


def replace_json(path: Path, value: object) -> None:
    """Replace a file atomically by a value as JSON."""
    replace_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file; empty if the file is missing or unreadable."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


@contextmanager
def replace_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a binary file for writing that replaces `path` atomically at the end; the umask applies to `mode`."""
    staging = path.with_name(f"{STAGING_PREFIX}{path.name}-{writer_mark()}")
    try:
        with open(staging, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Flush the names in a directory to disk, so that they survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
