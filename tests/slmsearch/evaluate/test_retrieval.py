"""Ranks of gold pages and sections, and their sums."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slmsearch.corpus.questions import Question
from slmsearch.evaluate.retrieval import choose_questions, measure_ranks, summarise_ranks
from slmsearch.report.tables import render_retrieval
from slmsearch.retrieval.hits import Hit


class Shelf:
    """Finds page `pN` for question `N` at a place that depends on the way of ranking."""

    def __init__(self, places: dict[object, int]) -> None:
        self.places = places

    def search(self, queries: Sequence[str], top_k: int, ranking: object = None) -> list[list[Hit]]:
        return [self._hits(query, top_k, ranking) for query in queries]

    search_sections = search

    def _hits(self, query: str, top_k: int, ranking: object) -> list[Hit]:
        place = self.places[ranking]
        names = [f"x{i}" for i in range(top_k)]
        names[place - 1 : place] = [f"p{query}"]
        return [Hit(name, name, 1.0, f"{name}:a") for name in names[:top_k]]


QUESTIONS = [
    Question(str(n), str(n), "a", (), (f"p{n % 4}",), (f"p{n % 4}:a",) if n != 3 else (), 1, "even" if n % 2 == 0 else "odd")
    for n in range(4)
]
NOWHERE = Question("n", "n", "I don't know")


def test_ranks_are_places_of_the_gold():
    ranks = measure_ranks(Shelf({"dense": 2}), QUESTIONS, "dense")
    assert [(rank.page, rank.section) for rank in ranks] == [(2, 2), (2, 2), (2, 2), (2, None)]
    assert [ranks[0].value(metric) for metric in ("page_at_1", "page_at_5", "mrr")] == [0.0, 1.0, 0.5]
    assert ranks[3].value("section_at_5") is None
    unfound = measure_ranks(Shelf({"dense": 11}), QUESTIONS[:1], "dense")[0]
    assert (unfound.page, unfound.value("mrr"), unfound.value("section_at_5")) == (0, 0.0, 0.0)


def test_sums_hold_intervals_kinds_and_gains():
    shelf = Shelf({"lexical": 6, "dense": 2, "hybrid": 1})
    result = summarise_ranks({name: measure_ranks(shelf, QUESTIONS, name) for name in ("lexical", "dense", "hybrid")}, 0.05, 0)
    assert result["retrievers"]["hybrid"]["page_at_1"] == 1.0
    assert result["retrievers"]["dense"] | {"intervals": 0, "groups": 0} == {
        "page_at_1": 0.0, "page_at_5": 1.0, "all_pages_at_5": None, "all_pages_at_10": None, "section_at_1": 0.0, "section_at_5": 1.0,
        "mrr": 0.5, "intervals": 0, "groups": 0,
    }  # fmt: skip
    assert (result["n"], result["counts"]["section_at_1"], result["counts"]["all_pages_at_5"]) == (4, 3, 0)
    assert result["retrievers"]["lexical"]["intervals"]["page_at_1"][0] == 0.0
    assert list(result["groups"]) == ["kind=even", "kind=odd"]  # all have one hop and no source
    assert (result["groups"]["kind=odd"]["page_at_1"], result["groups"]["kind=odd"]["section_at_1"]) == (2, 1)
    assert result["gains"]["mrr"]["over"] == "dense" and result["gains"]["mrr"]["mean"] == 0.5 and result["gains"]["mrr"]["n"] == 4
    assert result["gains"]["page_at_5"]["mean"] == 0.0
    text = render_retrieval(result)
    assert "100.0 (51.0-100.0)" in text and "hybrid - dense" in text
    measures = {line[:20].strip(): line[20:].split()[0] for line in text.splitlines()[4:11]}
    assert measures["gold section in 5"] == "3" and measures["all gold pages in 5"] == "0"


def test_of_several_gold_pages_all_are_to_be_found():
    shelf = Shelf({"dense": 2})
    both, one, twice = (replace(QUESTIONS[0], page_ids=pages, hops=2) for pages in (("x0", "p0"), ("p0", "gone"), ("p0", "p0")))
    ranks = measure_ranks(shelf, [both, one, twice], "dense")
    assert [(rank.page, rank.all_pages) for rank in ranks] == [(1, 2), (2, 0), (2, None)]
    assert [rank.value("all_pages_at_5") for rank in ranks] == [1.0, 0.0, None]
    assert ranks[0].value("all_pages_at_10") == 1.0


def test_figures_come_by_hops_source_and_kind_with_their_numbers():
    asked = [replace(question, hops=1 + i % 2, source="nq" if i else "", page_ids=(*question.page_ids, "x0")[: 1 + i % 2])
             for i, question in enumerate(QUESTIONS)]  # fmt: skip
    shelf = Shelf({name: 2 for name in ("lexical", "dense", "hybrid")})
    result = summarise_ranks({name: measure_ranks(shelf, asked, name) for name in ("lexical", "dense", "hybrid")}, 0.05, 0)
    assert list(result["groups"]) == ["hops=1", "hops=2", "source=nq", "source=unknown", "kind=even", "kind=odd"]
    assert [result["groups"][name]["all_pages_at_5"] for name in ("hops=1", "hops=2")] == [0, 2]
    text = render_retrieval({**result, "left_out": {"unanswerable": 7}})
    assert "4 questions, 7 unanswerable left out" in text
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("all gold pages, %"))
    assert [line.split()[:2] for line in lines[start + 2 : start + 4]] == [["hops=2", "2"], ["source=nq", "2"]]


@pytest.mark.parametrize("limit, count", [(0, 4), (3, 3), (9, 4)])
def test_a_sample_keeps_order_and_leaves_out_questions_without_a_page(limit: int, count: int):
    untold, pageless = replace(QUESTIONS[0], id="u", answer=NOWHERE.answer), replace(QUESTIONS[0], id="l", page_ids=())
    chosen, left_out = choose_questions([NOWHERE, *QUESTIONS, untold, pageless], limit, seed=1)
    assert len(chosen) == count and set(chosen) <= set(QUESTIONS)
    assert left_out == {"unanswerable": 2, "without a gold page": 1}
    assert [question.id for question in chosen] == sorted(question.id for question in chosen)
