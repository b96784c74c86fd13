"""Playing problems: the planner writes plans, the worker executes them, and both become ordinary episodes.

The first turn is the plan, the policy's only text: its ids are trained on. Every task of the worker follows as a turn of its own without
ids, so that store, traces and tables show a planner's episodes like a searcher's. All plans of a batch advance together, wave by wave, so
that the worker solves every independent subproblem of every plan at once.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from slmsearch.config import PlannerConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.planner.numbers import format_number, last_number, parse_number
from slmsearch.environments.planner.plan import REFERENCE, Plan, Subproblem, parse_plan
from slmsearch.environments.planner.plan_prompt import COMBINE, DIRECT_SOLUTION, SUBPROBLEM, Task, make_plan_prompt
from slmsearch.environments.planner.worker import Solution, Worker
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, ToolResult, Turn
from slmsearch.episodes.one_turn import play_one_turn
from slmsearch.episodes.sampler import Sampler, Sampling


def write_plans(questions: Sequence[Question], sampler: Sampler, config: PlannerConfig, sampling: Sampling) -> list[Episode]:
    """Let the policy write a plan for each problem; the episodes do not hold the worker's turns yet."""
    prompts = [make_plan_prompt(question.question, config) for question in questions]
    room = max(config.max_plan_tokens, sampling.max_new_tokens)
    return play_one_turn(questions, prompts, sampler, sampling, room, lambda text: (None, parse_plan(text).plan is not None))


def carry_out(questions: Sequence[Question], episodes: Sequence[Episode], worker: Worker) -> list[Episode]:
    """Let the worker execute every valid plan; return the episodes with the worker's turns."""
    started = time.perf_counter()
    plans = {
        i: (question.question, plan)
        for i, (question, episode) in enumerate(zip(questions, episodes, strict=True))
        if episode.stop_reason is StopReason.ANSWERED and (plan := parse_plan(episode.turns[0].text).plan) is not None
    }
    done = dict(zip(plans, execute_plans(list(plans.values()), worker), strict=True))
    seconds = time.perf_counter() - started
    return [done[i].added_to(episode, seconds) if i in done else episode for i, episode in enumerate(episodes)]


@dataclass(slots=True)
class PlanExecution:
    """The execution of a plan."""

    problem: str
    plan: Plan
    turns: list[Turn] = field(default_factory=list)
    """Turns, one for each task and its solution."""
    answer: str | None = None
    """Final answer; None if the worker had none."""
    failure: str = ""
    """Failure of the worker's service; the episode is then left out."""
    broken: bool = False
    """True after a task without an answer, which stops the plan: later tasks would lack their input."""
    asked: dict[str, str] = field(default_factory=dict)
    """Id of a subproblem -> its question as the worker read it."""
    answers: dict[str, str] = field(default_factory=dict)

    def subproblem_task(self, part: Subproblem) -> Task:
        """Make the task of a subproblem, with answers in place of references."""
        return Task(SUBPROBLEM, substitute(part.question, self.answers), self._known(part.depends_on))

    def final_task(self) -> Task | None:
        """Make the last task of the plan; None where `combine` only names an answer, which is then the final one."""
        if not self.plan.should_decompose:
            return Task(DIRECT_SOLUTION, self.problem)
        instruction = self.plan.combine.strip()
        if reference := REFERENCE.fullmatch(instruction):
            self.answer = self.answers[reference[1]]
            return None
        known = self._known(part.id for part in self.plan.subproblems)
        return Task(COMBINE, substitute(instruction, self.answers), f"{self.problem}\n{known}")

    def _known(self, names: Iterable[str]) -> str:
        return "\n".join(dict.fromkeys(f"{self.asked[name]} {self.answers[name]}" for name in names))

    def note(self, task: Task, solution: Solution) -> None:
        """Record the worker's solution of a task."""
        result = ToolResult(solution.answer or "", solution.answer is not None, tokens=solution.tokens)
        self.turns.append(Turn("", ToolCall(task.kind, task.question), result=result))
        self.failure = self.failure or solution.failure
        self.broken = self.broken or bool(solution.failure) or solution.answer is None

    def added_to(self, episode: Episode, seconds: float) -> Episode:
        """Return the episode with the turns of its plan, whose execution took `seconds`."""
        # The answer has a turn of its own: where `combine` only names an answer, the last task may have given another one.
        turns = (*episode.turns, *self.turns, Turn("", answer=self.answer or ""))
        reason = StopReason.FAILED if self.failure else episode.stop_reason
        return replace(episode, turns=turns, stop_reason=reason, failure=self.failure or episode.failure, seconds=episode.seconds + seconds)


def execute_plans(plans: Sequence[tuple[str, Plan]], worker: Worker) -> list[PlanExecution]:
    """Execute plans without faults, each with its problem; return the executions in order."""
    rows = [PlanExecution(problem, plan) for problem, plan in plans]
    for wave in zip_longest(*(plan.waves() for _, plan in plans), fillvalue=list[Subproblem]()):
        waiting = [(row, part) for row, parts in zip(rows, wave, strict=True) if not row.broken for part in parts]
        tasks = [row.subproblem_task(part) for row, part in waiting]
        for (row, part), task, solution in zip(waiting, tasks, worker.solve(tasks), strict=True):
            row.note(task, solution)
            row.asked[part.id], row.answers[part.id] = task.question, _bare(solution.answer)
    last = [(row, final) for row in rows if not row.broken and (final := row.final_task()) is not None]
    for (row, final), solution in zip(last, worker.solve([final for _, final in last]), strict=True):
        row.note(final, solution)
        row.answer = None if solution.failure else solution.answer
    return rows


def substitute(text: str, answers: Mapping[str, str]) -> str:
    """Put answers in place of references; an answer that is not a plain number gets brackets, so that its sign or fraction stays whole."""

    def put(answer: str) -> str:
        return answer if answer.replace(".", "", 1).isdecimal() or parse_number(answer) is None else f"({answer})"

    return REFERENCE.sub(lambda match: put(answers[match[1]]) if match[1] in answers else match[0], text)


def _bare(answer: str | None) -> str:
    """Return the number in an answer in prose, for the next question."""
    if answer is None or parse_number(answer) is not None:
        return (answer or "").strip()
    found = last_number(answer)
    return answer.strip() if found is None else format_number(found)
