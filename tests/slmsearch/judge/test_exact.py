"""Exact match, token F1 and abstention: what equals what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.questions import UNKNOWN_ANSWER
from slmsearch.judge.exact import exact_match, f1, is_abstention, normalise_answer


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("The  Quick, brown FOX!", "quick brown fox"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),  # "the" only as a word
        ("  tabs\tand\nlines ", "tabs and lines"),
        ("\N{LEFT DOUBLE QUOTATION MARK}Quoted\N{RIGHT DOUBLE QUOTATION MARK} \N{EN DASH} dashed", "quoted dashed"),
        ("\N{FULLWIDTH DIGIT ONE}984", "1984"),
        ("STRASSE", "strasse"),
        ("Stra\N{LATIN SMALL LETTER SHARP S}e", "strasse"),
        ("Zürich", "zürich"),
        ("Zu\N{COMBINING DIAERESIS}rich", "zürich"),
        ("1,200", "1200"),
        ("the", ""),
        ("", ""),
    ],
)
def test_normalise_answer(text: str, normalised: str) -> None:
    assert normalise_answer(text) == normalised


@pytest.mark.parametrize(
    ("prediction", "answers", "matches"),
    [
        ("rome", ("Rome",), True),
        ("the Rome.", ("Paris", "Rome"), True),
        ("in Rome", ("Rome",), False),
        ("", ("Rome",), False),
        ("   ", ("Rome",), False),
        (None, ("Rome",), False),
        ("Rome", (), False),
        ("the", ("a",), False),  # both normalise to nothing
        ("A", ("a",), True),
        ("+", ("-",), False),
        ("", ("",), False),
        ("I don\N{RIGHT SINGLE QUOTATION MARK}t know.", (UNKNOWN_ANSWER,), True),
        ("Unknown", (UNKNOWN_ANSWER,), True),
        ("Unknown", ("Rome",), False),
        ("東京", ("東京",), True),
    ],
)
def test_exact_match(prediction: str | None, answers: tuple[str, ...], matches: bool) -> None:
    assert exact_match(prediction, answers) is matches


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("Ada Lovelace", ("Ada Lovelace",), 1.0),
        ("Ada", ("Ada Lovelace",), 2 / 3),  # precision 1, recall 1/2
        ("Ada", ("Ada Lovelace", "Ada"), 1.0),  # best alias
        ("red red blue", ("red blue blue",), 2 / 3),  # multiset overlap 2 of 3 and 3
        ("Grace Hopper", ("Ada Lovelace",), 0.0),
        ("", ("Ada",), 0.0),
        (None, ("Ada",), 0.0),
        ("Ada", (), 0.0),
        ("I know Ada", (UNKNOWN_ANSWER,), 0.0),  # no partial credit for sharing "I" and "know"
        ("I do not know", (UNKNOWN_ANSWER,), 1.0),
        ("a", ("the",), 0.0),
    ],
)
def test_f1(prediction: str | None, answers: tuple[str, ...], score: float) -> None:
    assert f1(prediction, answers) == pytest.approx(score)


@pytest.mark.parametrize("text", [UNKNOWN_ANSWER, "i dont know", "I do not know!", "Unknown.", "  UNANSWERABLE "])
def test_abstentions(text: str) -> None:
    assert is_abstention(text)


@pytest.mark.parametrize("text", [None, "", "I know", "Unknown Mortal Orchestra", "no"])
def test_no_abstentions(text: str | None) -> None:
    assert not is_abstention(text)


@given(st.text(max_size=60))
def test_any_text_matches_itself_unless_empty(text: str) -> None:
    assert normalise_answer(normalise_answer(text)) == normalise_answer(text) or not text.isascii()
    assert exact_match(text, (text,)) is bool(text.strip())
    assert 0.0 <= f1(text, ("some answer", text)) <= 1.0
