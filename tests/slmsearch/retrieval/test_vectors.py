import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from slmsearch.retrieval.vectors import lock_path, partial_directory, read_rows

STATUS = Path("/proc/self/status")


def mapped_mb() -> float:
    """Pages of files that count as this process' memory."""
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("RssFile"))
    return int(line.split()[1]) / 1024


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as on_disk:  # where other files may lie in memory
        path = Path(on_disk) / "vectors.npy"
        np.save(path, np.arange(40_000 * 384, dtype=np.float32).reshape(40_000, 384))
        yield path


def test_who_waits_for_a_build_that_leaves_nothing_gets_the_directory_after_it(tmp_path: Path) -> None:
    inside: list[str] = []

    def build(name: str) -> None:
        for _ in range(30):
            with partial_directory(tmp_path, "key") as partial:
                inside.append(name)
                assert partial.is_dir() and inside == [name], "one at a time"
                inside.clear()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(build, "abc"))
    assert list(tmp_path.iterdir()) == [lock_path(tmp_path, "key")]


def test_what_a_kill_left_half_written_goes_with_the_directory(tmp_path: Path) -> None:
    with partial_directory(tmp_path, "key") as partial:
        (partial / "0123.npz.tmp").write_bytes(b"half")
    assert not partial.exists()
    with partial_directory(tmp_path, "key") as partial:
        (partial / "0123.npz").write_bytes(b"whole")
    assert partial.exists(), "the next try goes on with it"


def test_rows_are_copied_from_files_and_from_memory(path: Path) -> None:
    for vectors in (np.load(path), np.load(path, mmap_mode="r")):
        picked = read_rows(vectors, np.array([3, 1]))
        assert picked[:, 0].tolist() == [3 * 384, 384]
        picked[0, 0] = -1
        assert vectors[3, 0] == 3 * 384
        assert read_rows(vectors, slice(39_990, 50_000)).shape == (10, 384)


def test_a_map_that_was_written_to_keeps_what_was_written(path: Path) -> None:
    private = np.load(path, mmap_mode="c")
    private[5] = 7
    assert read_rows(private, slice(5, 6))[0, 0] == 7 and read_rows(private, slice(5, 6))[0, 0] == 7


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc")
def test_going_through_a_file_does_not_count_as_memory(path: Path) -> None:
    vectors = np.load(path, mmap_mode="r")
    before = mapped_mb()
    for start in range(0, len(vectors), 1000):
        read_rows(vectors, slice(start, start + 1000))
    assert mapped_mb() - before < 5
    vectors.sum()
    assert mapped_mb() - before > 50, "the measurement can tell"
