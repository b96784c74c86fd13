"""Looking after versions: verified, gone back to, removed, pushed and pulled; never one that somebody needs."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock, Timeout

from slmsearch.config import CorpusConfig, RetrievalConfig
from slmsearch.corpus.store import build_corpus
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval import build
from slmsearch.retrieval import search as searching
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.search import open_index
from slmsearch.retrieval.upkeep import pull_version, push_version, remove_partial, remove_version, roll_back, verify_version
from slmsearch.retrieval.versions import current_key, read_version


@pytest.fixture
def three(tmp_path: Path, index_dir: Path, config: RetrievalConfig, embedder: Any) -> list[str]:
    """Versions of a corpus that grows by a page, the newest last."""
    return [built(tmp_path, index_dir, config, embedder, count) for count in (5, 6, 7)]


def built(tmp_path: Path, index_dir: Path, config: RetrievalConfig, embedder: Any, pages: int, changed: int = -1) -> str:
    rows = [
        {"id": f"p{n}", "title": f"Page {n}", "content": f"# Page {n}\nfact number {n * 7} " + "new" * (n == changed)} for n in range(pages)
    ]
    source = tmp_path / f"{pages}-{changed}.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    digest = build_corpus(CorpusConfig(pages=str(source)), tmp_path / "corpora")
    return build_index(tmp_path / "corpora" / digest, index_dir, config, embedder=embedder)


def test_only_what_is_new_is_embedded(three: list[str], index_dir: Path, embedder: Any, tmp_path: Path, config: RetrievalConfig):
    assert [read_version(index_dir, key).embedded for key in three] == [10, 2, 2]
    before = embedder.texts_encoded
    key = built(tmp_path, index_dir, config, embedder, 7, changed=3)
    assert embedder.texts_encoded == before + 1
    fresh = type(embedder)()
    other = tmp_path / "whole"
    assert built(tmp_path, other, config, fresh, 7, changed=3) == key
    assert (other / key / "vectors.npy").read_bytes() == (index_dir / key / "vectors.npy").read_bytes()
    queries = ["fact number 21", "Page 3", "new"]
    assert open_index(other, key, config, fresh).search(queries, 5) == open_index(index_dir, key, config, embedder).search(queries, 5)


def test_a_copied_graph_is_brought_up_to_date(
    three: list[str], index_dir: Path, embedder: Any, tmp_path: Path, config: RetrievalConfig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(build, "UPDATE_FROM", 1)
    monkeypatch.setattr(build, "MAX_CHANGED", 0.5)
    key = built(tmp_path, index_dir, config, embedder, 7, changed=3)
    manifest = read_version(index_dir, key)
    assert (manifest.base, manifest.stale) == (three[-1], 1)
    assert verify_version(index_dir, key, config) == 1.0
    assert verify_version(index_dir, three[-1], config) == 1.0, "the version that was copied is as it was"
    # One page in six is too many to be dropped from the same graph again.
    again = built(tmp_path, index_dir, config, embedder, 7, changed=5)
    assert read_version(index_dir, again).base in (None, three[-1])


def test_going_on_after_a_kill_embeds_the_rest_alone(tmp_path: Path, index_dir: Path, config: RetrievalConfig, embedder: Any, monkeypatch):
    monkeypatch.setattr("slmsearch.retrieval.vectors.CHUNK", 4)
    real, calls = embedder.encode, []

    def killed(texts: list[str], progress: object = None) -> np.ndarray:
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(texts)

    monkeypatch.setattr(embedder, "encode", killed)
    with pytest.raises(KeyboardInterrupt):
        built(tmp_path, index_dir, config, embedder, 7)
    (partial,) = index_dir.glob(".partial-*")
    broken = sorted(partial.glob("*.npz"))[0]
    broken.write_bytes(broken.read_bytes()[:100])
    monkeypatch.setattr(embedder, "encode", real)
    before = embedder.texts_encoded
    key = built(tmp_path, index_dir, config, embedder, 7)
    # 14 texts; 8 were embedded, and 4 of these lost with the broken chunk.
    assert embedder.texts_encoded - before == 10
    assert read_version(index_dir, key).recall == 1.0
    assert not list(index_dir.glob(".partial-*"))


def test_every_file_is_verified(three: list[str], index_dir: Path, config: RetrievalConfig):
    key = three[-1]
    assert verify_version(index_dir, key, config) == 1.0
    for name in ("vectors.npy", "passages.jsonl", "keys.npy", "lexical/data.csc.index.npy", "lexical/vocab.index.json"):
        path = index_dir / key / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(IndexUnusableError, match="damaged"):
            verify_version(index_dir, key, config)
        path.write_bytes(whole)
    (index_dir / key / "chroma" / "chroma.sqlite3").write_bytes(b"no database")
    with pytest.raises(IndexUnusableError, match="cannot be read"):
        verify_version(index_dir, key, config)


def test_rolling_back_goes_to_the_version_before(three: list[str], index_dir: Path):
    assert roll_back(index_dir) == (three[2], three[1])
    assert current_key(index_dir) == three[1]
    assert roll_back(index_dir, three[0]) == (three[1], three[0])
    (index_dir / three[2] / "vectors.npy").write_bytes(b"damaged")
    with pytest.raises(IndexUnusableError, match="damaged"):
        roll_back(index_dir, three[2])
    with pytest.raises(IndexUnusableError, match="is not in"):
        roll_back(index_dir, "0123456789abcdef0123")
    assert current_key(index_dir) == three[0]


def test_nothing_to_go_back_to(tmp_path: Path, index_dir: Path, config: RetrievalConfig, embedder: Any):
    built(tmp_path, index_dir, config, embedder, 5)
    with pytest.raises(IndexUnusableError, match="no earlier index version"):
        roll_back(index_dir)


def test_a_version_that_is_current_or_read_is_not_removed(three: list[str], index_dir: Path, config: RetrievalConfig, embedder: Any):
    first, second, third = three
    with pytest.raises(IndexUnusableError, match="is the current one"):
        remove_version(index_dir / third, config)
    reader = open_index(index_dir, first, config, embedder)
    with pytest.raises(IndexUnusableError, match="in use"):
        remove_version(index_dir / first, config)
    assert all((index_dir / key / "manifest.json").is_file() for key in three)
    reader.close()
    remove_version(index_dir / first, config)
    assert sorted(path.name for path in index_dir.iterdir() if path.is_dir()) == sorted([second, third])
    assert not (index_dir / f".building-{first}").exists(), "nor does its lock stay"


def test_what_killed_builds_left_is_removed(three: list[str], index_dir: Path, config: RetrievalConfig):
    for name in (".partial-abc", "0123456789abcdef0123", ".partial-live"):
        (index_dir / name).mkdir()
    remove_partial(index_dir / ".partial-abc")
    remove_version(index_dir / "0123456789abcdef0123", config)
    with FileLock(index_dir / ".building-live"), pytest.raises(Timeout):
        remove_partial(index_dir / ".partial-live")
    assert {path.name for path in index_dir.iterdir() if path.is_dir()} == {*three, ".partial-live"}


def test_a_version_of_an_older_format_is_removed(three: list[str], index_dir: Path, config: RetrievalConfig):
    path = index_dir / three[0] / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 2}))
    with pytest.raises(IndexUnusableError, match="has format 2, not 3; build it"):
        read_version(index_dir, three[0])
    remove_version(index_dir / three[0], config)
    assert not (index_dir / three[0]).exists()


def test_versions_travel_by_url(three: list[str], index_dir: Path, tmp_path: Path, config: RetrievalConfig, embedder: Any):
    url = f"file://{tmp_path / 'shared'}"
    assert push_version(index_dir, three[1], url)
    assert not push_version(index_dir, three[1], url), "it is there already"
    elsewhere = tmp_path / "elsewhere"
    assert pull_version(elsewhere, three[1], url)
    assert not pull_version(elsewhere, three[1], url)
    assert verify_version(elsewhere, three[1], config) == 1.0
    queries = ["fact number 21", "Page 3"]
    found = open_index(elsewhere, three[1], config, embedder).search(queries, 3)
    assert found == open_index(index_dir, three[1], config, embedder).search(queries, 3)


def test_what_is_pulled_is_checked(three: list[str], index_dir: Path, tmp_path: Path):
    shared = tmp_path / "shared"
    push_version(index_dir, three[0], str(shared))
    path = shared / three[0] / "vectors.npy"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(IndexUnusableError, match="damaged"):
        pull_version(elsewhere, three[0], str(shared))
    with pytest.raises(IndexUnusableError, match=f"holds no complete {three[1]}"):
        pull_version(elsewhere, three[1], str(shared))
    with pytest.raises(IndexUnusableError, match="no index key"):
        pull_version(elsewhere, "../x", str(shared))
    assert [path.name for path in elsewhere.iterdir()] == []
    with pytest.raises(IndexUnusableError, match="nosuchscheme"):
        push_version(index_dir, three[0], "nosuchscheme://x")


def test_object_storage_without_directories(three: list[str], index_dir: Path, tmp_path: Path, config: RetrievalConfig):
    url = f"memory://indexes-{os.getpid()}"
    assert push_version(index_dir, three[0], url)
    assert pull_version(tmp_path / "elsewhere", three[0], url)
    assert verify_version(tmp_path / "elsewhere", three[0], config) == 1.0


@pytest.fixture
def large(tmp_path: Path, index_dir: Path, config: RetrievalConfig, embedder: Any) -> str:
    """A version whose graph Chroma has written as a whole."""
    return built(tmp_path, index_dir, config, embedder, 600)


@pytest.mark.parametrize("name", ["data_level0.bin", "header.bin", "length.bin", "link_lists.bin", "index_metadata.pickle"])
def test_a_byte_changed_in_the_graph_is_named_before_it_is_opened(
    large: str,
    tmp_path: Path,
    index_dir: Path,
    config: RetrievalConfig,
    embedder: Any,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
):
    assert verify_version(index_dir, large, config) >= 0.9, "opening changes none of these files"
    (path,) = (index_dir / large / "chroma").glob(f"*/{name}")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(IndexUnusableError, match=f"{name} is not what was written; delete .* and build it"):
        verify_version(index_dir, large, config)
    # Up to the limit search compares every passage and never opens the graph.
    open_index(index_dir, large, config, embedder).close()
    with pytest.raises(IndexUnusableError, match=f"{name} is not what was written"):
        push_version(index_dir, large, str(tmp_path / "shared"))
    monkeypatch.setattr(searching, "EXACT_LIMIT", 10)
    with pytest.raises(IndexUnusableError, match=f"{name} is not what was written"):
        open_index(index_dir, large, config, embedder)
    monkeypatch.setattr(build, "UPDATE_FROM", 1)
    key = built(tmp_path, index_dir, config, embedder, 600, changed=3)
    assert read_version(index_dir, key).base is None, "a damaged graph is not gone on with"
