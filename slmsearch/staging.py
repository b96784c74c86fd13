"""Directories and files that appear whole or not at all.

An artefact is written to `.tmp-<name>-<pid>` beside its place and renamed there when it is complete; a killed writer leaves
only such a directory behind, which the next writer removes.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

STAGING_PREFIX = ".tmp-"


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


def publish(staging: Path, target: Path, is_complete: Callable[[Path], bool]) -> None:
    """Rename a filled directory to its place; a complete one that stands there stays, a damaged one is replaced."""
    for file in staging.rglob("*"):
        if file.is_file():
            with file.open("r+b" if os.name == "nt" else "rb") as stream:  # Windows syncs what may be written alone
                os.fsync(stream.fileno())
    if target.exists():
        if is_complete(target):
            return
        # Renaming first keeps readers from seeing a directory that is half deleted.
        broken = target.with_name(f"{STAGING_PREFIX}{target.name}-broken-{os.getpid()}")
        target.replace(broken)
        shutil.rmtree(broken, ignore_errors=True)
    try:
        staging.replace(target)
    except OSError:
        # Another writer of the same content was faster.
        if not is_complete(target):
            raise
    _sync_directory(target.parent)


def remove_abandoned(directory: Path) -> list[str]:
    """Remove temporary directories and files whose writer no longer lives; return their names."""
    removed = []
    for staging in sorted(directory.glob(f"{STAGING_PREFIX}*-*")):
        pid = staging.name.rpartition("-")[2]
        if pid.isdecimal() and not _lives(int(pid)):
            if staging.is_dir():
                shutil.rmtree(staging, ignore_errors=True)
            else:
                staging.unlink(missing_ok=True)
            removed.append(staging.name)
    return removed


def replace_text(path: Path, text: str) -> None:
    """Replace a file's text in one step: a reader sees the old or the new, also after a power cut."""
    staging = path.with_name(f"{STAGING_PREFIX}{path.name}-{os.getpid()}")
    try:
        with staging.open("w", encoding="utf-8") as file:
            file.write(text)
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
