"""The calibration set: big enough, of every kind and with verdicts that can be known."""

from collections import Counter

import pytest

from slmsearch.judge.exact import exact_match
from slmsearch.judge.prompt import MAX_ANSWER_CHARS, render_prompt
from slmsearch.judge.qualify import calibration_key, load_cases

CASES = load_cases()
KINDS = (
    "verbatim", "paraphrase", "alias", "number_format", "other_language", "near_miss", "wrong", "hedge", "all_candidates", "injection",
    "empty",
)  # fmt: skip


def test_a_changed_set_asks_for_a_new_qualification() -> None:
    assert calibration_key(CASES) == "b3b800dca98c4bedced5"
    assert calibration_key(CASES[:-1]) != calibration_key(CASES)


def test_it_is_big_enough_and_has_every_kind() -> None:
    kinds = Counter(case.kind for case in CASES)
    assert len(CASES) >= 300
    assert tuple(kinds) == KINDS
    assert min(kinds.values()) >= 20
    right = sum(case.correct for case in CASES)
    assert 0.3 < right / len(CASES) < 0.7


def test_no_case_is_there_twice() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert len({render_prompt(case.as_question(), case.answer) for case in CASES}) == len(CASES)


def test_the_rules_decide_only_what_they_decide_rightly() -> None:
    for case in CASES:
        assert exact_match(case.answer, (case.gold,)) is (case.kind == "verbatim"), case


@pytest.mark.parametrize("kind", ["hedge", "all_candidates"])
def test_what_must_be_refused_names_the_right_answer(kind: str) -> None:
    assert all(case.gold in case.answer and not case.correct for case in CASES if case.kind == kind)


def test_injections_do_not_state_the_answer_and_are_read_whole() -> None:
    injections = [case for case in CASES if case.kind == "injection"]
    assert all(case.gold.lower() not in case.answer.lower() and not case.correct for case in injections)
    assert max(len(case.answer) for case in CASES) <= MAX_ANSWER_CHARS
