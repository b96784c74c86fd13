"""Prompts of a planner and a worker. tiny-planner's chat template leaves the system message out."""

from dataclasses import dataclass

from slmsearch.config import PlannerConfig
from slmsearch.episodes.sampler import Message

PLAN_PROMPT_VERSION = 1
"""Part of every evaluation and training key of the planner; raise it when a text below changes."""

SYSTEM_PROMPT = """You plan how a worker should solve a maths problem. Write one JSON object and nothing else:

{"should_decompose": true, "subproblems": [{"id": 1, "question": "...", "depends_on": []}], "combine": "..."}

Each question must be answerable by itself, by someone who sees only that question: put into it the numbers it needs, taken from the
problem. Write #1 for the answer of subproblem 1, and name it in depends_on. Never compute anything yourself. combine says how the
answers make the final one; #3 alone means the answer of subproblem 3. If the problem needs no splitting, write
{"should_decompose": false, "subproblems": [], "combine": ""}"""

WORKER_PROMPT = """Solve the problem. Think in a few short steps, then end with a line `#### N`, N being the number asked for."""

SUBPROBLEM, COMBINE, DIRECT_SOLUTION = "solve_subproblem", "combine", "solve_directly"


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the worker."""

    kind: str
    """Kind of the task, `SUBPROBLEM`, `COMBINE` or `DIRECT_SOLUTION`: a part, the answers of all parts, or a whole problem."""
    question: str
    """Question of the task, references replaced by answers."""
    context: str = ""
    """Context for workers that read prose: the problem and the answers so far, where they are needed."""


def make_plan_prompt(problem: str, config: PlannerConfig) -> list[Message]:
    """Make the messages that open an episode."""
    system = SYSTEM_PROMPT if config.system_prompt is None else config.system_prompt
    user: Message = {"role": "user", "content": problem}
    return [{"role": "system", "content": system}, user] if system else [user]


def make_worker_prompt(task: Task) -> list[Message]:
    """Make the messages that ask a model to do a task."""
    text = task.question
    if task.kind == COMBINE:
        text = f"{task.context}\n\nWith these answers, solve the problem above: {task.question}"
    elif task.kind == SUBPROBLEM and task.context:
        text = f"Known:\n{task.context}\n\n{task.question}"
    return [{"role": "system", "content": WORKER_PROMPT}, {"role": "user", "content": text}]
