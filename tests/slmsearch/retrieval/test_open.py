"""Ranking: exact, deterministic, the same however queries are grouped."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slmsearch.config import CorpusConfig, RetrievalConfig, WorldConfig
from slmsearch.corpus.store import build_corpus, load_questions
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval import ranking
from slmsearch.retrieval import search as searching
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.embed import Embedder
from slmsearch.retrieval.hits import Hit
from slmsearch.retrieval.ranking import MAX_QUERY_CHARS, WEIGHTS
from slmsearch.retrieval.search import SearchIndex, open_index


@pytest.fixture
def index(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder) -> SearchIndex:
    return open_index(index_dir, build_index(corpus_dir, index_dir, config, embedder=embedder), config, embedder)


def ids(hits: list[Hit]) -> list[str]:
    return [hit.page_id for hit in hits]


def test_an_exact_title_is_found_first_with_similarity_one(index: SearchIndex):
    (hits,) = index.search(["Porto"], 2)
    assert hits[0] == Hit("porto", "Porto", 1.0, "porto:porto")
    assert ids(hits) == ["porto", "new_porto"]


def test_text_below_a_heading_is_found(index: SearchIndex):
    river, tart = index.search(["the Douro flows by", "custard tarts with cinnamon"], 1)
    assert (river[0].page_id, river[0].section_id) == ("porto", "porto:rivers")
    assert (tart[0].page_id, tart[0].section_id) == ("lisbon", "lisbon:food")


def test_at_most_as_many_hits_as_pages(index: SearchIndex):
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
def world_index(tmp_path: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder) -> tuple[SearchIndex, list[str]]:
    digest = build_corpus(CorpusConfig(world=WorldConfig(pages=80)), tmp_path)
    key = build_index(tmp_path / digest, index_dir, config, embedder=embedder)
    questions = load_questions(tmp_path, digest)["train"]
    return open_index(index_dir, key, config, embedder), [question.question for question in questions[:60]]


def brute_force(index: SearchIndex, vector: np.ndarray, words: np.ndarray, top_k: int) -> list[str]:
    scores = index._vectors.astype(np.float64) @ vector.astype(np.float64) + words
    best: dict[str, float] = {}
    for row, score in enumerate(scores):
        page_id = index._page_ids[row]
        best[page_id] = max(best.get(page_id, -1.0), round(float(score), 5))
    return sorted(best, key=lambda page_id: (-best[page_id], page_id))[:top_k]


@pytest.mark.parametrize("ranking", ["hybrid", "dense", "lexical"])
def test_ranking_is_that_of_brute_force(world_index: tuple[SearchIndex, list[str]], embedder: Any, ranking: str):
    index, queries = world_index
    dense, lexical = WEIGHTS[ranking]
    differing = []
    for query, hits in zip(queries, index.search(queries, 5, ranking), strict=True):
        expected = brute_force(index, dense * embedder.encode([query])[0], lexical * index._lexical.scores(query), 5)
        # Sums in float64 may round the other way in the fifth decimal.
        differing += [query] if ids(hits) != expected else []
    assert len(differing) <= 1


def test_queries_are_compared_alike_on_several_threads(world_index: tuple[SearchIndex, list[str]], monkeypatch: pytest.MonkeyPatch):
    index, queries = world_index
    alone, together = [index.search([query], 3) for query in queries], index.search(queries, 3)
    monkeypatch.setattr(ranking, "THREADED_ROWS", 1)
    monkeypatch.setattr(ranking, "THREADS", 3)
    assert [index.search([query], 3) for query in queries] == alone
    assert index.search(queries, 3) == together


def test_a_query_ranks_the_same_alone_repeated_and_in_any_company(world_index: tuple[SearchIndex, list[str]]):
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


def test_above_the_limit_candidates_are_ranked_exactly(world_index: tuple[SearchIndex, list[str]], tmp_path: Path, config: RetrievalConfig,
                                                       embedder: Embedder, monkeypatch: pytest.MonkeyPatch):  # fmt: skip
    exact, queries = world_index
    monkeypatch.setattr(searching, "EXACT_LIMIT", 10)
    large = open_index(tmp_path / "index", exact.key, config, embedder)
    for hits, expected in zip(large.search(queries[:10], 4), exact.search(queries[:10], 4), strict=True):
        assert hits == expected


@pytest.mark.parametrize("limit", [searching.EXACT_LIMIT, 10])
@pytest.mark.parametrize("ranking", ["hybrid", "dense"])
def test_what_is_hidden_is_not_found_and_the_rest_ranks_as_if_it_were_not_there(
    world_index: tuple[SearchIndex, list[str]], embedder: Any, tmp_path: Path, config: RetrievalConfig, monkeypatch: pytest.MonkeyPatch,
    ranking: str, limit: int
):  # fmt: skip
    whole, queries = world_index
    monkeypatch.setattr(searching, "EXACT_LIMIT", limit)
    index = open_index(tmp_path / "index", whole.key, config, embedder)
    dense, lexical = WEIGHTS[ranking]
    first = [hits[0] for hits in whole.search(queries, 1, ranking)]
    # Of every second page found all sections are hidden, of the others the one that was found.
    hidden = [sections_of(index, hit.page_id) if i % 2 else {hit.section_id} for i, hit in enumerate(first)]
    different = 0
    for query, names, hit, hits in zip(queries, hidden, first, index.search(queries, 5, ranking, hidden=hidden), strict=True):
        gone = [row for row, name in enumerate(index._section_ids) if name in names and not (is_title(index, row) and len(names) == 1)]
        words = index._lexical.scores(query).astype(np.float64)
        words[gone] = 0
        words = lexical * words / max(words.max(), 1e-9)
        words[gone] = -10
        different += ids(hits) != brute_force(index, dense * embedder.encode([query])[0], words, 5)
        assert not names & {found.section_id for found in hits if not is_title(index, index._section_ids.index(found.section_id))}
        assert (hit.page_id in ids(hits)) <= (len(names) == 1)
    assert different <= 1
    assert index.search(queries, 5, ranking) == whole.search(queries, 5, ranking), "hiding lasts for one search"


def test_where_most_is_hidden_all_of_the_rest_is_compared(
    world_index: tuple[SearchIndex, list[str]], tmp_path: Path, config: RetrievalConfig, monkeypatch: pytest.MonkeyPatch
):
    exact, queries = world_index
    kept = sorted(set(exact._page_ids))[::20]
    hidden = [{name for name, page in zip(exact._section_ids, exact._page_ids, strict=True) if page not in kept}] * len(queries)
    monkeypatch.setattr(searching, "EXACT_LIMIT", 10)
    monkeypatch.setattr(ranking, "CANDIDATES", 20)
    monkeypatch.setattr(ranking, "LEFT", 20)
    large = open_index(tmp_path / "index", exact.key, config, exact._embedder)
    found = large.search(queries, 10, hidden=hidden)
    assert found == exact.search(queries, 10, hidden=hidden)
    assert all(ids(hits) and sorted(ids(hits)) == kept for hits in found), "none is left out, however far it is"


def sections_of(index: SearchIndex, page_id: str) -> set[str]:
    return {name for name, page in zip(index._section_ids, index._page_ids, strict=True) if page == page_id}


def is_title(index: SearchIndex, row: int) -> bool:
    return row == 0 or index._page_ids[row - 1] != index._page_ids[row]


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


def test_only_pages_that_pass_the_filter_are_found(index: SearchIndex):
    (hits,) = index.search(["Porto"], 4, within="new")
    assert ids(hits) == ["new_porto"]
    assert index.search(["Porto"], 4, within="nowhere") == [[]]


def test_a_filter_holds_above_the_limit_too(
    world_index: tuple[SearchIndex, list[str]], tmp_path: Path, config: RetrievalConfig, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
):
    exact, queries = world_index
    monkeypatch.setattr(searching, "EXACT_LIMIT", 10)
    large = open_index(tmp_path / "index", exact.key, config, embedder)
    assert large.search(queries[:5], 4, within="1") == exact.search(queries[:5], 4, within="1")
    large.close()


def test_each_ranking_can_be_configured(corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Embedder, index: SearchIndex):
    words = open_index(index_dir, index.key, config.model_copy(update={"ranking": "lexical"}), embedder)
    # A stem and no other word: embeddings know nothing of it.
    (hits,) = words.search(["settling"], 1)
    assert hits == index.search(["settling"], 1, "lexical")[0]
    assert ids(words.search(["ocean"], 1)[0]) == ["lisbon"]


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=40), max_size=5))
def test_any_text_gets_an_answer(index: SearchIndex, queries: list[str]):
    found = index.search(queries, 3)
    assert [bool(hits) for hits in found] == [bool(query.strip()) for query in queries]
    assert all(-1.0 <= hit.score <= 1.0 for hits in found for hit in hits)


@pytest.mark.parametrize(
    "query", ["x" * 3_000_000, "\ud800", "東京タワー", "الماء", "🏰" * 2000, "\0", "' OR 1=1 --", '{"$ne": null}', "a " * 10_000]
)
def test_hostile_queries_get_an_answer(index: SearchIndex, query: str):
    (hits,) = index.search([query], 2)
    assert len(hits) == 2
    assert index.search([query[:MAX_QUERY_CHARS]], 2) == [hits]


def test_sections_are_ranked_too(index: SearchIndex):
    (hits,) = index.search_sections(["rivers"], 5)
    assert {hit.section_id for hit in hits[:2]} == {"lisbon:rivers", "porto:rivers"}
    assert len({hit.section_id for hit in hits}) == len(hits) == 5
