"""Index versions: built whole or not at all, found again, verified, refused when damaged."""

import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromadb.errors import InternalError

from slmsearch.config import CorpusConfig, RetrievalConfig
from slmsearch.corpus.store import build_corpus, read_manifest
from slmsearch.errors import EmbedderError, IndexUnusableError
from slmsearch.retrieval import build, chroma, versions
from slmsearch.retrieval.build import build_index, index_key
from slmsearch.retrieval.chroma import opened_collection, verify_collection
from slmsearch.retrieval.embed import Embedder
from slmsearch.retrieval.vectors import LOCK_PREFIX
from slmsearch.retrieval.versions import current_key, list_versions, read_keys, read_version, set_current

STANDING = ["CURRENT", "HISTORY", ".pointer.lock"]


def names(index_dir: Path) -> list[str]:
    """What stands in an index directory, less the locks of builds."""
    return sorted(path.name for path in index_dir.iterdir() if not path.name.startswith(LOCK_PREFIX)) if index_dir.exists() else []


def test_a_version_holds_the_same_vectors_twice(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder):
    key = build_index(corpus_dir, index_dir, config, embedder=embedder)
    vectors = np.load(index_dir / key / "vectors.npy")
    rows = [json.loads(line) for line in (index_dir / key / "passages.jsonl").open()]
    # Four titles, five sections with text; a title section without a lead is no passage.
    assert vectors.shape == (9, 32) and len(rows) == 9
    with opened_collection(index_dir / key / "chroma") as collection:
        stored = collection.get(include=["embeddings"])
        by_id = dict(zip(stored["ids"], stored["embeddings"], strict=True))
        keys = read_keys(index_dir / key)[1]
        assert np.allclose([by_id[f"{int(row):016x}"] for row in keys], vectors, atol=1e-6)
    assert names(index_dir) == sorted([key, *STANDING])
    assert current_key(index_dir) == key


def test_manifest_says_what_it_was_made_from(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder):
    key = build_index(corpus_dir, index_dir, config, embedder=embedder)
    (manifest,) = list_versions(index_dir)
    assert manifest == read_version(index_dir, key)
    assert (manifest.key, manifest.embedder_id, manifest.dimension) == (key, "hash", 32)
    assert (manifest.pages, manifest.passages, manifest.recall) == (4, 9, 1.0)
    assert manifest.pages_digest == read_manifest(corpus_dir).pages_digest


def test_a_complete_version_is_not_built_again(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Any):
    key = build_index(corpus_dir, index_dir, config, embedder=embedder)
    encoded = embedder.texts_encoded
    (index_dir / "CURRENT").write_text("another\n")
    assert build_index(corpus_dir, index_dir, config, embedder=embedder) == key
    assert embedder.texts_encoded == encoded
    assert current_key(index_dir) == key


def test_the_key_follows_pages_chunking_and_embedder(config: RetrievalConfig, embedder: Any):
    other = type(embedder)(dimension=16)
    keys = {
        index_key("pages", config, embedder),
        index_key("other pages", config, embedder),
        index_key("pages", config.model_copy(update={"max_passage_chars": 500}), embedder),
        index_key("pages", config, other),
        index_key("pages", config, type(embedder)(name="another")),
    }
    assert len(keys) == 5
    # How many pages a search returns changes nothing in the index.
    assert index_key("pages", config.model_copy(update={"top_k": 9}), embedder) in keys


@pytest.mark.parametrize(
    "file", ["manifest.json", "vectors.npy", "passages.jsonl", "keys.npy", "lexical/data.csc.index.npy", "chroma/chroma.sqlite3"]
)
def test_a_damaged_version_is_built_again(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder, file: str):
    key = build_index(corpus_dir, index_dir, config, embedder=embedder)
    (index_dir / key / file).unlink()
    assert not versions.is_complete(index_dir / key)
    assert build_index(corpus_dir, index_dir, config, embedder=embedder) == key
    assert versions.is_complete(index_dir / key)
    assert names(index_dir) == sorted([key, *STANDING])


def test_progress_is_reported(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder):
    seen: list[tuple[int, int]] = []
    build_index(corpus_dir, index_dir, config, lambda done, total: seen.append((done, total)), embedder)
    assert seen[-1] == (9, 9)


