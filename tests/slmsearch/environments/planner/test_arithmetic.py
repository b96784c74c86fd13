"""The worker without a model reads its text, does what it can, and loses the thread where there is too much."""

import contextlib
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.environments.planner.arithmetic import Unreadable, compute
from slmsearch.environments.planner.plan_prompt import DIRECT_SOLUTION, SUBPROBLEM, Task
from slmsearch.environments.planner.problems import MAX_OPERATIONS, generate_problem, generate_problems
from slmsearch.environments.planner.worker import ArithmeticWorker

STORY = "Mira has 14 shells. Ada has 9 shells. Tovan has 3 times as many shells as Mira. Lena has 6 fewer shells than Tovan."


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("What is 48 / 2?", 24),
        ("Mira: 48 plus 2 times 3?", 54),
        ("(48 + 2) x 3", 150),
        ("How much is half of 48 plus twice 3?", 30),
        ("What is 20% of 50?", 10),
        ("What is 20 percent of $1,000.50?", Fraction("200.1")),
        ("the difference between 9 and 4", 5),
        ("the sum of 9 and (-4)", 5),
        ("10 divided by 4 minus .5", 2),
        (f"{STORY} How many shells does Tovan have?", 42),
        (f"{STORY} How many shells does Lena have?", 36),
        (f"{STORY} How many shells do Lena and Ada have together?", 45),
        (f"{STORY} How many more shells does Tovan have than Ada?", 33),
        (
            "Ada has 9 coins. Bo has half as many coins as Ada. Cy has as many coins as Ada and Bo together. How many coins does Cy have?",
            Fraction("13.5"),
        ),
    ],
)
def test_reads_and_computes(text, value):
    assert compute(text, max_operations=9) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "What is love?",
        "5 divided by 0",
        "3 plus",
        "3 4",
        "(3",
        "#1 plus 2",
        "How many shells does Zeno have?",
        "9" * 90,
        "((" * 60 + "1",
        "Ada has 2 more coins than Bo. Bo has 3 more coins than Ada. How many coins does Ada have?",
        "1 " * 3000,
        "__import__('os')",
    ],
)
def test_what_it_cannot_read_it_does_not_answer(text):
    with pytest.raises(Unreadable):
        compute(text, max_operations=9)


@given(st.text() | st.text(alphabet="0123456789+-*/().,% of half plus times HowmanyshellsdoesAhve?"))
def test_no_text_does_worse_than_unreadable(text):
    with contextlib.suppress(Unreadable):
        compute(text, max_operations=4)


def test_beyond_its_limit_it_answers_with_the_last_thing_it_worked_out():
    assert compute("1 plus 2 plus 3 plus 4", max_operations=2) == 6
    assert compute(f"{STORY} How many shells do Lena and Ada have together?", max_operations=2) == 36
    assert compute(f"{STORY} How many shells does Lena have?", max_operations=1) == 42


@given(st.integers(0, 10**6), st.integers(1, MAX_OPERATIONS))
def test_reads_every_generated_problem_and_another_number_gives_another_answer(seed, operations):
    problem = generate_problem(Random(seed), operations)
    assert compute(problem.text, operations) == problem.answer
    base = next(fact for fact in problem.needed if fact.operator == "=")
    changed = problem.text.replace(f"{base.who} has {base.number} ", f"{base.who} has {base.number + 2} ")
    assert compute(changed, operations) != problem.answer


def test_alone_it_solves_a_fifth_to_a_half_of_the_problems():
    problems = list(generate_problems(3, 600))
    solved = ArithmeticWorker(2).solve([Task(DIRECT_SOLUTION, problem.text) for problem in problems])
    right = sum(solution.answer == str(problem.answer) for solution, problem in zip(solved, problems, strict=True))
    assert 0.2 <= right / len(problems) <= 0.5


def test_counts_the_words_it_reads_and_writes():
    assert ArithmeticWorker().solve([Task(SUBPROBLEM, "What is 2 plus 3?")])[0].tokens == 6
    assert ArithmeticWorker().solve([Task(SUBPROBLEM, "Why?")])[0].answer is None
