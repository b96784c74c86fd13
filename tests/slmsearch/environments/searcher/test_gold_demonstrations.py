"""Demonstrations from gold sections: what they write, and what they leave out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.paragraphs import place_questions, split_paragraphs
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.corpus.view import View
from slmsearch.environments.searcher.demonstrations import (
    NARROW_FRAC,
    NO_GOLD,
    NO_SECTION,
    NOT_FOUND,
    NOT_STATED,
    SEVERAL,
    TitleIndex,
    demonstrate_gold,
    demonstrate_narrowly,
    other_queries,
)
from slmsearch.environments.searcher.parsing import parse_turn
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.episode import Quotation, ToolCall
from slmsearch.retrieval.hits import Hit

PAGES = [
    Page("mira", "Mira", "# Mira\n\nA poet from Dunmar.\n\n## Life\n\nBorn in 1823.\n"),
    Page("dunmar", "Dunmar", "# Dunmar\n\nA town.\n\n## River\n\n" + "It flows. " * 200 + "It is 18 km long.\n"),
    Page("zzz", "Zzz", "# Zzz\n\nNothing.\n"),
]
LIBRARY = Library(PAGES)


def ask(text, answer, *section_ids, **fields):
    return Question(text, text, answer, section_ids=section_ids, page_ids=tuple(s.split(":")[0] for s in section_ids), **fields)


class HintedIndex(TitleIndex):
    """Hints at the last section of each page."""

    def __init__(self, library):
        super().__init__(library)
        self.library = library

    def search(self, queries, top_k, *, hidden=()):
        found = super().search(queries, top_k)
        return [[Hit(h.page_id, h.title, h.score, self.library.sections(h.page_id)[-1].id) for h in hits] for hits in found]


def play(questions, shows="titles", top_k=1):
    toolbox = Toolbox(LIBRARY, HintedIndex(LIBRARY), top_k, max_section_chars=1500, shows=shows)
    found, left_out = demonstrate_gold(questions, toolbox)
    return [[message for message, _ in demonstration.turns] for demonstration in found], dict(left_out)


def test_it_searches_views_reads_and_answers_through_the_tools():
    (turns,), left_out = play([ask("When was Mira born?", "1823", "mira:life")])
    assert turns == [
        '<tool>search_pages("When was Mira born?")</tool>',
        '<tool>view_sections("mira")</tool>',
        '<tool>read_section("mira:life")</tool>',
        "<answer>1823</answer>",
    ]
    assert left_out == {}
    assert all(parse_turn(turn) for turn in turns)


def test_with_hints_it_reads_what_the_search_hinted_at():
    found, left_out = play(
        [ask("When was Mira born?", "1823", "mira:life"), ask("What was Mira?", "A poet", "mira:mira")], shows="sections"
    )
    assert [len(turns) for turns in found] == [3, 4]
    assert found[1][1:3] == ['<tool>view_sections("mira")</tool>', '<tool>read_section("mira:mira")</tool>'], "no search hints at it"
    assert left_out == {}


def test_what_a_search_shows_with_its_text_is_not_read_again():
    (turns,), left_out = play([ask("When was Mira born?", "1823", "mira:life")], shows="text")
    assert turns == ['<tool>search_pages("When was Mira born?")</tool>', "<answer>1823</answer>"] and not left_out


def test_the_second_page_is_searched_for_by_its_name_in_the_text_of_the_first():
    pages = [
        Page("mira", "Mira", "# Mira\n\nA poet from Dunmar.\n"),
        Page("dunmar", "Dunmar (town)", "# Dunmar (town)\n\nIt has 900 people.\n"),
    ]
    library = Library(pages)
    question = ask("How many people live where Mira was born?", "900", "mira:mira", "dunmar:dunmar_(town)")
    toolbox = Toolbox(library, HintedIndex(library), 1, max_section_chars=1500, shows="text")
    (found,), left_out = demonstrate_gold([question], toolbox)
    assert not left_out
    assert [message for message, _ in found.turns][1:] == ['<tool>search_pages("Dunmar")</tool>', "<answer>900</answer>"]


def withdraw(question):
    """Return the twin that hides the last gold section."""
    *rest, last = question.section_ids
    return replace(question, kind="withdrawn", answer=UNKNOWN_ANSWER, section_ids=tuple(rest), view=View((last,)))


def test_a_twin_of_two_hops_is_given_up_after_the_search_for_its_second_page():
    question = ask("How long is the river of Mira's town?", "18 km", "mira:mira", "dunmar:river")
    library = Library([Page("mira", "Mira", "# Mira\n\nA poet from Dunmar.\n"), PAGES[1]])
    toolbox = Toolbox(library, HintedIndex(library), 2, max_section_chars=1500, shows="text")
    (found, twin), left_out = demonstrate_gold([question, withdraw(question)], toolbox)
    assert [message for message, _ in twin.turns[:2]] == [message for message, _ in found.turns[:2]]
    assert found.turns[1][0] == '<tool>search_pages("Dunmar")</tool>' and twin.turns[-1][0] == f"<answer>{UNKNOWN_ANSWER}</answer>"
    assert not left_out


def test_what_was_shown_of_a_long_section_is_not_read_again_where_no_part_of_it_holds_the_answer():
    library = Library([Page("mira", "Mira", f"# Mira\n\nA poet from Dunmar. {'She wrote. ' * 200}\n"), PAGES[2], PAGES[1]])
    toolbox = Toolbox(library, HintedIndex(library), 1, max_section_chars=1500, shows="text")
    question = ask("What is the town of Mira?", "A town.", "mira:mira", "dunmar:dunmar")
    (found,), left_out = demonstrate_gold([question], toolbox)
    assert [message for message, _ in found.turns[1:3]] == ['<tool>search_pages("Dunmar")</tool>', '<tool>view_sections("dunmar")</tool>']
    assert not left_out


def test_a_section_of_which_a_search_shows_the_first_part_is_read_from_the_second():
    (turns,), left_out = play([ask("How long is the river of Dunmar?", "18 km", "dunmar:river")], shows="text")
    assert turns[1:] == ['<tool>read_section("dunmar:river#2")</tool>', "<answer>18 km</answer>"] and not left_out


def test_a_first_section_is_named_by_its_page_in_what_is_demonstrated():
    library = Library([Page("lake", "Lake", "# Lake\n\n" + "It is deep. " * 20 + "Pike live in it."), *LIBRARY.pages()])
    toolbox = Toolbox(library, HintedIndex(library), 1, max_section_chars=200, shows="text")
    fact, passage = ask("What lives in the Lake?", "Pike", "lake:lake"), ask("How deep is the Lake?", "It is deep. " * 15, "lake:lake")
    found, left_out = demonstrate_gold([fact, passage], toolbox)
    assert not left_out
    assert [message for message, _ in found[0].turns[1:]] == ['<tool>read_section("lake#2")</tool>', "<answer>Pike</answer>"]
    assert found[1].turns[-1][0] == '<answer section="lake"></answer>'


@pytest.mark.parametrize("shows", ["titles", "text"])
def test_reading_a_section_is_reading_those_below_it(shows):
    page = Page(
        "p", "Tool", "# Tool\n\nA tool.\n\n## Install\n\nAs follows.\n\n### Linux\n\nRun apt.\n\n### Long\n\n" + "It is long. " * 90
    )
    library = Library([page, PAGES[2]])
    toolbox = Toolbox(library, HintedIndex(library), 1, max_section_chars=1000, shows=shows)
    first, second = toolbox.serve([ToolCall("read_section", "p:install"), ToolCall("read_section", "p:install#2")])
    assert (first.section_ids, second.section_ids) == (("p:install", "p:linux"), ("p:install",)), "of the other a part is shown"
    hidden = View(hidden=("p:linux",))
    assert toolbox.serve([ToolCall("read_section", "p:install")], [hidden])[0].section_ids == ("p:install",)
    assert toolbox.quote(Quotation("p:linux"), first.section_ids).text == "Run apt."


@pytest.mark.parametrize("shows", ["titles", "text"])
def test_an_answer_is_stated_as_words_of_the_section_and_also_across_its_parts(shows):
    text = f"Built in 1950. {'It stands. ' * 132}It is called New York City. {'It holds. ' * 60}It has 5 arches and 2 towers."
    library = Library([Page("4851", "Bridge", f"# Bridge\n\nA bridge.\n\n## History\n\n{text}"), PAGES[2]])
    toolbox = Toolbox(library, HintedIndex(library), 1, max_section_chars=1500, shows=shows)
    assert "New York City" not in library.section("4851:history").text[:1500] + "|" + library.section("4851:history").text[1500:]
    for answer in ("5", "2", *(["New York City"] if shows == "titles" else [])):
        (found,), left_out = demonstrate_gold([ask("What of the Bridge?", answer, "4851:history")], toolbox)
        assert found.turns[-2][0] == '<tool>read_section("4851:history#2")</tool>' and not left_out, answer


def test_a_long_section_is_not_read_if_the_part_that_a_search_shows_holds_the_answer():
    (turns,), left_out = play([ask("What does the river of Dunmar do?", "It flows.", "dunmar:river")], shows="text")
    assert turns[1:] == ["<answer>It flows.</answer>"] and not left_out


def test_most_questions_are_shown_the_text_of_the_best_page_alone():
    toolbox = Toolbox(LIBRARY, HintedIndex(LIBRARY), 3, max_section_chars=1500, shows="text")
    easy = [ask(f"When was Mira born, in zzz {number}?", "1823", "mira:life") for number in range(200)]
    hard = [ask(f"When was Dunmar's poet Mira, no. {number}, born?", "A town.", "dunmar:dunmar") for number in range(20)]
    narrow = demonstrate_narrowly([*easy, *hard], toolbox, {})
    assert set(narrow) <= {question.question for question in easy}, "for the others another page is the best"
    assert NARROW_FRAC - 0.1 < len(narrow) / len(easy) < NARROW_FRAC + 0.1
    for text, demonstration in narrow.items():
        assert demonstration.turns[0][1] == f"mira:life: Mira\nBorn in 1823.\n\nzzz: Zzz\n\n{text}", "others are listed"
    assert not demonstrate_narrowly(easy, Toolbox(LIBRARY, HintedIndex(LIBRARY), 3, 1500, shows="sections"), {})
    twins = demonstrate_narrowly([withdraw(question) for question in easy], toolbox, {})
    assert set(twins) == set(narrow), "the number of texts is no sign of a twin"


class BothIndex:
    """Finds both pages, the one that the query names first."""

    key = "both"

    def search(self, queries, top_k, *, hidden=()):
        both = [Hit("mira", "Mira", 0.9, "mira:mira"), Hit("dunmar", "Dunmar", 0.8, "dunmar:dunmar")]
        return [sorted(both, key=lambda hit: hit.title not in query) for query in queries]


def test_most_questions_on_two_pages_are_shown_one_at_a_time():
    library = Library(
        [Page("mira", "Mira", "# Mira\n\nA poet from Dunmar.\n"), Page("dunmar", "Dunmar", "# Dunmar\n\nIt has 900 people.\n")]
    )
    toolbox = Toolbox(library, BothIndex(), 2, max_section_chars=1500, shows="text")
    asked = [ask(f"{number}: how many people live in the town of Mira?", "900", "mira:mira", "dunmar:dunmar") for number in range(200)]
    wide, _ = demonstrate_gold(asked, toolbox)
    assert {len(demonstration.turns) for demonstration in wide} == {2}, "the first search shows both"
    narrow, twins = (demonstrate_narrowly(found, toolbox, {}) for found in (asked, [withdraw(question) for question in asked]))
    assert NARROW_FRAC - 0.1 < len(narrow) / len(asked) < NARROW_FRAC + 0.1 and set(twins) == set(narrow)
    for demonstration in (*narrow.values(), *twins.values()):
        assert len(demonstration.turns) == 3 and demonstration.turns[1][0] == '<tool>search_pages("Dunmar")</tool>'


class MissingIndex(HintedIndex):
    """Finds nothing for whole sentences."""

    def search(self, queries, top_k):
        return [[] if query.endswith("?") else hits for query, hits in zip(queries, super().search(queries, top_k), strict=True)]


def test_where_the_question_finds_nothing_it_searches_with_what_the_question_names():
    toolbox = Toolbox(LIBRARY, MissingIndex(LIBRARY), 1, max_section_chars=1500, shows="sections")
    found, left_out = demonstrate_gold([ask("In which year was Mira born?", "1823", "mira:life")], toolbox)
    assert not left_out
    assert [message for message, _ in found[0].turns] == [
        '<tool>search_pages("In which year was Mira born?")</tool>',
        '<tool>search_pages("Mira")</tool>',
        '<tool>read_section("mira:life")</tool>',
        "<answer>1823</answer>",
    ]


@given(st.text())
def test_other_queries_are_parts_of_the_question(question):
    for query in other_queries(question):
        assert query
        assert query != question
        assert all(word in question for word in query.split())


def test_two_hops_go_over_the_title_that_was_read_and_long_sections_are_turned_over():
    (turns,), _ = play([ask("How long is the river of Mira's town?", "18 km", "mira:mira", "dunmar:river")])
    assert turns[3:] == [
        '<tool>search_pages("Dunmar")</tool>',
        '<tool>view_sections("dunmar")</tool>',
        '<tool>read_section("dunmar:river")</tool>',
        '<tool>read_section("dunmar:river#2")</tool>',
        "<answer>18 km</answer>",
    ]


def test_what_no_policy_could_have_played_is_left_out_and_counted():
    questions = [
        ask("Who is Mira?", "I don't know", "mira:mira"),
        ask("Who is Mira?", "a poet"),
        ask("When was Mira born?", "1823", "dunmar:river"),
        ask("When was Mira born?", "1823", "mira:gone"),
        ask("When was Mira born?", "nothing", "mira:life", "zzz:zzz"),
    ]
    assert play(questions) == ([], {NO_GOLD: 2, NOT_FOUND: 2, NO_SECTION: 1})


def test_why_a_question_that_names_pages_alone_was_not_placed_is_said():
    def about(answer, *page_ids):
        return Question("q", "What is it?", answer, page_ids=page_ids)

    assert play([about("1900", "mira")]) == ([], {NOT_STATED: 1})
    assert play([about("in", "mira", "dunmar"), about("a", "mira", "dunmar")]) == ([], {NO_GOLD: 1, SEVERAL: 1})
    assert play([about("1823", "mira"), about("1823"), about("I don't know", "mira"), about("x", "gone")]) == ([], {NO_GOLD: 4})


class CountingIndex(HintedIndex):
    """Counts how often it is asked."""

    calls = 0

    def search(self, queries, top_k):
        self.calls += 1
        return super().search(queries, top_k)


def test_questions_are_played_side_by_side_and_their_searches_are_served_together():
    one = [ask(f"{n}: when was Mira born?", "1823", "mira:life") for n in range(20)]
    two = [ask(f"{n}: how long is the river of Mira's town?", "18 km", "mira:mira", "dunmar:river") for n in range(20)]
    alone = [play([question])[0][0] for question in (*one, *two)]
    index = CountingIndex(LIBRARY)
    found, left_out = demonstrate_gold([*one, *two], Toolbox(LIBRARY, index, 1, max_section_chars=1500))
    assert [[message for message, _ in demonstration.turns] for demonstration in found] == alone
    assert not left_out and index.calls == 2, "one for all first searches, one for all second ones"


def test_a_question_that_names_two_pages_is_placed_and_demonstrated_with_two_searches_and_two_reads():
    question = Question("q", "How long is the river of Mira's town?", "18 km", page_ids=("dunmar", "mira"))
    cut = Library([split_paragraphs(page) for page in PAGES])
    (placed,) = place_questions([question], LIBRARY, cut)
    assert placed.section_ids[0] == "mira:mira" and placed.section_ids[1].startswith("dunmar:river")
    toolbox = Toolbox(cut, TitleIndex(cut), 1, max_section_chars=1500)
    (shown,), left_out = demonstrate_gold([placed], toolbox)
    calls = [parse_turn(message).call for message, _ in shown.turns[:-1]]
    assert [(call.name, call.argument) for call in calls if call.name != "view_sections"] == [
        ("search_pages", question.question),
        ("read_section", "mira:mira"),
        ("search_pages", "Dunmar"),
        ("read_section", placed.section_ids[1]),
    ]
    assert shown.turns[-1][0] == "<answer>18 km</answer>" and not left_out


def test_what_the_model_itself_searches_for_comes_first():
    toolbox = Toolbox(LIBRARY, HintedIndex(LIBRARY), 1, max_section_chars=1500)
    question = ask("When was Mira born?", "1823", "mira:life")
    for begins, searches in (({question.question: "Mira"}, ["Mira"]), ({question.question: "zzz"}, ["zzz", question.question])):
        (shown,), left_out = demonstrate_gold([question], toolbox, begins)
        calls = [message for message, _ in shown.turns if "search_pages" in message]
        assert calls == [f'<tool>search_pages("{text}")</tool>' for text in searches] and not left_out
