"""Correct states of runs: end runs that show as running in Prefect or MLflow and whose process has ended, with the reason.

The two trackers are not linked: a killed process reports to neither, a killed worker does not report to Prefect, and a server that was down
missed reports. Labels of a flow run name its owner (`label_flow_run`), tags of an MLflow run its owner, both as `owners.owner_tag()`. If
the owner's process ids can be looked up, a missing process decides; otherwise a silence of three heartbeats does. Only runs that are known
to be dead are ended, after they are read again: they may have ended themselves meanwhile.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, TaskRun
from prefect.client.schemas.responses import SetStateStatus
from prefect.events.filters import EventAnyResourceFilter, EventFilter, EventNameFilter
from prefect.events.schemas.events import Event
from prefect.exceptions import ObjectNotFound
from prefect.settings.context import get_current_settings
from prefect.states import Cancelled, Crashed
from prefect.types._datetime import now
from prefect.utilities.slugify import slugify

from slmsearch.training.files import CHECKPOINTS, checkpoint_step, latest_complete_checkpoint
from tasks.owners import BEATS, HEARTBEAT, begins, describe_owner, is_neighbour, is_orphan, owner_tag
from tasks.tracking import FLOW_RUN, OWNER, PREFIX, RunRecord, RunRegistry

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

OWNED_AT = f"{PREFIX}owned_at"
"""Label of a flow run with the time when its owner registered, in seconds since the epoch."""
LIVE = (StateType.RUNNING, StateType.PENDING, StateType.CANCELLING, StateType.PAUSED)
TAKEN = "prefect.worker.submitted-flow-run"
PROCESS_WORKER = "prefect.worker.process."
"""Prefix of the addresses of workers that start processes."""
UNBEGUN_S = 900.0
"""Time after which a flow run that a worker has taken and not begun counts as dead."""
UNBEGUN_HERE_S = 60.0
"""The same time if the worker is on this machine without a process for it; a retried flow run first names the last one's process."""
UNKNOWN_S = 86_400.0
"""Time after which an MLflow run of another machine counts as dead if Prefect does not know its flow run."""
LATE_EVENTS_S = 600.0
"""Time after which no event of a flow run that has ended is on its way any more."""
PAGE = 200


@dataclass(frozen=True, slots=True)
class Fixed:
    """A run whose state was corrected."""

    kind: Literal["flow run", "task run", "MLflow run"]
    name: str
    state: str
    """Corrected state."""
    reason: str

    def describe(self) -> str:
        """Describe the correction in one line."""
        return f"{self.kind} {self.name}: {self.state}, {self.reason}"


def label_flow_run(client: "SyncPrefectClient", flow_run_id: str) -> None:
    """Label a flow run in Prefect with this process as its owner."""
    client.update_flow_run_labels(UUID(flow_run_id), {OWNER: owner_tag(), OWNED_AT: time.time()})


def reconcile(
    registry: RunRegistry | None, training: Path, client: "SyncPrefectClient", pool: str, workers: Collection[str] = ()
) -> list[Fixed]:
    """End runs that show as running and are not.

    Flow runs outside of the pool are checked only if they have an owner's label. `workers` are those of this machine: the processes they
    have started can be looked up here.

    Raises:
        ServiceError: MLflow cannot be read.
    """
    running = registry.running() if registry else []
    fixed = list(_end_flow_runs(training, client, pool, running, workers))
    fixed += _end_task_runs(client)
    for mlflow_run in running:
        status, reason = _verdict(mlflow_run, client)
        if status and registry and registry.end_dead_run(mlflow_run, status, reason):
            fixed.append(Fixed("MLflow run", f"{mlflow_run.stage} {mlflow_run.id[:8]}", status, reason))
    return fixed


def live_flow_runs(client: "SyncPrefectClient", pool: str) -> Iterator[FlowRun]:
    """Return this project's flow runs that show as running, beginning, paused or being cancelled."""
    wanted, offset = _in_state(*LIVE), 0
    while page := client.read_flow_runs(flow_run_filter=wanted, limit=PAGE, offset=offset):
        yield from (run for run in page if OWNER in run.labels or run.work_pool_name == pool)
        offset += PAGE


def _in_state(*states: StateType) -> FlowRunFilter:
    return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(states))))


def _end_flow_runs(
    training: Path, client: "SyncPrefectClient", pool: str, running: list[RunRecord], workers: Collection[str]
) -> Iterator[Fixed]:
    slugs = {slugify(name) for name in workers}
    for run in list(live_flow_runs(client, pool)):
        reason = why_dead(run, client, slugs)
        state = client.read_flow_run(run.id).state if reason else None
        if reason is None or state is None or state.is_final():
            continue
        reason = f"{reason}; {_what_next(str(run.id), training, running)}"
        ended: State = Cancelled(message=reason) if state.is_cancelling() else Crashed(message=reason)
        if client.set_flow_run_state(run.id, ended).status == SetStateStatus.ACCEPT:
            yield Fixed("flow run", run.name, str(ended.name), reason)


