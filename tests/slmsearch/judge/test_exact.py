"""Exact match, token F1 and abstention: what equals what."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.questions import PASSAGE_WORDS, UNKNOWN_ANSWER
from slmsearch.judge.exact import exact_match, f1, is_abstention, normalise_answer, rouge_l


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


GOLD = "police killed the gunman who had shot at them near the old bridge"


@pytest.mark.parametrize(
    ("prediction", "score"),
    [
        (GOLD, 1.0),
        (GOLD.upper() + ".", 1.0),
        ("police killed the gunman", 2 * 4 / (4 + 13)),
        ("the gunman killed police", 2 * 2 / (4 + 13)),  # Lin's example: order counts, and only "the gunman" keeps it
        ("police, near the bridge: killed", 2 * 4 / (5 + 13)),  # words between do not matter
        ("nothing of it", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_rouge_l_is_the_f1_of_the_longest_common_subsequence(prediction: str | None, score: float) -> None:
    assert rouge_l(prediction, (GOLD,)) == pytest.approx(score)


def test_rouge_l_is_of_long_gold_answers_and_takes_the_best_alias() -> None:
    ten = " ".join(f"w{i}" for i in range(PASSAGE_WORDS))
    assert rouge_l(ten, (ten,)) is None and rouge_l(None, ()) is None
    assert rouge_l(ten, (f"{ten} more",)) == pytest.approx(2 * 10 / (10 + 11))
    assert rouge_l("shot near a bridge", (GOLD, "!", "shot near a bridge")) == 1.0


@given(st.text(max_size=40), st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9))
def test_rouge_l_of_any_text_is_a_share_and_counts_the_longest_subsequence(text: str, words: list[str]) -> None:
    assert 0.0 <= (rouge_l(text, (GOLD, text)) or 0.0) <= 1.0
    gold = ["a", "b", "c", "d", "d", "c", "b", "a", "a", "b", "c", "d"]
    found = (sub for size in range(len(words), 0, -1) for sub in combinations(words, size) if is_within(sub, gold))
    longest = len(next(found, ()))
    assert rouge_l(" ".join(words), (" ".join(gold),)) == pytest.approx(2 * longest / (len(words) + len(gold)))


def is_within(words: tuple[str, ...], gold: list[str]) -> bool:
    rest = iter(gold)
    return all(word in rest for word in words)
