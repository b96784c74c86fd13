"""When a task's stored result may stand for running it again, and when a failed one is worth another try.

Prefect hashes a task's arguments and its own lines. Tasks here are keyed by content keys, so that a setting without
influence changes nothing, and by a digest of the code behind them. A stored result is believed only while the artefact
it names is there.
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
"""What a second try may cure where a network lies between; wrong settings and models are wrong again."""


def cached(*ignored: str) -> dict[str, Any]:
    """Return the options of a task whose result is stored under its arguments, those ignored left out, and its source."""
    policy: CachePolicy = INPUTS
    for name in ignored:
        policy = policy - name
    return {"cache_policy": policy + TASK_SOURCE, "persist_result": True, "result_serializer": "json"}


def retried(touches_network: bool) -> dict[str, Any]:
    """Return the options of a task that is tried again after an outage, if it touches a network at all."""
    if not touches_network:
        return {}
    return {"retries": 2, "retry_delay_seconds": [2.0, 15.0], "retry_jitter_factor": 0.5, "retry_condition_fn": _is_outage}


def _is_outage(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.result(raise_on_failure=False), OUTAGES)


def touches_network(config: RunConfig) -> bool:
    """Say whether playing and judging an episode talks to a server."""
    return config.judge.kind != "exact" or config.policy.base_url is not None or any(environment_of(config).data.servers(config).values())


def fresh(task: Task[P, R], is_there: bool) -> Task[P, R]:
    """Return the task as it is where its artefact is complete on disk, else one that ignores its stored result."""
    return task if is_there else task.with_options(refresh_cache=True)
