"""Carrying plans out: subproblems wave by wave, answers put into later questions, and the answers combined.

All plans of a batch advance together, so that every independent subproblem of every plan is solved at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slmsearch.planner.numbers import format_number, last_number, parse_number
from slmsearch.planner.plan import REFERENCE, Plan, Subproblem
from slmsearch.planner.worker import Solution, Task, Worker, combine, solve_directly, solve_subproblem


@dataclass(frozen=True, slots=True)
class Step:
    """One task and its solution."""

    kind: str
    question: str
    """As the worker read it."""
    answer: str | None
    tokens: int


@dataclass(slots=True)
class Execution:
    """What became of a plan."""

    steps: list[Step] = field(default_factory=list)
    answer: str | None = None
    """The final answer; None where the worker had none."""
    failure: str = ""
    """What broke; the episode is then left out."""

    @property
    def tokens(self) -> int:
        """Tokens the worker read and wrote."""
        return sum(step.tokens for step in self.steps)


@dataclass(slots=True)
class _Progress:
    problem: str
    plan: Plan
    waves: list[list[Subproblem]]
    execution: Execution = field(default_factory=Execution)
    answers: dict[str, str] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        """A subproblem without an answer stops the plan: what follows has nothing to build on."""
        return bool(self.execution.failure) or any(step.answer is None for step in self.execution.steps)


def execute_plans(plans: Sequence[tuple[str, Plan]], worker: Worker) -> list[Execution]:
    """Carry out plans, each with its problem, and return what became of them, in order.

    Args:
        plans: problems and plans without faults, as `parse_plan` returns them.
        worker: solves.
    """
    rows = [_Progress(problem, plan, plan.waves()) for problem, plan in plans]
    for number in range(max((len(row.waves) for row in rows), default=0)):
        waiting = [(row, part) for row in rows if number < len(row.waves) and not row.broken for part in row.waves[number]]
        tasks = [_subproblem_task(row, part) for row, part in waiting]
        for (row, part), task, solution in zip(waiting, tasks, worker.solve(tasks), strict=True):
            _note(row, task, solution)
            row.asked[part.id] = task.question
            row.answers[part.id] = _bare(solution.answer)
    last = [(row, final) for row in rows if not row.broken and (final := _final_task(row)) is not None]
    for (row, final), solution in zip(last, worker.solve([final for _, final in last]), strict=True):
        _note(row, final, solution)
        row.execution.answer = None if solution.failure else solution.answer
    return [row.execution for row in rows]


def _subproblem_task(row: _Progress, part: Subproblem) -> Task:
    earlier = {row.asked[name]: row.answers[name] for name in part.depends_on}
    return solve_subproblem(substitute(part.question, row.answers), earlier)


def _final_task(row: _Progress) -> Task | None:
    """Make the last task of a plan; none where `combine` only names an answer, which is then the final one."""
    if not row.plan.should_decompose:
        return solve_directly(row.problem)
    instruction = row.plan.combine.strip()
    reference = REFERENCE.fullmatch(instruction)
    if reference:
        row.execution.answer = row.answers[reference[1]]
        return None
    answers = {row.asked[part.id]: row.answers[part.id] for part in row.plan.subproblems}
    return combine(row.problem, substitute(instruction, row.answers), answers)


def _note(row: _Progress, task: Task, solution: Solution) -> None:
    row.execution.steps.append(Step(task.kind, task.question, solution.answer, solution.tokens))
    if solution.failure and not row.execution.failure:
        row.execution.failure = solution.failure


def substitute(text: str, answers: Mapping[str, str]) -> str:
    """Put answers in the place of references; what is not a plain number goes into brackets, so that no sign or fraction is torn."""

    def put(answer: str) -> str:
        return answer if answer.replace(".", "", 1).isdecimal() or parse_number(answer) is None else f"({answer})"

    return REFERENCE.sub(lambda match: put(answers[match[1]]) if match[1] in answers else match[0], text)


def _bare(answer: str | None) -> str:
    """Take the number out of an answer in prose, for the next question to carry on with."""
    if answer is None or parse_number(answer) is not None:
        return (answer or "").strip()
    found = last_number(answer)
    return answer.strip() if found is None else format_number(found)
