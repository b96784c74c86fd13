"""The calibration set: big enough, of every kind, with verdicts that can be known, and what the generator makes."""

from collections import Counter
from pathlib import Path

import pytest

from slmsearch.judge.calibration import FILE, KINDS, SEED, calibration_key, load_cases, make_cases, write_cases
from slmsearch.judge.exact import exact_match
from slmsearch.judge.prompt import MAX_ANSWER_CHARS, render_prompt

CASES = load_cases()


def test_what_ships_is_what_the_generator_makes(tmp_path: Path) -> None:
    assert make_cases(SEED) == CASES
    assert calibration_key(make_cases(SEED + 1)) != calibration_key(CASES)
    write_cases(tmp_path / FILE)
    shipped = Path(__file__).parents[3] / "slmsearch" / "judge" / FILE
    assert (tmp_path / FILE).read_bytes() == shipped.read_bytes()


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
