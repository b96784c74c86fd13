"""The frozen worker: it solves subproblems, combines their answers, or solves a whole problem directly.

All workers have one interface: a batch of tasks in, a solution each out, in order. A worker is greedy, so that the reward of a plan is
the plan's merit and not the worker's luck. A task that it cannot answer is data; a service that is down is a solution with `failure`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from slmsearch.config import WorkerConfig
from slmsearch.environments.planner.arithmetic import Unreadable, compute
from slmsearch.environments.planner.numbers import ANSWER_MARK, format_number, last_number
from slmsearch.environments.planner.plan_prompt import Task, make_worker_prompt
from slmsearch.episodes.sampler import Sampler, Sampling
from slmsearch.errors import ConfigError
from slmsearch.foreign import without_credentials

DEFAULT_URLS = {"ollama": "http://localhost:11434/v1", "openai": "http://localhost:8000/v1"}


@dataclass(frozen=True, slots=True)
class Solution:
    """A worker's solution of a task."""

    answer: str | None
    """Answer; None if the worker found none."""
    tokens: int = 0
    """Number of tokens read and written."""
    failure: str = ""
    """Failure of the service, as `worker: cause`; empty otherwise."""


class Worker(Protocol):
    """A solver of tasks."""

    name: str
    """Name of everything that decides the answers; part of every evaluation and training key."""

    def solve(self, tasks: Sequence[Task]) -> list[Solution]:
        """Solve tasks together, one solution each, in order."""
        ...


class ArithmeticWorker:
    """A worker that reads the text of a task and computes it; deterministic, without a model.

    It does `max_operations` operations in one question. Tokens are words: those of the question and those of the answer.
    """

    def __init__(self, max_operations: int = 2) -> None:
        """Set the number of operations it does in one question."""
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
    """A worker that calls a function for each task, several at a time, for solvers that wait on a network."""

    def __init__(self, name: str, solve_one: Callable[[Task], Solution], concurrency: int) -> None:
        """Wrap a function, which `concurrency` threads call."""
        self.name = name
        self._solve_one = solve_one
        # The pool stays from wave to wave: on a busy machine starting threads took half as long as waiting.
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="worker")

    def solve(self, tasks: Sequence[Task]) -> list[Solution]:
        """See `Worker.solve`."""
        if len(tasks) < 2:
            return [self._solve_one(task) for task in tasks]
        return list(self._pool.map(self._solve_one, tasks))


class ModelWorker:
    """A worker that solves tasks with a sampler, greedily, a batch at a time."""

    def __init__(self, name: str, open_base: Callable[[], AbstractContextManager[Sampler]] | None, max_new_tokens: int) -> None:
        """Bind the function that opens a sampler over the frozen weights for its context's length; None until `sample_with` sets it."""
        self.name = name
        self._open_base, self._max_new_tokens = open_base, max_new_tokens

    def sample_with(self, open_base: Callable[[], AbstractContextManager[Sampler]]) -> None:
        """Set the function that opens a sampler over the frozen weights."""
        self._open_base = open_base

    def solve(self, tasks: Sequence[Task]) -> list[Solution]:
        """See `Worker.solve`."""
        if not tasks:
            return []
        if self._open_base is None:
            raise ConfigError("the worker `base` needs the policy's model here: it cannot work beside a served policy")
        count = len(tasks)
        with self._open_base() as sampler:
            try:
                prompts = sampler.open([make_worker_prompt(task) for task in tasks], Sampling(0.0, 0, self._max_new_tokens))
                turns = sampler.sample(range(count), [None] * count, [self._max_new_tokens] * count)
            finally:
                sampler.close()
        return [
            _read(turn.text, len(prompt) + turn.num_tokens, not turn.ended, turn.failure)
            for prompt, turn in zip(prompts, turns, strict=True)
        ]


def _read(text: str, tokens: int, is_cut: bool, failure: str = "") -> Solution:
    if failure:
        return Solution(None, tokens, f"worker: {failure}")
    # The last number of a solution that was cut off is one from its middle.
    number = None if is_cut and ANSWER_MARK not in text else last_number(text)
    return Solution(None if number is None else format_number(number), tokens)


def make_served_worker(config: WorkerConfig) -> ConcurrentWorker:
    """Make a worker behind an OpenAI-compatible server or Ollama; no request is sent yet."""
    from slmsearch.http_client import complete, make_openai

    url = config.base_url or DEFAULT_URLS[config.kind]
    key = config.api_key.get_secret_value() if config.api_key else "none"
    client, place = make_openai(url, key, config.timeout_s, 3), without_credentials(url)

    def solve_one(task: Task) -> Solution:
        messages = [dict(message) for message in make_worker_prompt(task)]
        reply = complete(client, model=config.model, messages=messages, temperature=0.0, seed=0, max_tokens=config.max_new_tokens)
        if isinstance(reply, str):
            return Solution(None, 0, f"worker: {reply}")
        return _read(reply.text, reply.total_tokens, reply.is_cut)

    return ConcurrentWorker(f"{config.kind}:{config.model}@{place}", solve_one, config.concurrency)
