"""Questions over two pages: what they ask, what is dropped, and that they can be played."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import holds_answer
from slmsearch.corpus.records import parse_question
from slmsearch.environments.demonstrations import demonstrate_gold
from slmsearch.questions.cloze import Excerpt
from slmsearch.questions.links import find_facts, make_two_hop
from slmsearch.questions.make import Filters
from slmsearch.questions.names import names_page
from slmsearch.searcher.tools import Toolbox
from tests.slmsearch.questions.test_make import WordIndex

CIRCLE = Page("7", "Harbour Circle", "The quiet circle of the harbour was led by Moritz Hollin in a small tavern.\n")
HOLLIN = Page("8", "Moritz Hollin", "He moved to the northern coast in 1882 and wrote.\n")
TOWN = Page("9", "Brixa", "Brixa is a town with mills and bridges.\n")
PAGES = [CIRCLE, HOLLIN, TOWN]


class TitledIndex(WordIndex):
    """Finds a page by its title before all others."""

    def search(self, queries, top_k):
        titled = {page.title: page.id for page in self.library.pages()}
        return [
            sorted(hits, key=lambda hit: hit.page_id != titled.get(query))[:top_k]
            for query, hits in zip(queries, super().search(queries, len(titled)), strict=True)
        ]


def make(pages, top_k=1, limit=10):
    library = Library(pages)
    return make_two_hop(Filters(library, TitledIndex(library), top_k), 0, limit)


def test_a_sentence_that_names_a_page_and_a_gap_on_that_page_make_a_question():
    (row,), dropped = make(PAGES)
    assert row["question"] == (
        'Which name fills the gap: "The quiet circle of the harbour was led by ____ in a small tavern."? '
        'On the page of that name, which year fills the gap: "... the northern coast in ____ and wrote. ..."?'
    )
    assert (row["answer"], row["page_ids"], row["hops"], row["kind"]) == ("1882", ["7", "8"], 2, "two_hop")
    assert not dropped


def test_the_same_seed_gives_the_same_questions_and_no_more_than_asked_for():
    other = Page("6", "Other Circle", "A loud circle of the valley was led by Moritz Hollin in a large mill.\n")
    pages = [*PAGES, other]
    assert len(make(pages)[0]) == 2
    assert make(pages, limit=1)[0] == make(pages, limit=1)[0]
    assert len(make(pages, limit=1)[0]) == 1


def test_what_one_page_answers_or_cannot_be_reached_is_dropped():
    told = Page("7", "Harbour Circle", CIRCLE.content.replace("tavern.", "tavern. It was 1882."))
    assert make([told, HOLLIN, TOWN]) == ([], {"answer on the first page": 1})
    assert make(PAGES, top_k=3) == ([], {"the question finds the second page": 1})
    louder = Page("5", "Taverns", "The quiet circle of the harbour was led by nobody in a small tavern, which fills the gap.\n")
    assert make([*PAGES, louder]) == ([], {"the question does not find the first page's section": 1})


def test_a_policy_could_play_them():
    library = Library(PAGES)
    toolbox = Toolbox(library, TitledIndex(library), 1, max_section_chars=1500, section_hints=True)
    questions = [parse_question(row, "here", library.sections) for row in make(PAGES)[0]]
    found, left_out = demonstrate_gold(questions, toolbox)
    assert not left_out
    calls = [[message.partition("(")[0] for message, _ in demonstration.turns[:-1]] for demonstration in found]
    assert calls == [["<tool>search_pages", "<tool>read_section"] * 2]


@pytest.mark.parametrize(
    ("sentence", "title", "named"),
    [
        ("It was led by Moritz Hollin.", "Moritz Hollin", True),
        ("Its largest city is Ho Chi Minh City today.", "Ho Chi Minh", False),
        ("The capital of Rio Grande do Sul is large.", "Rio Grande", False),
        ("He fought in the Great Northern War there.", "Northern War", False),
        ("A Moritz Hollin-like voice.", "Moritz Hollin", False),
        ("Moritz Hollin met Moritz Hollin.", "Moritz Hollin", False),
    ],
)
def test_a_longer_name_does_not_name_the_page(sentence, title, named):
    assert names_page(sentence, title) == named


@given(st.text(alphabet='Ada Lovelace wrote in 1815,.() the _"\n', max_size=200))
def test_what_is_asked_for_stands_in_the_text_and_not_in_the_question(text):
    for fact in find_facts(Excerpt(text, "1", "Ada Lovelace", "1:a", "A")):
        assert fact.answer in text
        assert not holds_answer(fact.asked.partition("fills the gap")[2], fact.answer)
