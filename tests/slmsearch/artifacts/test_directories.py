"""Artefacts appear whole or not at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from slmsearch.artifacts.directories import publish, remove_abandoned, staging_directory
from slmsearch.artifacts.files import replace_text
from slmsearch.artifacts.writers import writer_mark


def is_complete(directory: Path) -> bool:
    return (directory / "manifest").is_file()


def write(parent: Path, text: str) -> Path:
    with staging_directory(parent, "new") as staging:
        (staging / "manifest").write_text(text)
        publish(staging, parent / "done", is_complete)
    return parent / "done" / "manifest"


def test_a_published_directory_is_all_that_stays(tmp_path: Path):
    assert write(tmp_path / "deep" / "er", "one").read_text() == "one"
    assert os.listdir(tmp_path / "deep" / "er") == ["done"]


def test_a_failing_body_leaves_nothing(tmp_path: Path):
    with pytest.raises(KeyError), staging_directory(tmp_path, "new") as staging:
        (staging / "half").write_text("x")
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_a_complete_directory_stays_and_a_damaged_one_is_replaced(tmp_path: Path):
    write(tmp_path, "first")
    assert write(tmp_path, "second").read_text() == "first"
    (tmp_path / "done" / "manifest").rename(tmp_path / "done" / "rest")
    assert write(tmp_path, "third").read_text() == "third"
    assert sorted(os.listdir(tmp_path / "done")) == ["manifest", "seal.json"]
    assert os.listdir(tmp_path) == ["done"]


def test_only_what_dead_writers_left_is_removed(tmp_path: Path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".tmp-a-{dead.pid}").mkdir()
    (tmp_path / f".tmp-CURRENT-{dead.pid}").write_text("x")
    long_ago = f".tmp-b-{dead.pid}@00000000"
    kept = {f".tmp-a-{writer_mark()}", f".tmp-a-{dead.pid}@00000000", ".tmp-a-b", "other"}  # a container's process ids are its own
    for name in {long_ago, *kept}:
        (tmp_path / name).mkdir()
    os.utime(tmp_path / long_ago, (1e9, 1e9))
    assert remove_abandoned(tmp_path) == sorted([f".tmp-a-{dead.pid}", f".tmp-CURRENT-{dead.pid}", long_ago])
    assert set(os.listdir(tmp_path)) == kept


def test_a_private_text_is_never_anybody_else_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, modes = tmp_path / "secret", []
    monkeypatch.setattr("os.fsync", lambda descriptor: modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode)))
    umask = os.umask(0)
    try:
        path.write_text("of an earlier time, open to all")
        replace_text(path, "word", private=True)
    finally:
        os.umask(umask)
    assert (modes[0], stat.S_IMODE(path.stat().st_mode), path.read_text()) == (0o600, 0o600, "word")


def test_a_text_is_replaced_or_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "CURRENT"
    replace_text(path, "one")
    replace_text(path, "two")
    assert path.read_text() == "two"

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError):
        replace_text(path, "three")
    assert path.read_text() == "two"
    assert os.listdir(tmp_path) == ["CURRENT"]
