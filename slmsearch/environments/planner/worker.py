"""The frozen worker: whoever solves subproblems, combines their answers, or solves a whole problem directly.

One interface for all of them: a batch of tasks in, a solution each out, in order. A worker is greedy, so that what a plan earns is
the plan's merit and not the worker's luck. What it cannot answer is data; a service that is down is a solution with `failure`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from slmsearch.config import WorkerConfig
from slmsearch.environments.planner.arithmetic import Unreadable, compute
from slmsearch.environments.planner.numbers import format_number, last_number
from slmsearch.environments.planner.plan_prompt import Task, make_worker_prompt
from slmsearch.episodes.sampler import Sampler, Sampling
from slmsearch.errors import ConfigError
from slmsearch.foreign import without_credentials

DEFAULT_URLS = {"ollama": "http://localhost:11434/v1", "openai": "http://localhost:8000/v1"}


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
        """Wrap a function, which is called from so many threads."""
        self.name = name
        self._solve_one = solve_one
        # Kept from wave to wave: starting threads took half as long as the waiting on a busy machine.
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="worker")

    def solve(self, tasks: Sequence[Task]) -> list[Solution]:
        """See `Worker.solve`."""
        if len(tasks) < 2:
            return [self._solve_one(task) for task in tasks]
        return list(self._pool.map(self._solve_one, tasks))


class ModelWorker:
    """Solves tasks with a sampler, greedily, a batch at a time."""

    def __init__(self, name: str, open_base: Callable[[], AbstractContextManager[Sampler]] | None, max_new_tokens: int) -> None:
        """Take what opens a sampler over the frozen weights for as long as its context lasts; None until `sample_with` names it."""
        self.name = name
        self._open_base, self._max_new_tokens = open_base, max_new_tokens

    def sample_with(self, open_base: Callable[[], AbstractContextManager[Sampler]]) -> None:
        """Say whose weights are used from now on."""
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
        return [_read(turn.text, len(prompt) + turn.num_tokens, turn.failure) for prompt, turn in zip(prompts, turns, strict=True)]


def _read(text: str, tokens: int, failure: str) -> Solution:
    if failure:
        return Solution(None, tokens, f"worker: {failure}")
    number = last_number(text)
    return Solution(None if number is None else format_number(number), tokens)


def make_served_worker(config: WorkerConfig) -> ConcurrentWorker:
    """Make a worker behind an OpenAI-compatible server or Ollama; nothing is asked yet."""
    from slmsearch.http_client import complete, make_openai

    url = config.base_url or DEFAULT_URLS[config.kind]
    key = config.api_key.get_secret_value() if config.api_key else "none"
    client, place = make_openai(url, key, config.timeout_s, 3), without_credentials(url)

    def solve_one(task: Task) -> Solution:
        messages = [dict(message) for message in make_worker_prompt(task)]
        reply = complete(client, model=config.model, messages=messages, temperature=0.0, seed=0, max_tokens=config.max_new_tokens)
        if isinstance(reply, str):
            return Solution(None, 0, f"worker: {reply}")
        return _read(reply.text, reply.total_tokens, "")

    return ConcurrentWorker(f"{config.kind}:{config.model}@{place}", solve_one, config.concurrency)
