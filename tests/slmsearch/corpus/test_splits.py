"""No page and no entity is gold in two splits, whatever the questions look like."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import WorldConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.splits import SPLITS, assign_splits
from slmsearch.corpus.world import generate_world


def ask(number: int, *page_ids: str, entities: tuple[str, ...] = ()) -> Question:
    return Question(f"q{number}", f"Question {number}?", "x", page_ids=page_ids, entities=entities)


def splits_by_node(questions: list[Question], split_of: dict[str, str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for question in questions:
        if question.id in split_of:
            for node in (*question.page_ids, *(("entity", name) for name in question.entities)):
                found.setdefault(node, set()).add(split_of[question.id])
    return found


NAMES = st.lists(st.sampled_from("abcdefghijklmnop"), max_size=3).map(tuple)


@given(st.lists(NAMES, max_size=60), st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(SPLITS)))
def test_pages_keep_the_split_that_is_known(drawn: list[tuple[str, ...]], known: dict[str, str]):
    questions = [ask(number, *pages) for number, pages in enumerate(drawn)]
    split_of = assign_splits(questions, known=known)
    found = splits_by_node(questions, split_of)
    assert all(len(splits) == 1 for splits in found.values())
    assert all(found[page] == {split} for page, split in known.items() if page in found)


@given(st.lists(st.tuples(NAMES, NAMES), max_size=60), st.integers(0, 5))
def test_nothing_is_gold_in_two_splits(drawn: list[tuple[tuple[str, ...], tuple[str, ...]]], seed: int):
    questions = [ask(number, *pages, entities=entities) for number, (pages, entities) in enumerate(drawn)]
    split_of = assign_splits(questions, seed)
    assert set(split_of) <= {question.id for question in questions}
    assert set(split_of.values()) <= {"train", "validation", "test"}
    assert all(len(splits) == 1 for splits in splits_by_node(questions, split_of).values())
    assert split_of == assign_splits(questions, seed)


def test_shares_are_80_10_10_and_depend_on_the_seed():
    questions = [ask(number, f"p{number // 5}") for number in range(1000)]
    first, second = assign_splits(questions, 0), assign_splits(questions, 1)
    assert Counter(first.values()) == {"train": 800, "validation": 100, "test": 100}
    assert first != second


def test_pages_joined_by_a_question_stay_together():
    questions = [ask(number, f"p{number}", f"p{number + 1}") for number in range(0, 200, 4)]
    questions += [ask(1000 + number, f"p{number}") for number in range(0, 200, 4)]
    split_of = assign_splits(questions, 0)
    assert len(split_of) == len(questions)
    for first, second in zip(questions[:50], questions[50:], strict=True):
        assert split_of[first.id] == split_of[second.id]


def test_an_entity_without_a_page_joins_as_well():
    questions = [ask(n, f"p{n}", entities=(f"Name {n // 2}",)) for n in range(100)]
    split_of = assign_splits(questions, 0)
    assert all(split_of[f"q{n}"] == split_of[f"q{n + 1}"] for n in range(0, 100, 2))


def test_equal_questions_without_pages_stay_together():
    questions = [Question(f"q{n}", f"Who is  number {n // 2}?", "x") for n in range(100)]
    split_of = assign_splits(questions, 0)
    assert all(split_of[f"q{n}"] == split_of[f"q{n + 1}"] for n in range(0, 100, 2))
    assert set(split_of.values()) == {"train", "validation", "test"}


def test_one_big_component_is_cut_and_straddling_questions_are_left_out():
    # A chain of 400 pages: cutting out two regions costs a few links only.
    questions = [ask(number, f"p{number}", f"p{number + 1}") for number in range(400)]
    split_of = assign_splits(questions, 0)
    counts = Counter(split_of.values())
    assert 400 - 60 < len(split_of) < 400
    assert min(counts["test"], counts["validation"]) >= 30
    assert all(len(splits) == 1 for splits in splits_by_node(questions, split_of).values())


@pytest.mark.parametrize("count", [3, 4, 10])
def test_a_tiny_corpus_has_something_in_every_split(count: int):
    assert len(set(assign_splits([ask(n, f"p{n}") for n in range(count)], 0).values())) == 3


def test_few_large_components_leave_enough_to_measure_on():
    # Three regions of 50 questions and ten single questions: the singles alone would make up test and validation.
    questions = [ask(n, f"p{n // 50}") for n in range(150)] + [ask(n, f"p{n}") for n in range(150, 160)]
    counts = Counter(assign_splits(questions, 0).values())
    assert counts["test"] >= 50 and counts["train"] >= 80


def test_a_single_page_goes_to_train():
    assert set(assign_splits([ask(n, "p") for n in range(9)], 0).values()) == {"train"}
    assert assign_splits([], 0) == {}


def test_a_generated_world_loses_no_question():
    questions = generate_world(WorldConfig(pages=400)).questions
    counts = Counter(assign_splits(questions, 0).values())
    assert sum(counts.values()) == len(questions)
    assert counts["train"] / len(questions) == pytest.approx(0.8, abs=0.08)


def test_every_split_of_a_world_has_the_mix_of_the_whole():
    world = generate_world(WorldConfig())
    split_of = assign_splits(world.questions, seed=0)
    for split in SPLITS:
        kinds = [question.kind for question in world.questions if split_of[question.id] == split]
        assert kinds.count("two_hop") / len(kinds) >= 0.36
        assert 0.07 <= kinds.count("unanswerable") / len(kinds) <= 0.16


@pytest.mark.parametrize(
    "sizes", [[95, 1], [60, 1, 1, 1], [200, 2, 1, 1], [95, 5], [50, 50], [40, 30, 20, 10], [5] * 6, [300, 20, 10, 5, 1, 1]], ids=str
)
def test_a_folder_of_few_pages_trains_on_at_least_a_third_and_tests_by_some(sizes: list[int]) -> None:
    pages = [str(page) for page, count in enumerate(sizes) for _ in range(count)]
    questions = [ask(number, page) for number, page in enumerate(pages)]
    counts = Counter(assign_splits(questions).values())
    assert counts["train"] >= sum(sizes) / 3 and counts["test"] > 0


def test_two_pages_that_hang_together_are_not_both_kept_from_training() -> None:
    questions = [ask(number, "ab"[number % 2]) for number in range(40)] + [ask(40 + number, "a", "b") for number in range(2)]
    assert Counter(assign_splits(questions).values()) == {"train": 20, "test": 20}