@pytest.fixture
def built(corpora_dir: Path, index_dir: Path, tmp_path: Path, config: RetrievalConfig, embedder: Embedder) -> str:
    """A first version, which a failing second build must leave in use."""
    source = tmp_path / "first.jsonl"
    source.write_text(json.dumps({"id": "a", "title": "A", "content": "text"}) + "\n")
    digest = build_corpus(CorpusConfig(pages=str(source)), corpora_dir)
    return build_index(corpora_dir / digest, index_dir, config, embedder=embedder)


def fail_build(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder, built: str) -> str:
    with pytest.raises(IndexUnusableError) as raised:
        build_index(corpus_dir, index_dir, config, embedder=embedder)
    # What was embedded is kept for the next try.
    assert [name for name in names(index_dir) if not name.startswith(".partial-")] == sorted([built, *STANDING])
    assert current_key(index_dir) == built
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_disk_too_small_is_seen_before_embedding(
    corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Any, built: str, monkeypatch: pytest.MonkeyPatch
):
    encoded = embedder.texts_encoded
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 100, 1 << 20))
    assert "needs about 32 MB of disk space" in fail_build(corpus_dir, index_dir, config, embedder, built)
    assert embedder.texts_encoded == encoded


@pytest.mark.parametrize(
    "error, message",
    [
        (OSError(28, "No space left on device"), "no disk space left"),
        (PermissionError(13, "Permission denied"), "check the directory"),
        (InternalError("database or disk is full"), "disk is full.*check disk space"),
    ],
)
def test_a_disk_that_fills_up_leaves_the_old_version_in_use(
    corpus_dir: Path,
    index_dir: Path,
    config: RetrievalConfig,
    embedder: Embedder,
    built: str,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    message: str,
):
    def full(*args: object) -> None:
        raise error

    monkeypatch.setattr(build, "fill_collection", full)
    with pytest.raises(IndexUnusableError, match=message):
        build_index(corpus_dir, index_dir, config, embedder=embedder)
    fail_build(corpus_dir, index_dir, config, embedder, built)


def test_an_embedder_that_breaks_leaves_the_old_version_in_use(
    corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Any, built: str, monkeypatch: pytest.MonkeyPatch
):
    def broken(*args: object) -> None:
        raise EmbedderError("gone")

    monkeypatch.setattr(embedder, "encode", broken)
    with pytest.raises(EmbedderError):
        build_index(corpus_dir, index_dir, config, embedder=embedder)
    assert names(index_dir) == sorted([built, *STANDING])


def test_a_graph_that_does_not_find_neighbours_is_refused(
    corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder, built: str, monkeypatch: pytest.MonkeyPatch
):
    def same_for_all(collection: Any, vectors: np.ndarray, count: int) -> list[np.ndarray]:
        first = int(collection.peek(1)["ids"][0], 16)
        return [np.array([first], dtype=np.uint64)] * len(vectors)

    monkeypatch.setattr(chroma, "nearest_keys", same_for_all)
    assert "of the true neighbours" in fail_build(corpus_dir, index_dir, config, embedder, built)


def test_verification_compares_with_what_was_embedded(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder):
    key = build_index(corpus_dir, index_dir, config, embedder=embedder)
    vectors = np.load(index_dir / key / "vectors.npy")
    keys = read_keys(index_dir / key)[1]
    with pytest.raises(IndexUnusableError, match="kept 9 of 10 vectors"):
        verify_collection(index_dir / key / "chroma", np.append(keys, np.uint64(1)), np.vstack([vectors, vectors[:1]]))
    with pytest.raises(IndexUnusableError, match="32 dimensions instead of 16"):
        verify_collection(index_dir / key / "chroma", keys, vectors[:, :16])


def test_what_a_killed_build_left_is_removed(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (index_dir / f".tmp-abc-{dead.pid}" / "chroma").mkdir(parents=True)
    (index_dir / f".tmp-abc-{os.getppid()}").mkdir()
    key = build_index(corpus_dir, index_dir, config, embedder=embedder)
    assert names(index_dir) == sorted([key, *STANDING, f".tmp-abc-{os.getppid()}"]), "a living builder keeps its directory"
    assert [manifest.key for manifest in list_versions(index_dir)] == [key]


def test_current_points_only_to_what_is_there(index_dir: Path, built: str):
    with pytest.raises(IndexUnusableError, match="is not in"):
        set_current(index_dir, "0123456789abcdef0123")
    with pytest.raises(IndexUnusableError, match="no index key"):
        set_current(index_dir, "../corpora")
    assert current_key(index_dir) == built


def test_nothing_built_yet(tmp_path: Path):
    assert current_key(tmp_path / "index") is None
    assert list_versions(tmp_path / "index") == []
