"""Sentences, spans, templates and gaps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.tables import holds_answer
from slmsearch.questions.cloze import make_clozes
from slmsearch.questions.sentences import Sentence, is_usable, plain_paragraphs, split_sentences
from slmsearch.questions.spans import find_spans
from slmsearch.questions.templates import make_drafts


def sentence(text: str, title: str = "Rome", is_first: bool = False) -> Sentence:
    return Sentence(text, "rome", title, "rome:history", "History", is_first)


@pytest.mark.parametrize(
    ("text", "question", "answer"),
    [
        ("The College of Law was founded in 1869 by Ada Byron.", "In which year was the College of Law founded by Ada Byron?", "1869"),
        ("In 1901 Marie Curie was awarded a prize, which she kept.", "In which year was Marie Curie awarded a prize?", "1901"),
        ("Apple announced a new model on November 14, 2003.", "When did Apple announce a new model?", "November 14, 2003"),
        ("Knute Rockne became head coach in 1918.", "In which year did Knute Rockne become head coach?", "1918"),
        ("The mayor was Rosa Jaswenis.", 'According to "Rome", who was the mayor?', "Rosa Jaswenis"),
        ("Vinane University has 6,674 students.", "How many students does Vinane University have?", "6,674"),
        ("There are 2355 workers.", 'According to "Rome", how many workers are there?', "2355"),
        ("Alfred Whitehead was born in Ramsgate, Kent.", "Where was Alfred Whitehead born?", "Ramsgate"),
        ("The Jaswenis Festival takes place in Dorhalund Cross.", "Where does the Jaswenis Festival take place?", "Dorhalund Cross"),
        ("Rome is a busy capital of many hills.", "What is Rome?", "busy capital of many hills"),
    ],
)
def test_statements_of_known_shapes_become_questions(text: str, question: str, answer: str):
    drafts = [(draft.question, draft.answer) for draft in make_drafts(sentence(text))]
    assert drafts[0] == (question, answer)


def test_by_whom_and_its():
    made = {draft.question: draft.answer for draft in make_drafts(sentence("The Main Hall was designed by Luigi Gregori in 1880."))}
    assert made["By whom was the Main Hall designed in 1880?"] == "Luigi Gregori"
    (draft,) = make_drafts(sentence("Its length is 1011 furlongs.", "Dorhalund Water", is_first=True))
    assert (draft.question, draft.answer) == ("What is the length of Dorhalund Water?", "1011 furlongs")


@pytest.mark.parametrize(
    "text",
    [
        "It was founded in 1869.",
        "This was opened in 1920 by them.",
        "According to tradition a Buddha is a fully awakened being.",
        "Midna is moved by Zelda's sacrifice.",
        "Its length is 1011 furlongs.",
        "Chopin was ill but was writing in 1839.",
        "Devotion is an important part of the practice.",
    ],
)
def test_what_does_not_fit_exactly_gives_nothing(text: str):
    assert list(make_drafts(sentence(text))) == []


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
    | st.lists(st.sampled_from(["In 1901", "The", "was", "by", "A Name", '"', "(", ",", ".", " ", "_", "*", "["])).map(" ".join)
)
@settings(max_examples=200, deadline=None)
def test_any_text_gives_drafts_whose_answer_stands_in_the_sentence(text: str):
    for paragraph in plain_paragraphs(text):
        for part in split_sentences(paragraph):
            for draft in (*make_drafts(sentence(part)), *make_clozes(sentence(part))):
                assert draft.answer in part and draft.answer.strip()
                assert draft.kind == "template" or "____" in draft.question
                assert holds_answer(part, draft.answer) or not draft.answer.isascii() or "_" in draft.answer
