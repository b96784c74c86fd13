"""Which checkpoint counts: the latest that agrees with its manifest."""

import pytest

from slmsearch.training.files import (
    MANIFEST,
    discard_after,
    find_damage,
    is_complete,
    latest_complete_checkpoint,
    list_checkpoints,
    prune_checkpoints,
    seal_checkpoint,
)


def write(directory, step, sealed=True):
    path = directory / f"checkpoint-{step}"
    (path / "deep").mkdir(parents=True)
    (path / "optimizer.pt").write_bytes(b"o" * step)
    (path / "deep" / "rng").write_bytes(b"r")
    if sealed:
        seal_checkpoint(path, step)
    return path


def names(directory):
    return [path.name for path in list_checkpoints(directory)]


def test_the_latest_complete_one(tmp_path):
    assert latest_complete_checkpoint(tmp_path / "none") is None
    write(tmp_path, 9)
    good = write(tmp_path, 10)
    write(tmp_path, 12, sealed=False)
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / "checkpoint-99").write_text("a file")
    assert latest_complete_checkpoint(tmp_path) == good


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda path: (path / "optimizer.pt").write_bytes(b"oooooxoooo"), "optimizer.pt has changed"),
        (lambda path: (path / "optimizer.pt").write_bytes(b"oooo"), "optimizer.pt has changed"),
        (lambda path: (path / "optimizer.pt").write_bytes(b""), "optimizer.pt has changed"),
        (lambda path: (path / "deep" / "rng").unlink(), "deep/rng cannot be read (No such file or directory)"),
        (lambda path: (path / MANIFEST).write_text('{"step": 10'), "manifest.json cannot be read"),
        (lambda path: (path / MANIFEST).write_text('{"step": 9, "files": {}}'), "manifest.json is that of another step"),
        (lambda path: (path / MANIFEST).write_text('{"step": 10, "files": 3}'), "manifest.json cannot be read"),
        (lambda path: (path / MANIFEST).write_text("[]"), "manifest.json cannot be read"),
    ],
)
def test_a_damaged_one_is_named_and_does_not_count(tmp_path, damage, named):
    earlier, path = write(tmp_path, 5), write(tmp_path, 10)
    damage(path)
    assert find_damage(path) == named
    assert not is_complete(path)
    assert latest_complete_checkpoint(tmp_path) == earlier


def test_pruning_keeps_the_latest_sealed_ones_and_spares_the_one_being_written(tmp_path):
    for step in (2, 4, 6, 8):
        write(tmp_path, step, sealed=step != 4)
    write(tmp_path, 10, sealed=False)
    prune_checkpoints(tmp_path)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-8", "checkpoint-6"]
    prune_checkpoints(tmp_path)
    assert len(names(tmp_path)) == 3


def test_discarding_what_comes_after_a_step(tmp_path):
    for step in (2, 4, 6):
        write(tmp_path, step, sealed=step < 6)
    discard_after(tmp_path, 2)
    assert names(tmp_path) == ["checkpoint-2"]
