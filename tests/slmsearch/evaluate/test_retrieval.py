"""Ranks of gold pages and sections, and their sums."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.evaluate.retrieval import FORMS, choose_questions, measure_ranks, measure_shown, summarise_ranks, summarise_shown
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


RIVERS = Library(
    [
        Page("ern", "Ern", "# Ern\n\n## Course\n\nThe Ern meets the Wald at Tolm.\n"),
        Page("wald", "Wald", "# Wald\n\n## Course\n\nThe Wald is 81 km long and ends in the sea.\n"),
        Page("tolm", "Tolm", "# Tolm\n\n## Size\n\nTolm has 900 inhabitants.\n"),
    ]
)


class Rivers:
    """Finds the pages in the order of the library."""

    key = "rivers"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        hits = [Hit(page.id, page.title, 1.0, RIVERS.sections(page.id)[-1].id) for page in RIVERS.pages()]
        return [hits[:top_k] for _ in queries]


ASKED = [
    Question("1", "Where does the Ern meet the Wald?", "Tolm", (), ("ern",), ("ern:course",), 1, source="a"),
    Question("2", "How long is the river that meets the Ern?", "81 km", (), ("ern", "wald"), ("ern:course", "wald:course"), 2, source="b"),
    Question("3", "How many live where the Ern meets the Wald?", "900", (), ("ern", "tolm"), ("ern:course", "tolm:size"), 2, source="b"),
    Question("4", "Is the Ern a river?", "yes", (), ("ern",), (), 1, source="a"),
]


def shown(form: str, top_k: int = 2, chars: int = 1500):
    return measure_shown(Toolbox(RIVERS, Rivers(), top_k, chars, shows=form), ASKED)


def test_what_a_first_search_shows_is_what_the_tool_shows():
    titles, sections, text = (shown(form) for form in FORMS)
    assert [one.all_pages_shown for one in titles] == [one.all_pages_shown for one in text] == [True, True, False, True]
    assert [one.all_text_shown for one in titles] == [one.all_text_shown for one in sections] == [None] * 4, "no text is shown"
    assert [one.all_text_shown for one in text] == [True, True, False, None], "no section of the last question is known"
    assert [one.answer_shown for one in titles] == [False, False, False, None], "no text states yes"
    assert [one.answer_shown for one in text] == [True, True, False, None]
    assert [one.answer_shown for one in shown("titles", 3)] == [True, False, False, None], "a title may be the answer"
    small = shown("text", 3, 60)
    assert [one.all_text_shown for one in small] == [True, False, True, None], "beside the first text the third fits, the second does not"
    assert [one.answer_shown for one in small] == [True, False, True, None]


def test_what_is_shown_is_summed_by_hops_and_source():
    result = summarise_shown({form: shown(form) for form in FORMS}, 0.05)
    assert result["counts"] == {"all_pages_shown": 4, "all_text_shown": 3, "answer_shown": 3}
    assert list(result["groups"]) == ["hops=1", "hops=2", "source=a", "source=b"]
    assert result["groups"]["hops=1"] == {"all_pages_shown": 2, "all_text_shown": 1, "answer_shown": 1}
    text = result["forms"]["text"]
    assert (text["all_pages_shown"], text["all_text_shown"], text["groups"]["hops=2"]["all_text_shown"]) == (0.75, 2 / 3, 0.5)
    assert text["groups"]["source=a"]["answer_shown"] == 1.0 and result["forms"]["titles"]["all_text_shown"] is None
    assert text["intervals"]["all_pages_shown"][0] < 0.75 < text["intervals"]["all_pages_shown"][1]
    ranks = {"dense": measure_ranks(Shelf({"dense": 1}), QUESTIONS, "dense")}
    told = render_retrieval({**summarise_ranks(ranks, 0.05, 0), "first_search": {"top_k": 2, **result}}).splitlines()
    place = next(i for i, line in enumerate(told) if line.startswith("Shown by the first search"))
    assert "of 2 pages" in told[place] and told[place + 2].split() == ["shown", "n", "titles", "sections", "text"]
    assert told[place + 5].split()[:8] == ["text", "of", "all", "gold", "sections", "3", "-", "-"]
    by = [line.split() for line in told[place + 7 :]]
    assert ["hops=2", "2", "50.0", "50.0", "50.0"] in by and ["source=b", "2", "-", "-", "50.0"] in by
