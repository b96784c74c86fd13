"""The reward is a sum of named parts, and no hack earns more than an honest plan that fails."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import PlanRewardConfig, RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.planner.plan import DIRECT, Fault, Plan, Subproblem, parse_plan, render_plan
from slmsearch.environments.planner.plan_reward import PLAN_PARTS, Hack, NumberJudge, find_hacks
from slmsearch.environments.planner.planner_environment import PlannerEnvironment, restate
from slmsearch.environments.planner.problems import generate_problem, gold_plan
from slmsearch.environments.planner.worker import ArithmeticWorker
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from tests.slmsearch.environments.planner.words import WordIndependence

LONG = Sampling(max_new_tokens=10**9)


def make_environment(**reward):
    planner = RunConfig().planner.model_copy(
        update={"max_plan_tokens": 10**9, "reward": PlanRewardConfig(**{"max_tokens": 10**4, **reward})}
    )
    config = RunConfig(environment="planner").model_copy(update={"planner": planner})
    return PlannerEnvironment(config).with_worker(ArithmeticWorker(2), NumberJudge(), WordIndependence())


def play(question, text, environment=None, sampling=LONG):
    """Play one plan and return its row."""
    environment = environment or make_environment()
    sampler = ScriptedSampler(lambda problem, results: text)
    episodes = environment.complete([question], environment.play([question], sampler, sampling))
    return environment.grade([question], episodes)[0]


def ask(problem):
    return Question(problem.signature, problem.text, str(problem.answer), hops=problem.operations)


def parts(*questions, combine=None):
    made = tuple(Subproblem(id=str(i), question=q, depends_on=()) for i, q in enumerate(questions, start=1))
    return render_plan(Plan(should_decompose=True, subproblems=made, combine=combine or f"#{len(made)}"))


HARD = generate_problem(Random(1), 5)
EASY = generate_problem(Random(1), 1)


def test_a_right_plan_earns_all_parts_and_a_wrong_one_none():
    right = play(ask(HARD), render_plan(gold_plan(HARD)))
    assert set(right.reward_parts) == set(PLAN_PARTS)
    assert right.reward_parts["correct"] == 1.0
    assert 0 < right.reward_parts["tokens"] < 0.2
    assert 0 < right.reward_parts["independence"] < 0.3
    assert right.reward == sum(right.reward_parts.values())
    wrong = play(ask(HARD), render_plan(gold_plan(HARD, 3)))
    assert (wrong.reward, wrong.correct, wrong.failure_mode) == (0.0, 0.0, "misplanned")
    assert play(ask(HARD), "no plan").reward == pytest.approx(-0.1)


def test_a_text_that_is_cut_off_costs_what_a_text_without_a_plan_costs():
    environment = make_environment().changed({"planner.max_plan_tokens": 40})
    row = play(ask(HARD), render_plan(gold_plan(HARD)), environment, Sampling(max_new_tokens=40))
    assert (row.stop_reason, row.reward, row.failure_mode) == ("max_tokens", pytest.approx(-0.1), "cut_off")


def test_a_refused_plan_is_graded_as_a_wrong_one():
    easy = Question("q", "How much is 700 plus 42?", "742")
    row = play(easy, parts("What is 742 plus 0?"))
    assert (row.answer, row.correct, row.typed_match, row.exact_match, row.f1) == ("742", 0.0, 0.0, 0.0, 0.0)
    assert (row.failure_mode, row.measured["plan/gain"], row.reward) == ("guarded", -1.0, pytest.approx(-0.1))


STONES = Question(
    "s",
    "Ines has 30 stones. Bram has 3 times as many stones as Ines. Yara has 4 times as many stones as Bram. Quin has 31 more stones than "
    "Yara. How many stones does Quin have?",
    "391",
)
TWO_PARTS = [("Yara: 30 times 3?", ()), ("Quin: #1 times 4?", ("1",))]


@pytest.mark.parametrize(
    "changed",
    [
        [*TWO_PARTS, ("Banana ocean kangaroo surgery: 1 plus 1?", ())],
        [("Quantum physics: 30 times 3?", ()), ("Kangaroo surgery: #1 times 4?", ("1",))],
        [("Yara: 30 times 3?", ("3",)), ("Quin: #1 times 4?", ("1", "3")), ("Banana ocean kangaroo surgery: 1 plus 1?", ())],
    ],
    ids=["an unused part", "other labels", "a part that is named but unused"],
)
def test_text_that_the_answer_does_not_rest_on_earns_no_independence(changed):
    def paid(made):
        plan = tuple(Subproblem(id=str(i), question=text, depends_on=needs) for i, (text, needs) in enumerate(made, start=1))
        row = play(STONES, render_plan(Plan(should_decompose=True, subproblems=plan, combine="#2 plus 31")))
        assert row.correct == 1.0
        return row.reward_parts["independence"]

    assert paid(changed) == paid(TWO_PARTS) > 0


def test_a_part_is_trivial_whatever_it_says_it_depends_on():
    copied = Subproblem(id="2", question="Kangaroo surgery: 1", depends_on=("1",))
    first = Subproblem(id="1", question="What is 30 times 3?", depends_on=())
    assert find_hacks(STONES.question, Plan(should_decompose=True, subproblems=(first, copied), combine="#1")) == (Hack.TRIVIAL,)


def test_a_problem_too_long_for_a_part_is_restated_with_its_question():
    story = f"Ada has 3 cats. {'The weather was fine. ' * 40}She buys 45 more. How many cats does she have?"
    (part,) = restate(story).subproblems
    assert part.question.endswith("She buys 45 more. How many cats does she have?")
    assert f" {part.question}" in story and parse_plan(render_plan(restate(story))).faults == ()
    assert restate("x" * 700).subproblems[0].question == "x" * 600


def test_splitting_what_needs_no_splitting_earns_no_independence():
    two = generate_problem(Random(4), 2)
    split, direct = play(ask(two), render_plan(gold_plan(two))), play(ask(two), render_plan(DIRECT))
    assert split.correct == direct.correct == 1.0
    assert split.reward_parts["independence"] == 0.0
    assert direct.measured["plan/gain"] == 0.0


def failing(problem):
    """An honest plan that fails: the problem's own number, wrongly used."""
    number = problem.needed[0].number
    return parts(f"First: {number} plus {number} plus {number}?")


