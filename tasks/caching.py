"""Rules of stored task results: when a result replaces a new run of the task, and when a failed task is retried.

Prefect hashes a task's arguments and its own lines. Tasks here are keyed by content keys, so that a setting without influence changes
nothing, and by a digest of the code behind them. A stored result counts only while the artefact it names exists.
"""

from typing import Any, ParamSpec, TypeVar

from prefect import Task
from prefect.cache_policies import INPUTS, TASK_SOURCE, CachePolicy
from prefect.client.schemas.objects import State, TaskRun

from slmsearch.config import RunConfig
from slmsearch.environments.registry import environment_of
from slmsearch.errors import (
    CorpusError,
    EmbedderError,
    EvaluationError,
    GenerationError,
    JudgeError,
    SandboxError,
    ServiceError,
    SlmSearchError,
)

P = ParamSpec("P")
R = TypeVar("R")

OUTAGES: tuple[type[SlmSearchError], ...] = (
    CorpusError,
    EmbedderError,
    EvaluationError,
    GenerationError,
    JudgeError,
    SandboxError,
    ServiceError,
)
"""Errors that a retry may cure if a network is involved; wrong settings and models stay wrong."""


def cached(*ignored: str) -> dict[str, Any]:
    """Return the options of a task whose result is stored under its arguments, without those ignored, and its source."""
    policy: CachePolicy = INPUTS
    for name in ignored:
        policy = policy - name
    return {"cache_policy": policy + TASK_SOURCE, "persist_result": True, "result_serializer": "json"}


def retried(touches_network: bool) -> dict[str, Any]:
    """Return the options of a task that Prefect retries after an outage, if the task uses a network."""
    if not touches_network:
        return {}
    return {"retries": 2, "retry_delay_seconds": [2.0, 15.0], "retry_jitter_factor": 0.5, "retry_condition_fn": _is_outage}


def _is_outage(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.result(raise_on_failure=False), OUTAGES)


def touches_network(config: RunConfig) -> bool:
    """Return whether playing and judging an episode uses a server."""
    return config.judge.kind != "exact" or config.policy.base_url is not None or any(environment_of(config).data(config).servers().values())


def fresh(task: Task[P, R], is_there: bool) -> Task[P, R]:
    """Return the task unchanged if its artefact is complete on disk, else a copy that ignores its stored result."""
    return task if is_there else task.with_options(refresh_cache=True)
