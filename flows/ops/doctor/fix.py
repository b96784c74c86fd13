"""What `--fix` does: only what loses nothing."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from flows.ops.api import client_of
from flows.ops.doctor.facts import Facts, Finding
from flows.ops.pool import POOL
from slmsearch.artifacts.directories import remove_abandoned
from slmsearch.config import RunConfig
from tasks.tracking import open_tracker

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


def fix_findings(findings: list[Finding], facts: Facts, config: RunConfig) -> list[str]:
    """Do what is safe about findings; return what was done, one line each."""
    wanted = dict.fromkeys(finding.fix for finding in findings if finding.fix)
    return [line for fix in wanted for line in FIXES[fix](facts, config)]


def _remove_half_written(facts: Facts, _: RunConfig) -> list[str]:
    homes = dict.fromkeys(path.parent for path in facts.abandoned)
    return [f"removed {home / name}" for home in homes for name in remove_abandoned(home)]


def _remove_dead_records(facts: Facts, _: RunConfig) -> list[str]:
    for path in facts.dead_records:
        path.unlink(missing_ok=True)
    return [f"removed {path}" for path in facts.dead_records]


def _end_orphans(_: Facts, config: RunConfig) -> list[str]:
    return [f"ended {open_tracker(config).end_orphans()} MLflow runs as KILLED"]


def _client(facts: Facts, config: RunConfig) -> "AbstractContextManager[SyncPrefectClient]":
    assert facts.prefect is not None
    return client_of(config, facts.prefect.url)


def _create_limits(facts: Facts, config: RunConfig) -> list[str]:
    from flows.ops.device import create_limits

    assert facts.prefect is not None
    known = {limit.name for limit in facts.prefect.limits}
    missing = [name for name in facts.devices if name not in known]
    with _client(facts, config) as client:
        create_limits(client, missing)
    return [f"created the limit {name}" for name in missing]


def _resume_pool(facts: Facts, config: RunConfig) -> list[str]:
    from prefect.client.schemas.actions import WorkPoolUpdate

    with _client(facts, config) as client:
        client.update_work_pool(POOL, WorkPoolUpdate(is_paused=False))
    return [f"resumed the work pool {POOL}"]


def _watch_heartbeats(facts: Facts, config: RunConfig) -> list[str]:
    from flows.ops.automations import HEARTBEATS, watch_heartbeats

    with _client(facts, config) as client:
        return [f"created the automation {HEARTBEATS!r}"] if watch_heartbeats(client) else []


FIXES: dict[str, Callable[[Facts, RunConfig], list[str]]] = {
    "remove half-written things": _remove_half_written,
    "remove dead records": _remove_dead_records,
    "end orphaned runs": _end_orphans,
    "create limits": _create_limits,
    "resume the pool": _resume_pool,
    "watch heartbeats": _watch_heartbeats,
}
