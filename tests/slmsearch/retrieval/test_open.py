"""Ranking: exact, deterministic, the same however queries are grouped."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slmsearch.config import CorpusConfig, RetrievalConfig, WorldConfig
from slmsearch.corpus.store import build_corpus, load_corpus
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval import open as opening
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.embed import Embedder
from slmsearch.retrieval.hits import Hit
from slmsearch.retrieval.open import VectorIndex, open_index


@pytest.fixture
def index(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder) -> VectorIndex:
    return open_index(index_dir, build_index(corpus_dir, index_dir, config, embedder=embedder), config, embedder)


def ids(hits: list[Hit]) -> list[str]:
    return [hit.page_id for hit in hits]


def test_an_exact_title_is_found_first_with_similarity_one(index: VectorIndex):
    (hits,) = index.search(["Porto"], 2)
    assert hits[0] == Hit("porto", "Porto", 1.0, "porto:porto")
    assert ids(hits) == ["porto", "new_porto"]


def test_text_below_a_heading_is_found(index: VectorIndex):
    river, tart = index.search(["the Douro flows by", "custard tarts with cinnamon"], 1)
    assert (river[0].page_id, river[0].section_id) == ("porto", "porto:rivers")
    assert (tart[0].page_id, tart[0].section_id) == ("lisbon", "lisbon:food")


def test_at_most_as_many_hits_as_pages(index: VectorIndex):
    assert len(index.search(["anything"], 50)[0]) == 4
    assert len(index.search(["anything"], 1)[0]) == 1
    assert index.search([], 4) == []


def test_equal_scores_are_ordered_by_page_id(tmp_path: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder):
    rows = [{"id": name, "title": "Same", "content": "# Same\nequal text"} for name in ("m", "z", "a", "k")]
    source = tmp_path / "same.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    digest = build_corpus(CorpusConfig(pages=str(source)), tmp_path)
    index = open_index(index_dir, build_index(tmp_path / digest, index_dir, config, embedder=embedder), config, embedder)
    assert ids(index.search(["Same"], 3)[0]) == ["a", "k", "m"]
    assert ids(index.search(["equal"], 4)[0]) == ["a", "k", "m", "z"]


@pytest.fixture
def world_index(tmp_path: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder) -> tuple[VectorIndex, list[str]]:
    digest = build_corpus(CorpusConfig(world=WorldConfig(pages=80)), tmp_path)
    key = build_index(tmp_path / digest, index_dir, config, embedder=embedder)
    questions = load_corpus(tmp_path, digest).questions["train"]
    return open_index(index_dir, key, config, embedder), [question.question for question in questions[:60]]


def test_ranking_is_that_of_brute_force(world_index: tuple[VectorIndex, list[str]], embedder: Any):
    index, queries = world_index
    for query, hits in zip(queries, index.search(queries, 5), strict=True):
        similarity = index._vectors.astype(np.float64) @ embedder.encode([query])[0].astype(np.float64)
        best: dict[str, float] = {}
        for row, score in enumerate(similarity):
            page_id = index._page_ids[index._page_of_row[row]]
            best[page_id] = max(best.get(page_id, -1.0), round(float(score), 5))
        assert ids(hits) == sorted(best, key=lambda page_id: (-best[page_id], page_id))[:5]


def test_a_query_ranks_the_same_alone_repeated_and_in_any_company(world_index: tuple[VectorIndex, list[str]]):
    index, queries = world_index
    together = index.search(queries, 4)
    assert [index.search([query], 4)[0] for query in queries] == together
    assert index.search(queries[::-1], 4) == together[::-1]
    assert index.search([queries[0]] * 3, 4) == [together[0]] * 3


def test_two_builds_rank_alike(tmp_path: Path, config: RetrievalConfig, embedder: Embedder):
    digest = build_corpus(CorpusConfig(world=WorldConfig(pages=60)), tmp_path)
    found = []
    for build in ("one", "two"):
        key = build_index(tmp_path / digest, tmp_path / build, config, embedder=embedder)
        found.append(open_index(tmp_path / build, key, config, embedder).search(["who founded the company", "tower"], 10))
    assert found[0] == found[1]


def test_above_the_limit_candidates_are_ranked_exactly(world_index: tuple[VectorIndex, list[str]], tmp_path: Path, config: RetrievalConfig,
                                                       embedder: Embedder, monkeypatch: pytest.MonkeyPatch):  # fmt: skip
    exact, queries = world_index
    monkeypatch.setattr(opening, "EXACT_LIMIT", 10)
    large = open_index(tmp_path / "index", exact.key, config, embedder)
    for hits, expected in zip(large.search(queries[:10], 4), exact.search(queries[:10], 4), strict=True):
        assert hits == expected


def test_another_embedder_is_refused(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Any):
    key = build_index(corpus_dir, index_dir, config, embedder=embedder)
    with pytest.raises(IndexUnusableError, match=r"made by hash@d32, queries would be embedded by hash@d16"):
        open_index(index_dir, key, config, type(embedder)(dimension=16))
    impostor = type(embedder)(dimension=16)
    impostor.revision = "d32"
    with pytest.raises(IndexUnusableError, match="has 32 dimensions, its embedder now gives 16"):
        open_index(index_dir, key, config, impostor).search(["x"], 1)


@pytest.mark.parametrize("damage", ["absent", "manifest", "vectors", "passages"])
def test_a_damaged_version_is_refused(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder, damage: str):
    key = build_index(corpus_dir, index_dir, config, embedder=embedder)
    if damage == "absent":
        key = "0123456789abcdef0123"
    elif damage == "manifest":
        (index_dir / key / "manifest.json").write_text("{}")
    elif damage == "vectors":
        path = index_dir / key / "vectors.npy"
        path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    else:
        path = index_dir / key / "passages.jsonl"
        path.write_text(path.read_text().replace("porto", "lisbon"))
    with pytest.raises(IndexUnusableError) as raised:
        open_index(index_dir, key, config, embedder)
    assert "slmsearch index" in str(raised.value) and "\n" not in str(raised.value)