def why_dead(run: FlowRun, client: "SyncPrefectClient", workers: Collection[str] = (), unbegun_s: float | None = None) -> str | None:
    """Return why a flow run that shows as live is dead; None if it may be alive.

    `workers` are the names, as in addresses, of those on this machine; a taken flow run that has not begun is dead after `unbegun_s`.
    """
    unbegun_s = UNBEGUN_S if unbegun_s is None else unbegun_s
    owner = _owner_now(run)
    if is_neighbour(owner):
        return f"{describe_owner(owner)} is gone" if is_orphan(owner) else None
    assert run.state is not None
    quiet_s = (now("UTC") - run.state.timestamp).total_seconds()
    if run.state.is_pending():
        pid, here = run.infrastructure_pid or "", _taken_by(run, client) in workers
        if here and quiet_s > UNBEGUN_HERE_S and not (pid.isdecimal() and begins(int(pid), str(run.id))):
            return f"process {pid} was gone before it had begun" if pid else f"no process of it was started for {quiet_s:.0f} s"
        return f"it had not begun after {quiet_s:.0f} s" if quiet_s > unbegun_s else None
    frequency = get_current_settings().flows.heartbeat_frequency
    if frequency is None or quiet_s <= BEATS * frequency:
        return None
    if beat := _last_event(run, client, HEARTBEAT):
        quiet_s = min(quiet_s, (now("UTC") - beat.occurred).total_seconds())
    return f"{describe_owner(owner)} has sent no heartbeat for {quiet_s:.0f} s" if quiet_s > BEATS * frequency else None


def _taken_by(run: FlowRun, client: "SyncPrefectClient") -> str:
    """Return the name, as in addresses, of the worker that last took a flow run to start a process for it; empty if unknown."""
    found = _last_event(run, client, TAKEN)
    _, process_worker, name = str(found.resource.id if found else "").rpartition(PROCESS_WORKER)
    return name if process_worker else ""


def _last_event(run: FlowRun, client: "SyncPrefectClient", name: str) -> Event | None:
    about = EventAnyResourceFilter(id=[f"prefect.flow-run.{run.id}"])
    found = client.read_events(EventFilter(event=EventNameFilter(name=[name]), any_resource=about), limit=1).events
    return found[0] if found else None


def _owner_now(run: FlowRun) -> str:
    """Return the owner of the running attempt; a retried flow run keeps the earlier attempt's label until then."""
    owner, since = str(run.labels.get(OWNER, "")), float(run.labels.get(OWNED_AT, 0.0))
    if run.state is None or run.state.is_pending():
        return ""
    return owner if run.state.is_cancelling() or since >= run.state.timestamp.timestamp() else ""


def _what_next(flow_run_id: str, home: Path, running: list[RunRecord]) -> str:
    for run in running:
        if run.tags.get(FLOW_RUN) == flow_run_id and (directory := home / run.key).is_dir():
            checkpoint = latest_complete_checkpoint(directory / CHECKPOINTS)
            return f"resumable at step {checkpoint_step(checkpoint) if checkpoint else 0} by running the same again"
    return "running the same again goes on where it stood"


def _end_task_runs(client: "SyncPrefectClient") -> Iterator[Fixed]:
    """End tasks of killed flow runs; those of others are reported by events that may still be on their way for `LATE_EVENTS_S`."""
    live = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=list(LIVE))))
    found, killed = list[TaskRun](), _in_state(StateType.CRASHED, StateType.CANCELLED)
    while page := client.read_task_runs(task_run_filter=live, flow_run_filter=killed, limit=PAGE, offset=len(found)):
        found += page
    for task_run in found:
        assert task_run.flow_run_id is not None
        run = client.read_flow_run(task_run.flow_run_id)
        ended_s = (now("UTC") - run.state.timestamp).total_seconds() if run.state else 0.0
        if not is_orphan(str(run.labels.get(OWNER, ""))) and ended_s < LATE_EVENTS_S:
            continue
        client.set_task_run_state(task_run.id, Crashed(message="its flow run was killed"), force=True)
        yield Fixed("task run", task_run.name, "Crashed", "its flow run was killed")


def _verdict(run: RunRecord, client: "SyncPrefectClient") -> tuple[str, str]:
    """Return the final state for an MLflow run that shows as running, and the reason; empty if it may be alive."""
    owner = run.tags.get(OWNER, "")
    gone = f"{describe_owner(owner)} is gone"
    if is_neighbour(owner):
        return ("KILLED", gone) if is_orphan(owner) else ("", "")
    state = _flow_state(run.tags.get(FLOW_RUN, ""), client)
    if state is not None:
        message = f"its flow run ended as {state.name}: {state.message or 'no reason given'}"
        return ("FAILED" if state.is_failed() else "KILLED", message) if state.is_final() else ("", "")
    if is_orphan(owner):
        return "KILLED", gone
    age_s = now("UTC").timestamp() - run.started_s
    return ("KILLED", "Prefect does not know its flow run") if age_s > UNKNOWN_S else ("", "")


def _flow_state(flow_run_id: str, client: "SyncPrefectClient") -> State | None:
    try:
        return client.read_flow_run(UUID(flow_run_id)).state
    except (ObjectNotFound, ValueError):
        return None
