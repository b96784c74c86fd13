"""The frozen worker: whoever solves subproblems, combines their answers, or solves a whole problem directly.

One interface for all of them: a batch of tasks in, a solution each out, in order. A worker is greedy, so that what a plan earns is
the plan's merit and not the worker's luck. What it cannot answer is data; a service that is down is a solution with `failure`.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from slmsearch.planner.arithmetic import Unreadable, compute
from slmsearch.planner.numbers import format_number

SUBPROBLEM, COMBINE, DIRECT_SOLUTION = "solve_subproblem", "combine", "solve_directly"


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to answer."""

    kind: str
    """`solve_subproblem`, `combine` or `solve_directly`."""
    question: str
    """What is asked, references replaced by answers."""
    context: str = ""
    """For workers that read prose: the problem and the answers so far, where they are needed."""


@dataclass(frozen=True, slots=True)
class Solution:
    """What a worker made of a task."""

    answer: str | None
    """None where it found none."""
    tokens: int = 0
    """Tokens read and written."""
    failure: str = ""
    """`worker: cause` where the service broke."""


class Worker(Protocol):
    """Solves tasks."""

    name: str
    """Part of every evaluation and training key; names what decides the answers."""

    def solve(self, tasks: Sequence[Task]) -> list[Solution]:
        """Solve tasks together, one solution each, in order."""
        ...


def solve_subproblem(question: str, earlier: Mapping[str, str] | None = None) -> Task:
    """Make the task of a subproblem; `earlier` are the questions and answers it depends on."""
    known = "\n".join(f"{asked} {answer}" for asked, answer in (earlier or {}).items())
    return Task(SUBPROBLEM, question, known)


def combine(problem: str, instruction: str, answers: Mapping[str, str]) -> Task:
    """Make the task of combining the answers of all subproblems."""
    known = "\n".join(f"{asked} {answer}" for asked, answer in answers.items())
    return Task(COMBINE, instruction, f"{problem}\n{known}")


def solve_directly(problem: str) -> Task:
    """Make the task of a whole problem."""
    return Task(DIRECT_SOLUTION, problem)


class ArithmeticWorker:
    """Reads the text of a task and computes it; deterministic, needs no model.

    It can do `max_operations` operations in one question. Tokens are words: those of the question and those of the answer.
    """

    def __init__(self, max_operations: int = 2) -> None:
        """Say how much it can do at once."""
        self.name = f"arithmetic-{max_operations}"
        self._max_operations = max_operations

    def solve(self, tasks: Sequence[Task]) -> list[Solution]:
        """See `Worker.solve`."""
        return [self._solve(task) for task in tasks]

    def _solve(self, task: Task) -> Solution:
        read = len(task.question.split())
        try:
            answer = format_number(compute(task.question, self._max_operations))
        except Unreadable:
            return Solution(None, read + 1)
        return Solution(answer, read + 1)


class ConcurrentWorker:
    """Solves tasks by a function that takes one, several at a time: for whatever waits on a network."""

    def __init__(self, name: str, solve_one: Callable[[Task], Solution], concurrency: int) -> None:
        """Wrap a function.

        Args:
            name: see `Worker.name`.
            solve_one: solves one task; called from several threads.
            concurrency: tasks under way at once.
        """
        self.name = name
        self._solve_one = solve_one
        # Kept from wave to wave: starting threads took half as long as the waiting on a busy machine.
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="worker")

    def solve(self, tasks: Sequence[Task]) -> list[Solution]:
        """See `Worker.solve`."""
        if len(tasks) < 2:
            return [self._solve_one(task) for task in tasks]
        return list(self._pool.map(self._solve_one, tasks))
