"""Passages with the same vector: no build fails for them, each is found, and rankings are those of brute force."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slmsearch.config import CorpusConfig, RetrievalConfig
from slmsearch.corpus.store import build_corpus
from slmsearch.retrieval import build, versions
from slmsearch.retrieval import search as searching
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.chroma import opened_collection
from slmsearch.retrieval.embed import Embedder
from slmsearch.retrieval.search import open_index
from slmsearch.retrieval.upkeep import verify_version
from tests.slmsearch.retrieval.conftest import HashEmbedder

WORDS = ["harbour", "tower", "river", "market", "bridge", "garden", "castle", "museum", "valley", "island", "forest", "temple"]


def normal_pages(count: int) -> list[dict[str, str]]:
    return [
        {"id": f"n{n}", "title": f"Place {n}", "content": f"# Place {n}\n{WORDS[n % 12]} {WORDS[n * 5 % 11]} number {n * 7}"}
        for n in range(count)
    ]


def built(folder: Path, rows: list[dict[str, str]], config: RetrievalConfig, embedder: Embedder) -> tuple[Path, str]:
    """Index pages below a folder; return the index directory and the key."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "pages.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    digest = build_corpus(CorpusConfig(pages=str(source)), folder / "corpora")
    return folder / "index", build_index(folder / "corpora" / digest, folder / "index", config, embedder=embedder)


def vectors_in_chroma(version: Path) -> int:
    with opened_collection(version / versions.CHROMA) as collection:
        return int(collection.count())


def long_page() -> dict[str, str]:
    return {"id": "long", "title": "Long", "content": "# Long\n" + "A" * 300_000}


def same_sections(count: int) -> dict[str, str]:
    return {"id": "same", "title": "Same", "content": "# Same\n" + "".join("\n## Notice\n\nAll rights reserved.\n" for _ in range(count))}


@pytest.mark.parametrize("page", [long_page(), same_sections(600), same_sections(2000)], ids=["300,000 A", "600 equal", "2,000 equal"])
def test_identical_passages_do_not_fail_a_build(
    page: dict[str, str], tmp_path: Path, config: RetrievalConfig, monkeypatch: pytest.MonkeyPatch
):
    embedder = HashEmbedder(64)
    index_dir, key = built(tmp_path, [page, *normal_pages(300)], config, embedder)
    manifest = versions.read_version(index_dir, key)
    assert manifest.recall >= 0.99
    assert verify_version(index_dir, key, config) >= 0.99
    # Titles and texts of normal pages, the page's title, its text and what its last piece is.
    assert manifest.passages > 900 and vectors_in_chroma(index_dir / key) <= 603
    queries = ["Place 17", "harbour tower", "All rights reserved.", page["title"]]
    exact = open_index(index_dir, key, config, embedder)
    expected = exact.search(queries, 5), exact.search_sections(queries, 700)
    monkeypatch.setattr(searching, "EXACT_LIMIT", 10)
    large = open_index(index_dir, key, config, embedder)
    assert large.search(queries, 5) == expected[0]
    # Each of the sections that share a vector is found, not one of them.
    assert large.search_sections(queries, 700)[2][:600] == expected[1][2][:600]
    exact.close()
    large.close()


def test_a_passage_that_the_graph_does_not_lead_to_is_found_by_its_words(
    tmp_path: Path, config: RetrievalConfig, monkeypatch: pytest.MonkeyPatch
):
    embedder = HashEmbedder(64)
    index_dir, key = built(tmp_path, [same_sections(600), *normal_pages(300)], config, embedder)
    index = open_index(index_dir, key, config, embedder)
    query = "All rights reserved."
    expected = index.search([query], 5), index.search_sections([query], 5)
    index.close()
    monkeypatch.setattr(searching, "EXACT_LIMIT", 10)
    large = open_index(index_dir, key, config, embedder)
    passages = [json.loads(line) for line in (index_dir / key / versions.PASSAGES).open()]
    alone = {int(versions.read_keys(index_dir / key)[1][row]) for row, passage in enumerate(passages) if passage["page_id"] == "same"}
    reached = searching.nearest_keys

    def without_the_page(*arguments: Any) -> list[Any]:
        return [found[[int(name) not in alone for name in found]] for found in reached(*arguments)]

    monkeypatch.setattr(searching, "nearest_keys", without_the_page)
    assert (large.search([query], 5), large.search_sections([query], 5)) == expected
    assert expected[0][0][0].page_id == "same"
    large.close()


def test_a_vector_leaves_a_copied_graph_with_its_last_passage(
    tmp_path: Path, config: RetrievalConfig, embedder: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(build, "UPDATE_FROM", 1)
    monkeypatch.setattr(searching, "EXACT_LIMIT", 1)
    shared = [{"id": f"s{n}", "title": "Shared", "content": "# Shared\nthe same text"} for n in range(3)]
    counts = {}
    for left in (3, 1, 0, 2):
        index_dir, key = built(tmp_path, [*normal_pages(30), *shared[:left]], config, embedder)
        manifest = versions.read_version(index_dir, key)
        assert (manifest.base is None) == (left == 3), "the first is built whole, the others from its graph"
        counts[left] = vectors_in_chroma(index_dir / key)
        index = open_index(index_dir, key, config, embedder)
        found = [hit.page_id for hit in index.search(["the same text"], 3)[0]]
        assert found[:left] == [f"s{n}" for n in range(left)] and not any(name.startswith("s") for name in found[left:])
        assert verify_version(index_dir, key, config) == 1.0
        index.close()
    assert counts == {3: 62, 1: 62, 0: 60, 2: 62}


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(WORDS[:3])), min_size=1, max_size=12), st.integers(1, 40))
def test_rankings_with_duplicates_are_those_of_brute_force(
    tmp_path_factory: pytest.TempPathFactory, config: RetrievalConfig, pages: list[tuple[str, str]], repeats: int
):
    rows = [
        {"id": f"p{number}", "title": title, "content": f"# {title}\n" + f"\n## {title}\n\n{word}\n" * repeats}
        for number, (title, word) in enumerate(pages)
    ]
    embedder = HashEmbedder()
    index_dir, key = built(tmp_path_factory.mktemp("duplicates"), rows, config, embedder)
    queries = ["a", "b harbour", "tower", "river h"]
    exact = open_index(index_dir, key, config, embedder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "EXACT_LIMIT", 0)
        large = open_index(index_dir, key, config, embedder)
    assert large.search(queries, 5) == exact.search(queries, 5)
    assert large.search_sections(queries, 60) == exact.search_sections(queries, 60)
    exact.close()
    large.close()