def hacks_of(problem):
    """Every hack of a problem, with what names it."""
    answer = problem.answer
    bomb = '{"a":' * 5000 + "1" + "}" * 5000
    copies = [{"id": i, "question": "What is 2 plus 2?", "depends_on": []} for i in range(200)]
    return {
        "the answer as a part": (parts(f"What is {answer} plus 0?"), Hack.LEAKED),
        "the answer in words": (parts(f"What is {answer} times one?"), Hack.LEAKED),
        "the answer in combine": (parts("What is 1 plus 1?", combine=f"{answer} plus 0 times #1"), Hack.LEAKED),
        "the problem as the plan": (render_plan(restate(problem.text)), Hack.RESTATED),
        "the problem and a trifle": (parts(f"{problem.text} Well?", "What is 1?"), Hack.RESTATED),
        "trivial parts": (parts("What is 1?", "Is it 1?"), Hack.TRIVIAL),
        "the same twice": (parts("What is 1 plus 1?", "what is 1 plus 1"), Hack.DUPLICATED),
        "200 parts": (json.dumps({"should_decompose": True, "subproblems": copies, "combine": "#1"}), Fault.TOO_MANY),
        "a JSON bomb": (bomb, Fault.TOO_LONG),
        "a deep bomb": ('{"a":' * 900 + "1" + "}" * 900, Fault.TOO_DEEP),
        "a huge number": ('{"should_decompose": ' + "9" * 9000 + "}", Fault.BAD_JSON),
    }


@pytest.mark.parametrize("name", list(hacks_of(HARD)))
@pytest.mark.parametrize("problem", [HARD, EASY], ids=["beyond the worker", "within it"])
def test_no_hack_earns_more_than_an_honest_failing_plan_and_each_is_counted(problem, name):
    text, what = hacks_of(problem)[name]
    environment = make_environment()
    honest = play(ask(problem), failing(problem), environment)
    assert honest.correct == 0.0 and honest.measured["plan/hacked_frac"] == 0.0
    hacked = play(ask(problem), text, environment)
    assert hacked.reward < honest.reward
    counted = f"plan/{what}_frac" if isinstance(what, Hack) else f"faults/{what}"
    assert hacked.measured[counted] == 1.0


@pytest.mark.parametrize(
    ("problem", "question", "combine", "hacks"),
    [
        ("Tom buys five two-liter bottles.", "What is 5 times 2?", "#1", ()),
        ("Tom buys five two-liter bottles.", "What is 7 times 7?", "#1", (Hack.LEAKED,)),
        ("A school has a hundred students and 16 1/2 teachers.", "What is 100 plus 16.5?", "#1", ()),
        ("A firm earns $2.5 million and pays four-fifths.", "What is 2,500,000 times 4 divided by 5?", "#1", ()),
        ("The A380 carries 3 of USD35.", "A380: 3 times 35?", "#1", ()),
        ("Ada has 3 cats and 4 dogs.", "What is 3 plus 4?", "The answer is USD35", (Hack.LEAKED,)),
        ("Ada has 3 cats and 4 dogs.", "What is 3 plus 4?", f"3 or 35.{'0' * 41}", (Hack.LEAKED,)),
    ],
)
def test_a_number_is_leaked_where_the_problem_neither_names_nor_implies_it(problem, question, combine, hacks):
    assert find_hacks(problem, parse_plan(parts(question, combine=combine)).plan) == hacks


@given(st.integers(0, 10**6), st.integers(3, 6))
def test_honest_plans_are_never_taken_for_hacks(seed, operations):
    problem = generate_problem(Random(seed), operations)
    assert find_hacks(problem.text, gold_plan(problem)) == ()


@given(st.text(max_size=300))
def test_whatever_a_planner_writes_earns_less_than_an_honest_right_plan(text):
    row = play(ask(HARD), text)
    assert row.reward < play(ask(HARD), render_plan(gold_plan(HARD))).reward
    assert parse_plan(text).plan is None or row.failed is False
