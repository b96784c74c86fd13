"""Directories and files that appear whole or not at all.

An artefact is written to `.tmp-<name>-<pid>` beside its place and renamed there when it is complete; a killed writer leaves
only such a directory behind, which the next writer removes.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import psutil

from slmsearch.keys import content_key

STAGING_PREFIX = ".tmp-"
SEAL = "seal.json"
"""File in an artefact's directory with the sha256 of every file that must never change; it also holds a hash of itself."""


@contextmanager
def staging_directory(parent: Path, name: str) -> Iterator[Path]:
    """Give a temporary directory in `parent` to fill and `publish`; what is left of it at the end is removed.

    Args:
        parent: where the artefact will stand; made if missing.
        name: of the artefact, or of what is being made while its name is not known.
    """
    parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(parent)
    staging = parent / f"{STAGING_PREFIX}{name}-{os.getpid()}"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def seal(directory: Path, skipped: Collection[str] = ()) -> None:
    """Write down what every file of a finished artefact holds, so that a byte changed later can be named.

    Args:
        directory: the artefact, complete but for this.
        skipped: top-level names and files left out: what is opened for writing later, what may grow.
    """
    files = hash_files(directory, skipped)
    replace_text(directory / SEAL, json.dumps({"files": files, "key": content_key(files=files)}, indent=1) + "\n")


def hash_files(directory: Path, skipped: Collection[str] = ()) -> dict[str, str]:
    """Return the sha256 of every file of a directory by its relative name; the seal and what is left out do not count."""
    found: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if path.is_file() and not {name.parts[0], name.as_posix()} & {SEAL, *skipped}:
            found[name.as_posix()] = file_hash(path)
    return found


def file_hash(path: Path) -> str:
    """Return the sha256 of a file's bytes, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_seal(directory: Path) -> dict[str, str] | None:
    """Return what a seal says of each file; None where there is none.

    Raises:
        ValueError: the seal itself was changed.
    """
    try:
        found = json.loads((directory / SEAL).read_text(encoding="utf-8"))
        files = {str(name): str(digest) for name, digest in found["files"].items()}
        recorded = found["key"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("it cannot be read") from error
    if content_key(files=files) != recorded:
        raise ValueError("it does not agree with itself")
    return files


def publish(staging: Path, target: Path, is_complete: Callable[[Path], bool], unsealed: Collection[str] = ()) -> None:
    """Seal a filled directory and rename it to its place; a complete one that stands there stays, a damaged one is replaced.

    Args:
        staging: the directory.
        target: its place.
        is_complete: says whether what stands there is complete.
        unsealed: files that the seal leaves out.
    """
    seal(staging, unsealed)
    for file in staging.rglob("*"):
        if file.is_file():
            with file.open("r+b" if os.name == "nt" else "rb") as stream:  # Windows syncs what may be written alone
                os.fsync(stream.fileno())
    if target.exists():
        if is_complete(target):
            return
        discard(target)
    try:
        staging.replace(target)
    except OSError:
        # Another writer of the same content was faster.
        if not is_complete(target):
            raise
    _sync_directory(target.parent)


def discard(target: Path) -> None:
    """Remove a directory; renaming it first keeps readers from seeing one that is half deleted."""
    broken = target.with_name(f"{STAGING_PREFIX}{target.name}-broken-{os.getpid()}")
    target.replace(broken)
    shutil.rmtree(broken, ignore_errors=True)


def find_abandoned(directory: Path) -> list[Path]:
    """Find temporary directories and files whose writer no longer lives."""
    found = []
    for staging in sorted(directory.glob(f"{STAGING_PREFIX}*-*")):
        pid = staging.name.rpartition("-")[2]
        if pid.isdecimal() and not _lives(int(pid)):
            found.append(staging)
    return found


def remove_abandoned(directory: Path) -> list[str]:
    """Remove temporary directories and files whose writer no longer lives; return their names."""
    found = find_abandoned(directory)
    for staging in found:
        if staging.is_dir():
            shutil.rmtree(staging, ignore_errors=True)
        else:
            staging.unlink(missing_ok=True)
    return [staging.name for staging in found]


def replace_text(path: Path, text: str, private: bool = False) -> None:
    """Replace a file's text in one step: a reader sees the old or the new, also after a power cut.

    Args:
        path: file.
        text: what it says from now on.
        private: nobody but its user may read it, not for a moment.
    """
    with replace_file(path, 0o600 if private else 0o666) as file:
        file.write(text.encode())


@contextmanager
def replace_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Give a binary file to write, which takes the place of `path` in one step at the end; `mode` is what the umask leaves of it."""
    staging = path.with_name(f"{STAGING_PREFIX}{path.name}-{os.getpid()}")
    try:
        with open(staging, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":  # Windows opens no directories
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.pid_exists(pid))  # on Windows, os.kill(pid, 0) is Ctrl-C
    except OverflowError:
        return True
