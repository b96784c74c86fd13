"""Adapters that a training lends to vLLM leave nothing in memory when their process is killed."""

import tempfile
from pathlib import Path

import pytest

from slmsearch.artifacts.writers import writer_mark
from slmsearch.training import trainer_samplers


def test_a_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(trainer_samplers.os, "access", lambda *_: False)  # a machine without /dev/shm
    scope = writer_mark().partition("@")[2]
    left, others = (
        tmp_path / f"slmsearch-abc-999999999@{scope}",
        [tmp_path / "slmsearch-run-999999999", tmp_path / f"slmsearch-x-1@{scope}"],
    )
    for folder in (left, *others):
        folder.mkdir()
        (folder / "adapter").touch()
    with trainer_samplers.folder_in_memory() as folder:
        assert folder.parent == tmp_path and folder.is_dir() and not left.exists()
        assert all((other / "adapter").exists() for other in others), "of no process of ours, and of one that lives"
    assert not folder.exists()
