"""Sentences, spans and gaps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.questions import holds_answer
from slmsearch.made_questions.cloze import Excerpt, find_spans, make_clozes, read_code
from slmsearch.made_questions.sentences import is_usable, plain_paragraphs, split_sentences


def sentence(text: str) -> Excerpt:
    return Excerpt(text, "rome", "Rome", "rome:history", "History")


def test_a_gap_names_the_page_where_the_sentence_does_not():
    (draft,) = make_clozes(sentence("The river flows past Ostia Antica into the sea."))
    assert draft.question == 'According to "Rome": which name fills the gap: "The river flows past ____ into the sea."'
    assert draft.answer == "Ostia Antica"
    (draft,) = make_clozes(sentence("Rome was sacked by Alaric and his men."))
    assert draft.question.startswith('Which name fills the gap: "Rome was')


def test_spans_by_kind():
    found = {(span.kind, span.text) for span in find_spans('In 1887 on 5 May 1920, Karl Benz paid 12,000 marks for "The Red House".')}
    assert found == {("year", "1887"), ("date", "5 May 1920"), ("name", "Karl Benz"), ("number", "12,000"), ("term", "The Red House")}
    assert find_spans("Students live in Fox College, Crane College and Stag College.") != []
    assert all(span.text != "Crane College" for span in find_spans("Students live in Fox College, Crane College, Stag College."))


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("Written in both English and French, his works are bleak.", []),
        ("It ended with the work of Apollonius of Perga's school.", ["Apollonius of Perga"]),
    ],
)
def test_a_name_begins_with_a_capital_and_ends_without_a_possessive(text: str, answers: list[str]):
    assert [span.text for span in find_spans(text)] == answers


def answers(text: str, heading: str = "History", common: tuple[str, ...] = ()) -> list[str]:
    return [draft.answer for draft in make_clozes(Excerpt(text, "boats", "Boats", "boats:x", heading), common)]


def test_code_in_a_line_is_asked_for_without_its_marks():
    (draft,) = make_clozes(sentence("A boat that is full raises `HoldError` at once, not `no`."))
    assert draft.question.endswith('which code fills the gap: "A boat that is full raises ____ at once, not no."')
    assert draft.answer == "HoldError" and draft.place.text == "A boat that is full raises HoldError at once, not no."
    assert answers("The mast is set by `boat.set_mast()` alone.", heading="boat.set_mast") == [], "its heading says it"
    assert answers(f"The mast is set by `{'x' * 50}` alone.") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The ports are listed in ports/Ostia or in a file Ostia.txt here.", []),
        ("The order of sails follows from PEP 4471 and nothing else.", []),
        ("The harbour has room for 4471 boats of any size.", ["4471"]),
        ("The rules of the harbour are long (see Harbour Rules).", []),
        ("Changed of late: Added Masts to the list of all parts.", []),
        ("Moving Boats is done by the crew, or by nobody at all.", []),
        ("Port Ostia is where all of the boats are built.", ["Port Ostia"]),
    ],
)
def test_parts_of_something_and_first_words_of_sentences_are_not_asked_for(text: str, found: list[str]):
    assert answers(text, common=("added", "moving")) == found


def test_marks_within_code_are_kept_and_those_around_it_go():
    text = "**Bold** `__init__` and [`a_b`](x) take *one* `a * b`, `c * d`."
    assert plain_paragraphs(text, keep_code=True) == ["Bold `__init__` and `a_b` take one `a * b`, `c * d`."]
    assert plain_paragraphs(text) == ["Bold __init__ and a_b take one a * b, c * d."]
    assert read_code("x `a` y ``b``") == ("x a y b", [(2, 3), (6, 7)])
    assert split_sentences("It ends. `sail` begins here.") == ["It ends.", "`sail` begins here."]
    assert is_usable("`sail` moves the boat for you.") and not is_usable("See the page on sails for more.")


def test_markdown_becomes_plain_sentences():
    text = """## Heading
**Rome** is the [capital](http://x.org/a_(b)) of _Italy_.[1] It has
`seven` hills<br>.

| a | b |
- one item here. Dr. Smith came.

```
code. Not this.
```
"""
    paragraphs = plain_paragraphs(text)
    assert paragraphs[0] == "Rome is the capital of Italy. It has seven hills."
    assert split_sentences(paragraphs[1]) == ["one item here.", "Dr. Smith came."]
    assert not any("code" in paragraph or "|" in paragraph for paragraph in paragraphs)


@pytest.mark.parametrize(
    "text", ["too short.", "no capital at the start of it.", "Is this a question about things?", "It is open (here and there."]
)
def test_sentences_that_are_of_no_use(text: str):
    assert not is_usable(text)


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from(["In 1901", "The", "was", "by", "A Name", '"', "(", ",", ".", " ", "_", "*", "[", "`a name()`", "`"])).map(
        " ".join
    )
)
@settings(max_examples=200, deadline=None)
def test_any_text_gives_drafts_whose_answer_stands_in_the_sentence(text: str):
    for paragraph in plain_paragraphs(text, keep_code=True):
        for marked in split_sentences(paragraph):
            part = read_code(marked)[0]
            for draft in make_clozes(sentence(marked)):
                assert draft.answer in part and draft.answer.strip()
                assert "____" in draft.question
                assert holds_answer(part, draft.answer) or not draft.answer.isascii() or "_" in draft.answer
