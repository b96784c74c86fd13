"""Copies under a URL: whole or not there, checked, and inside their directory."""

import json
from pathlib import Path

import fsspec
import pytest

from slmsearch.artifacts.directories import seal
from slmsearch.artifacts.sharing import fetch, share
from slmsearch.errors import ServiceError


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "here" / "abc"
    (folder / "deep").mkdir(parents=True)
    (folder / "rows.jsonl").write_text('{"a": 1}\n')
    (folder / "deep" / "more.bin").write_bytes(bytes(range(256)))
    seal(folder)
    return folder


@pytest.fixture(params=["folder", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shared") if request.param == "folder" else f"memory://shared-{tmp_path.name}"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_is_shared_comes_out_byte_for_byte(made: Path, url: str, tmp_path: Path) -> None:
    there = tmp_path / "there" / "abc"
    assert share(made, url, "corpora/abc")
    assert not share(made, url, "corpora/abc"), "it is there"
    assert fetch(url, "corpora/abc", there)
    assert contents(there) == contents(made)
    assert not fetch(url, "corpora/abc", there), "it is here"


def test_a_copy_without_its_list_does_not_exist(made: Path, url: str, tmp_path: Path) -> None:
    share(made, url, "corpora/abc")
    store, root = fsspec.core.url_to_fs(url)
    store.rm(f"{root}/corpora/abc.json")
    with pytest.raises(ServiceError, match=r"no complete corpora/abc; share it again"):
        fetch(url, "corpora/abc", tmp_path / "there" / "abc")
    assert share(made, url, "corpora/abc"), "a killed writer's copy is written again"
    assert fetch(url, "corpora/abc", tmp_path / "there" / "abc")


def test_a_damaged_copy_takes_no_place(made: Path, url: str, tmp_path: Path) -> None:
    share(made, url, "corpora/abc")
    store, root = fsspec.core.url_to_fs(url)
    store.pipe_file(f"{root}/corpora/abc/rows.jsonl", b'{"a": 2}\n')
    with pytest.raises(ServiceError, match="is damaged"):
        fetch(url, "corpora/abc", tmp_path / "there" / "abc")
    assert not list((tmp_path / "there").iterdir())


def test_an_incomplete_directory_here_is_replaced(made: Path, url: str, tmp_path: Path) -> None:
    share(made, url, "shards/abc")
    torn = tmp_path / "there" / "abc"
    torn.mkdir(parents=True)
    (torn / "half").write_text("")
    assert fetch(url, "shards/abc", torn, lambda path: (path / "rows.jsonl").is_file())
    assert contents(torn) == contents(made)


@pytest.mark.parametrize("name", ["../outside", "/etc/cron.d/x", "a/../../outside", "..\\outside", ""])
def test_a_list_names_nothing_outside(made: Path, url: str, tmp_path: Path, name: str) -> None:
    share(made, url, "corpora/abc")
    store, root = fsspec.core.url_to_fs(url)
    store.pipe_file(f"{root}/corpora/abc.json", json.dumps({"files": {name: "0" * 64}}).encode())
    with pytest.raises(ServiceError, match="outside its directory"):
        fetch(url, "corpora/abc", tmp_path / "there" / "abc")
    assert not (tmp_path / "outside").exists() and not (tmp_path / "there" / "outside").exists()


def test_a_storage_that_refuses_is_named(made: Path) -> None:
    with pytest.raises(ServiceError, match=r"nosuch://bucket cannot be opened .*; give a folder or a URL"):
        share(made, "nosuch://bucket", "corpora/abc")
