"""Questions that lean on the turn before: what is added, and that other questions stay as they are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.episodes.episode import StopReason
from slmsearch.serving.api.follow_up import MAX_CHARS, complete, find_names, turn_before
from slmsearch.serving.api.protocol import NO_ANSWER, parse_request
from tests.root import ROOT

TURNS = [json.loads(line) for line in (ROOT / "tests/e2e/two_turn_questions.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("question", "before", "answer", "completed"),
    [
        ("When was it built?", "Where is the Eiffel Tower?", "Paris", "When was it built? (Eiffel Tower, Paris)"),
        ("And how many sonnets?", "How many plays did Shakespeare write?", "39", "And how many sonnets? (Shakespeare, 39)"),
        ("What is its number?", "What is the symbol of iron?", "Fe", "What is its number? (symbol iron, Fe)"),
        ("Who built the Eiffel Tower?", "Where is Paris?", "France", "Who built the Eiffel Tower?"),
        ("When was it built?", "", "", "When was it built?"),
        ("Is it in Paris?", "Where is the Louvre?", "Paris", "Is it in Paris? (Louvre)"),
        ("Is it raining in Paris today?", "Who wrote Faust?", "Goethe", "Is it raining in Paris today?"),
        ("Is it possible to climb it?", "Where is the Eiffel Tower?", "Paris", "Is it possible to climb it? (Eiffel Tower, Paris)"),
        ("When was it built?", "Where is the Eiffel Tower?", NO_ANSWER[StopReason.MAX_TURNS], "When was it built? (Eiffel Tower)"),
        ("When was it built?", "Where is the Eiffel Tower?", "I don't know", "When was it built? (Eiffel Tower)"),
        ("When was it built?", "Who built the Tower?", "I don't know; the nearest is: Eiffel", "When was it built? (Tower, Eiffel)"),
        ("When was it built?", "Who built the Tower?", '{"answer": "Eiffel"}', "When was it built? (Tower, Eiffel)"),
        ("When was it built?", "Who built the Tower?", "1. Lift it.\n2. Put it down.", "When was it built? (Tower)"),
        ("When was it built?", "Who built the Tower?", "one word after the other " * 4, "When was it built? (Tower)"),
    ],
)
def test_names_of_the_turn_before_are_added_where_a_question_leans_on_it(question: str, before: str, answer: str, completed: str) -> None:
    assert complete(question, before, answer) == completed


def test_questions_written_by_hand_are_completed_and_first_ones_left_alone() -> None:
    completed = [complete(one["follow_up"], one["first"], one["first_answer"]) for one in TURNS]
    assert sum(text != one["follow_up"] for text, one in zip(completed, TURNS, strict=True)) >= 53
    for one, other in zip(TURNS, TURNS[7:], strict=False):
        assert complete(one["first"], other["first"], other["first_answer"]) == one["first"], "a new topic"


@given(st.text(), st.text(), st.text())
def test_any_text_is_completed_at_its_end_or_left(question: str, before: str, answer: str) -> None:
    completed = complete(question, before, answer)
    assert completed.startswith(question)
    assert len(completed) <= len(question) + MAX_CHARS + 3
    assert all(find_names(before))


def test_the_turn_before_is_found_among_other_messages() -> None:
    said = [
        ("system", "Be kind."),
        ("user", "One?"),
        ("assistant", "1"),
        ("user", "Two?"),
        ("assistant", "x"),
        ("assistant", "2"),
        ("user", "It?"),
    ]
    assert turn_before(said) == ("Two?", "2")
    assert turn_before(said[:2]) == ("", "")
    assert turn_before([("user", "One?"), ("user", "It?")]) == ("One?", "")


def test_a_request_asks_for_it() -> None:
    said = [("user", "Where is the Eiffel Tower?"), ("assistant", "Paris"), ("user", "When was it built?")]
    messages = [{"role": role, "content": text} for role, text in said]
    assert (
        parse_request(json.dumps({"messages": messages, "follow_up": True}).encode()).question.text
        == "When was it built? (Eiffel Tower, Paris)"
    )
    assert parse_request(json.dumps({"messages": messages}).encode()).question.text == "When was it built?"
    parts = [*messages[:-1], {"role": "user", "content": [{"type": "text", "text": "When was it built?"}]}]
    assert parse_request(json.dumps({"messages": parts, "follow_up": True}).encode()).question.text.endswith("(Eiffel Tower, Paris)")
    long = [{"role": "user", "content": "Why is It " + "x" * 1990}, *messages[1:2], {"role": "user", "content": "It " + "y" * 1990}]
    assert len(parse_request(json.dumps({"messages": long, "follow_up": True}).encode()).question.text) <= 2000
