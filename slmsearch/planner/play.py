"""Playing problems: the planner writes plans, the worker carries them out, and both become ordinary episodes.

The first turn is the plan, the only text the policy wrote: its ids are what is trained on. Every task of the worker follows as a
turn of its own without ids, so that store, traces and tables show a planner's episodes as they show a searcher's.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from slmsearch.config import PlannerConfig
from slmsearch.corpus.questions import Question
from slmsearch.generate.sampler import Sampler, Sampling
from slmsearch.planner.executor import Execution, execute_plans
from slmsearch.planner.plan import parse_plan
from slmsearch.planner.prompt import make_plan_prompt
from slmsearch.planner.worker import Worker
from slmsearch.searcher.episode import Episode, StopReason, ToolCall, ToolResult, Turn
from slmsearch.searcher.rollout import play_one_turn


def write_plans(questions: Sequence[Question], sampler: Sampler, config: PlannerConfig, sampling: Sampling) -> list[Episode]:
    """Let the policy write a plan for each problem; the episodes still lack what becomes of the plans."""
    prompts = [make_plan_prompt(question.question, config) for question in questions]
    room = max(config.max_plan_tokens, sampling.max_new_tokens)
    return play_one_turn(questions, prompts, sampler, sampling, room, lambda text: (None, parse_plan(text).plan is not None))


def carry_out(questions: Sequence[Question], episodes: Sequence[Episode], worker: Worker) -> list[Episode]:
    """Let the worker carry out every plan that can be; return the episodes with what became of them."""
    started = time.perf_counter()
    pairs = zip(questions, episodes, strict=True)
    plans = {i: (q.question, parse_plan(e.turns[0].text).plan) for i, (q, e) in enumerate(pairs) if e.stop_reason is StopReason.ANSWERED}
    ready = {i: (problem, plan) for i, (problem, plan) in plans.items() if plan is not None}
    done = dict(zip(ready, execute_plans(list(ready.values()), worker), strict=True))
    seconds = time.perf_counter() - started
    return [_carried_out(episode, done[i], seconds) if i in done else episode for i, episode in enumerate(episodes)]


def _carried_out(episode: Episode, execution: Execution, seconds: float) -> Episode:
    steps = [
        Turn("", ToolCall(step.kind, step.question), None, ToolResult(step.answer or "", step.answer is not None, tokens=step.tokens))
        for step in execution.steps
    ]
    # The answer stands in a turn of its own: where `combine` only names one, no task gave it last.
    turns = (*episode.turns, *steps, Turn("", answer=execution.answer or ""))
    seconds += episode.seconds
    if execution.failure:
        return replace(episode, turns=turns, stop_reason=StopReason.FAILED, failure=execution.failure, seconds=seconds)
    return replace(episode, turns=turns, seconds=seconds)
