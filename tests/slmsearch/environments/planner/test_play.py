"""Plans are carried out wave by wave, answers put into later questions, tokens counted."""

import threading
from contextlib import contextmanager

import pytest

from slmsearch.config import WorkerConfig
from slmsearch.environments.planner.plan import DIRECT, Plan, Subproblem
from slmsearch.environments.planner.plan_prompt import DIRECT_SOLUTION, Task
from slmsearch.environments.planner.play import execute_plans, substitute
from slmsearch.environments.planner.problems import generate_problems, gold_plan
from slmsearch.environments.planner.worker import ArithmeticWorker, ConcurrentWorker, ModelWorker, Solution, make_served_worker
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.http_client import ChatReply


def plan(*parts, combine):
    made = tuple(Subproblem(id=str(i), question=q, depends_on=needs) for i, (q, needs) in enumerate(parts, start=1))
    return Plan(should_decompose=True, subproblems=made, combine=combine)


TREE = plan(("What is 2 plus 3?", ()), ("What is 4 times 5?", ()), ("What is #1 minus #2?", ("1", "2")), combine="#3 times 2")


def test_answers_go_into_later_questions_and_tokens_are_kept():
    (done,) = execute_plans([("a problem", TREE)], ArithmeticWorker())
    assert [(turn.call.name, turn.call.argument, turn.result.text) for turn in done.turns] == [
        ("solve_subproblem", "What is 2 plus 3?", "5"),
        ("solve_subproblem", "What is 4 times 5?", "20"),
        ("solve_subproblem", "What is 5 minus 20?", "-15"),
        ("combine", "(-15) times 2", "-30"),
    ]
    assert done.answer == "-30"
    assert sum(turn.result.tokens for turn in done.turns) == 6 + 6 + 6 + 4


def test_a_named_answer_needs_no_worker_and_no_split_means_direct():
    named, direct = execute_plans([("p", plan(("2 plus 3", ()), combine="#1")), ("What is 7 minus 2?", DIRECT)], ArithmeticWorker())
    assert (named.answer, len(named.turns)) == ("5", 1)
    assert (direct.answer, direct.turns[0].call.name) == ("5", "solve_directly")


def test_a_part_without_an_answer_ends_the_plan_and_a_broken_service_fails_it():
    (lost,) = execute_plans([("p", plan(("Why?", ()), ("#1 plus 1", ("1",)), combine="#2"))], ArithmeticWorker())
    assert lost.answer is None and not lost.failure and len(lost.turns) == 1
    down = ConcurrentWorker("down", lambda task: Solution(None, failure="worker: gone"), 4)
    (failed,) = execute_plans([("p", TREE)], down)
    assert failed.failure == "worker: gone"


def test_every_gold_plan_of_a_generated_problem_gives_its_answer():
    problems = list(generate_problems(5, 300))
    done = execute_plans([(problem.text, gold_plan(problem)) for problem in problems], ArithmeticWorker(2))
    assert [execution.answer for execution in done] == [str(problem.answer) for problem in problems]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("#1 plus 2", "5 plus 2"), ("#2 of #1", "(-3) of 5"), ("#3/4", "(7/2)/4"), ("#9 stays", "#9 stays"), ("#4 it is", "five it is")],
)
def test_substitution_tears_no_sign_and_no_fraction(text, shown):
    assert substitute(text, {"1": "5", "2": "-3", "3": "7/2", "4": "five"}) == shown


def test_independent_subproblems_are_under_way_together():
    together = threading.Barrier(6, timeout=30)  # passes only when six tasks wait at once

    def solve(task):
        together.wait()
        return Solution("1", 1)

    wide = plan(*((f"What is {i} plus 1?", ()) for i in range(6)), combine="#1")
    (done,) = execute_plans([("p", wide)], ConcurrentWorker("waiting", solve, 8))
    assert done.answer == "1"


def test_a_solution_that_was_cut_off_has_no_answer_unless_it_is_marked(monkeypatch):
    texts = {"cut": "He pays 3 * 4 = 12 for the pens. Then he pays 2 * 5", "marked": "That makes 22.\n#### 22 euros"}

    def answers(worker):
        return [solution.answer for solution in worker.solve([Task(DIRECT_SOLUTION, name) for name in texts])]

    @contextmanager
    def open_base():
        yield ScriptedSampler(lambda question, results: texts[question] + " and so on" * 9)

    def reply(client, **request):
        choice = {"message": {"content": texts[request["messages"][-1]["content"]]}, "finish_reason": "length"}
        return ChatReply.model_validate({"choices": [choice]})

    monkeypatch.setattr("slmsearch.http_client.complete", reply)
    served = make_served_worker(WorkerConfig(kind="openai", base_url="http://127.0.0.1:9/v1"))
    assert answers(ModelWorker("base", open_base, 60)) == answers(served) == [None, "22"]


def test_prose_answers_are_carried_on_as_numbers():
    worker = ConcurrentWorker("prose", lambda task: Solution("That makes 12 apples." if "2 plus" in task.question else "ok", 3), 1)
    (done,) = execute_plans([("p", plan(("2 plus 10", ()), ("#1 minus 1", ("1",)), combine="#2"))], worker)
    assert done.turns[1].call.argument == "12 minus 1"
