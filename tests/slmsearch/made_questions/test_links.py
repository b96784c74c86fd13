"""Questions over two pages: what they ask, what is dropped, and that they can be played."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import holds_answer
from slmsearch.corpus.records import parse_question
from slmsearch.environments.searcher.demonstrations import demonstrate_gold
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.made_questions.cloze import Excerpt
from slmsearch.made_questions.links import find_facts, make_two_hop
from slmsearch.made_questions.make import Filters
from slmsearch.made_questions.names import Names, names_page
from tests.slmsearch.made_questions.test_make import WordIndex

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


def test_few_words_that_stand_on_the_second_page_twice_are_not_asked_about():
    twice = Page(
        "8", "Moritz Hollin", "He moved to the northern coast in 1882 and wrote.\n\nShe moved to the northern coast in 1883 and wrote.\n"
    )
    assert make([CIRCLE, twice, TOWN]) == ([], {"nothing to ask on the second page": 1})


def test_a_policy_could_play_them():
    library = Library(PAGES)
    toolbox = Toolbox(library, TitledIndex(library), 1, max_section_chars=1500, shows="sections")
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


RULES = [
    Page("rules/rule-0008", "RULE 8 \u2013 Rigging of Sloops", "# RULE 8 \u2013 Rigging of Sloops\n\nEach sloop carries two sails.\n"),
    Page("rules/rule-0080", "Lights at Night", "# Lights at Night\n\nA lamp burns at the mast.\n"),
    Page("book/ch2", "2.2. Setting the Mast", "# 2.2. Setting the Mast\n\nThe mast stands in the step.\n"),
    Page("book/ch3", "Chapter 3: The Long Keel", "# Chapter 3: The Long Keel\n\nThe keel is of oak.\n"),
    Page("guide/ropes", "Ropes", "# Ropes\n\nHemp is tarred.\n"),
    Page("guide/knots/index", "All the Knots", "# All the Knots\n\nA bowline holds.\n"),
    Page("notes/a", "Notes", "# Notes\n\nNothing.\n"),
    Page("notes/b", "Notes", "# Notes\n\nNothing.\n"),
]


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("As RULE 8 says, there are two.", [("RULE 8", "rules/rule-0008")]),
        ("As rule-0080 and RULE 8.1 say, a lamp burns.", [("rule-0080", "rules/rule-0080")]),
        ("What RULE 800 says is not known.", []),
        ("It is told in Rigging of Sloops at length.", [("Rigging of Sloops", "rules/rule-0008")]),
        ("The step is shown in Section 2.2, Setting the Mast.", [("Setting the Mast", "book/ch2")]),
        ("The oak comes from the yard (The Long Keel).", [("The Long Keel", "book/ch3")]),
        ("Its oak is that of chapter 3 alone.", [("chapter 3", "book/ch3")]),
        ("The file ropes.md says how hemp is tarred.", [("ropes.md", "guide/ropes")]),
        ("Read ../guide/ropes.html or index.rst first.", [("../guide/ropes.html", "guide/ropes"), ("index.rst", "guide/knots/index")]),
        ("Ropes and Notes are words that name no page.", []),
        ("A file notes/a.md has a name of its own.", [("notes/a.md", "notes/a")]),
    ],
)
def test_pages_are_named_by_parts_of_titles_labels_and_files(sentence, found):
    assert list(Names(Library(RULES)).find(sentence, {})) == found


def test_links_name_the_pages_that_they_lead_to():
    text = """How to [tie a bowline](knots/) or a [reef knot](./knots/index.md#reef "Knots"), on [hemp](ropes.md), see [the web](https://a.example/ropes.md).
Then [Notes](../notes/a.html), [nothing](gone.md), [here](#top) and ![an image](ropes.md)."""
    links = Names(Library(RULES)).links_of(Excerpt(text, "guide/start", "Start", "guide/start:a", "A"))
    knots = "guide/knots/index"
    assert links == {"tie a bowline": knots, "reef knot": knots, "hemp": "guide/ropes", "Notes": "notes/a"}
    sentence = "Who can tie a bowline has no need of hempen rope."
    assert list(Names(Library(RULES)).find(sentence, links)) == [("tie a bowline", knots)]


def test_code_names_the_page_that_is_called_so():
    pages = [*RULES, Page("lib/hawser", "hawser \u2014 Thick ropes", "# hawser \u2014 Thick ropes\n\nIt is thick.\n")]
    names = Names(Library(pages))
    found = names.links_of(Excerpt("The module `hawser` needs `hemp` and `hawser.tar()`.", "notes/a", "Notes", "notes/a:a", "A"))
    assert found == {"hawser": "lib/hawser"}
    assert list(names.find("The module hawser needs hemp.", found)) == [("hawser", "lib/hawser")]
    assert list(names.find("What hawser.tar does with my-hawser is not known.", found)) == []


def test_a_page_that_is_named_by_its_label_can_be_played():
    rule = Page("rule-0012", "RULE 12 \u2013 Flags", "# RULE 12 \u2013 Flags\n\nThe flag was sewn by Ida Brom in the loft.\n")
    other = Page("yard", "Yard", "# Yard\n\nWhat hangs at the stern of the sloop is told in RULE 12 alone.\n")
    library = Library([rule, other, TOWN])
    index = TitledIndex(library)
    (row,), _ = make_two_hop(Filters(library, index, 1), 0, 10)
    assert (row["entities"], row["page_ids"], row["answer"]) == (["RULE 12"], ["yard", "rule-0012"], "Ida Brom")
    question = parse_question(row, "here", library.sections)
    (found,), left_out = demonstrate_gold([question], Toolbox(library, index, 1, max_section_chars=1500, shows="sections"))
    assert not left_out and '<tool>search_pages("RULE 12")</tool>' in [message for message, _ in found.turns]


NAMED = [
    "RULE 8",
    "Rigging of Sloops",
    "rule-0080",
    "ropes.md",
    " ",
    ", ",
    ". ",
    "(",
    "chapter 3",
    "The Long Keel",
    "x" * 50,
    "[a](b)",
    "\n",
]


@given(st.lists(st.sampled_from(NAMED), max_size=30).map("".join) | st.text(max_size=100))
def test_what_names_a_page_stands_in_the_sentence_once_and_leads_to_a_page(text):
    library = Library(RULES)
    for name, page_id in Names(library).find(text, {"Long": "book/ch3"}):
        assert name and name in text and library.page(page_id)


@given(st.text(alphabet='Ada Lovelace wrote in 1815,.() the _"\n', max_size=200))
def test_what_is_asked_for_stands_in_the_text_and_not_in_the_question(text):
    for fact in find_facts(Excerpt(text, "1", "Ada Lovelace", "1:a", "A")):
        assert fact.answer in text
        assert not holds_answer(fact.asked.partition("fills the gap")[2], fact.answer)
