"""Directories that appear whole or not at all.

A writer fills `.tmp-<name>-<pid>@<scope>` beside the target and renames it when it is complete. A killed writer leaves only such a
directory, which the next writer removes.
"""

import glob
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from slmsearch.artifacts.files import STAGING_PREFIX, file_hash, read_json, replace_text, sync_directory
from slmsearch.artifacts.writers import is_abandoned, writer_mark
from slmsearch.errors import ConfigError
from slmsearch.keys import content_key

SEAL = "seal.json"
"""File in an artifact's directory with the sha256 of every file that must never change; it also holds a hash of itself."""


@contextmanager
def staging_directory(parent: Path, name: str) -> Iterator[Path]:
    """Create a temporary directory in `parent` to fill and to `publish` under a name; on exit, remove it if it still exists."""
    parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(parent)
    with _emptied(parent / f"{STAGING_PREFIX}{name}-{writer_mark()}") as staging:
        yield staging


@contextmanager
def replaced_directory(out: Path, sealed: bool = False) -> Iterator[Path]:
    """Create a directory to fill; on exit, it replaces `out`.

    The old directory is removed only then. If filling fails, the new one is removed.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(out.parent, out.name)
    with _emptied(out.with_name(f"{STAGING_PREFIX}{out.name}-{writer_mark()}")) as staging:
        yield staging
        if sealed:
            seal(staging)
        _sync_files(staging)
        before = _put_aside(out) if out.exists() else None
        staging.replace(out)
        if before:
            shutil.rmtree(before, ignore_errors=True)
        sync_directory(out.parent)


def require_replaceable(out: Path) -> None:
    """Check that a directory that a user names for a result is missing, empty, or an earlier result as it was sealed.

    Raises:
        ConfigError: it holds something else, which the result would delete.
    """
    sealed = read_json(out / SEAL).get("files", {})
    found = (path for path in out.rglob("*") if path.is_symlink() or not path.is_dir())
    names = (path.relative_to(out).as_posix() for path in found)
    foreign = "a file" if out.exists() and not out.is_dir() else next((name for name in names if name not in {SEAL, *sealed}), None)
    if foreign is not None:
        raise ConfigError(f"{out} holds {foreign}, which would be deleted, and which no earlier result wrote: name another directory")


@contextmanager
def _emptied(staging: Path) -> Iterator[Path]:
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def seal(directory: Path, skipped: Collection[str] = ()) -> None:
    """Record the sha256 of every file of a finished artifact, so that a later change can be traced to its file.

    `skipped` names top-level entries and files that are not recorded: those that are written to later or may grow.
    """
    files = hash_files(directory, skipped)
    replace_text(directory / SEAL, json.dumps({"files": files, "key": content_key(files=files)}, indent=1) + "\n")


def hash_files(directory: Path, skipped: Collection[str] = ()) -> dict[str, str]:
    """Return the sha256 of every file of a directory by its relative name, without the seal and the skipped entries."""
    found: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if path.is_file() and not {name.parts[0], name.as_posix()} & {SEAL, *skipped}:
            found[name.as_posix()] = file_hash(path)
    return found


def find_damage(directory: Path, recorded: Mapping[str, str]) -> str | None:
    """Describe the first file whose sha256 differs from the recorded one; None if all agree."""
    for name, digest in recorded.items():
        try:
            if file_hash(directory / name) != digest:
                return f"{name} has changed"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None


def read_seal(directory: Path) -> dict[str, str] | None:
    """Return the sha256 of each file from the seal; None if there is no seal.

    Raises:
        ValueError: the seal is unreadable or does not match its own hash.
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


def publish(staging: Path, target: Path, is_complete: Callable[[Path], bool], unsealed: Collection[str] | None = ()) -> None:
    """Seal a filled directory and rename it to `target`; a complete directory there is kept, a damaged one is replaced.

    The seal leaves out the `unsealed` files; None writes no seal: the directory came with one.
    """
    if unsealed is not None:
        seal(staging, unsealed)
    _sync_files(staging)
    if target.exists():
        if is_complete(target):
            return
        remove(target)
    try:
        staging.replace(target)
    except OSError:
        # Another writer of the same content finished first.
        if not is_complete(target):
            raise
    sync_directory(target.parent)


def _sync_files(directory: Path) -> None:
    for file in directory.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


def remove(target: Path, ignore_errors: bool = True) -> None:
    """Remove a directory, after renaming it: readers never see one that is half deleted."""
    shutil.rmtree(_put_aside(target), ignore_errors=ignore_errors)


def _put_aside(target: Path) -> Path:
    return target.replace(target.with_name(f"{STAGING_PREFIX}{target.name}-broken-{writer_mark()}"))


def find_abandoned(directory: Path, name: str = "") -> list[Path]:
    """Find temporary directories and files whose writer has exited: all of them, or those of one artifact."""
    pattern = f"{STAGING_PREFIX}{glob.escape(name)}-*" if name else f"{STAGING_PREFIX}*-*"
    return [path for path in sorted(directory.glob(pattern)) if is_abandoned(path)]


def remove_abandoned(directory: Path, name: str = "") -> list[str]:
    """Remove the entries that `find_abandoned` returns; return their names."""
    found = find_abandoned(directory, name)
    for staging in found:
        if staging.is_dir():
            shutil.rmtree(staging, ignore_errors=True)
        else:
            staging.unlink(missing_ok=True)
    return [staging.name for staging in found]
