import io
import json
import tarfile
from pathlib import Path

import pytest

from slmsearch.bundle.fetched_results import unpack_results
from slmsearch.errors import ConfigError

FACTS = {"machine": "node", "gpu": None, "bundle": "0" * 64, "finished": True}


def archive(path: Path, **members: object) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, value in members.items():
            content = json.dumps(value).encode()
            info = tarfile.TarInfo(f"{name}.json")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_facts_are_read(tmp_path: Path) -> None:
    assert unpack_results(archive(tmp_path / "a.tar.gz", results=FACTS), tmp_path / "out") == FACTS


@pytest.mark.parametrize("values", [{}, {"other": {}}, {"results": []}, {"results": {**FACTS, "machine": 3}}])
def test_another_archive_is_refused_in_one_line(tmp_path: Path, values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"a\.tar\.gz"):
        unpack_results(archive(tmp_path / "a.tar.gz", **values), tmp_path / "out")


def test_one_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", results={**FACTS, "more": list(range(1000))})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ConfigError, match="was cut off"):
        unpack_results(path, tmp_path / "out")
    path.write_bytes(b"no archive")
    with pytest.raises(ConfigError, match="no archive of results"):
        unpack_results(path, tmp_path / "out")


@pytest.mark.parametrize("mask", [1, 255])
def test_one_that_was_damaged_is_refused(tmp_path: Path, mask: int) -> None:
    path = archive(tmp_path / "a.tar.gz", results=FACTS, log=[f"step {number * 7919}" for number in range(20_000)])
    whole = path.read_bytes()
    for place in range(100, len(whole), len(whole) // 20):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
        with pytest.raises(ConfigError, match=r"a\.tar\.gz"):
            unpack_results(path, tmp_path / f"out-{place}")
