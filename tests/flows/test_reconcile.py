"""What shows as running and is not, with a real Prefect server and a real store of MLflow."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.events.filters import EventFilter, EventIDFilter
from prefect.events.schemas.events import Event
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Cancelling, Completed, Crashed, Failed, Paused, Pending, Running
from prefect.types._datetime import now

from flows.ops.doctor.checks import check_automations
from flows.ops.doctor.collect import _watch
from flows.runtime.automations import HEARTBEATS, watch_heartbeats
from flows.runtime.pool import POOL
from slmsearch.artifacts.writers import pid_scope
from slmsearch.config import RunConfig
from slmsearch.training.files import CHECKPOINTS, seal_checkpoint
from tasks import owners
from tasks.owners import RUN_VARIABLE
from tasks.reconcile import OWNED_AT, Fixed, label_flow_run
from tasks.reconcile import reconcile as end_dead_runs
from tasks.tracking import ENDED, FLOW_RUN, OWNER, Tracker, open_run_registry, open_tracker
from tests.flows.doctor.test_checks import SOUND, with_api

pytestmark = pytest.mark.usefixtures("prefect_harness")
GONE = f"{socket.gethostname()} {2**22 - 3} 12345 {pid_scope()}".strip()
ELSEWHERE = "another-host 1 12345 boot/1"


@flow
def some_flow() -> None:
    """Never run."""


@task
def some_task() -> None:
    """Never run."""


@pytest.fixture
def client() -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: 30}), get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def config(tmp_path: Path, empty_store: Path) -> RunConfig:
    (tmp_path / "mlruns").mkdir()
    shutil.copy(empty_store, tmp_path / "mlruns" / "mlflow.db")
    return RunConfig.model_validate({"paths": {"data_dir": str(tmp_path / "data"), "mlruns_dir": str(tmp_path / "mlruns")}})


def reconcile(config: RunConfig, client: SyncPrefectClient, workers: Collection[str] = ()) -> list[Fixed]:
    registry = open_run_registry(config.paths, config.tracking)
    return end_dead_runs(registry, config.paths.training, client, POOL, workers)


def make_run(client: SyncPrefectClient, state: State[Any], owner: str | None = None, later_s: float = 0.0) -> FlowRun:
    run = client.create_flow_run(some_flow, state=state)
    if owner is not None:
        client.update_flow_run_labels(run.id, {OWNER: owner, OWNED_AT: time.time() + later_s})
    return run


def state_of(client: SyncPrefectClient, run: FlowRun) -> State[Any]:
    state = client.read_flow_run(run.id).state
    assert state is not None
    return state


def track(tracker: Tracker, owner: str, flow_run_id: object = "") -> str:
    run_id = tracker.start_run("train", uuid4().hex, tags={FLOW_RUN: str(flow_run_id)} if flow_run_id else {})
    tracker.set_tags(run_id, {OWNER: owner})
    return run_id


def ended(tracker: Tracker, run_id: str) -> tuple[str, str]:
    run = tracker.client.get_run(run_id)
    return run.info.status, run.data.tags.get(ENDED, "")


def of(fixed: list[Fixed], run: FlowRun) -> list[Fixed]:
    return [item for item in fixed if item.name == run.name]


def test_a_flow_run_ends_when_its_process_is_gone_and_only_then(config: RunConfig, client: SyncPrefectClient) -> None:
    dead, stopped = make_run(client, Running(), GONE), make_run(client, Cancelling(), GONE)
    mine, far, foreign = make_run(client, Running()), make_run(client, Running(), ELSEWHERE), make_run(client, Running())
    label_flow_run(client, str(mine.id))
    waiting = make_run(client, Pending(), ELSEWHERE)
    unapproved = make_run(client, Paused(timeout_seconds=600), GONE)
    fixed = reconcile(config, client)
    assert (state_of(client, dead).name, state_of(client, stopped).name) == ("Crashed", "Cancelled")
    assert state_of(client, unapproved).name == "Crashed"
    assert "is gone; running the same again goes on" in str(state_of(client, dead).message)
    assert len(of(fixed, dead)) == len(of(fixed, stopped)) == 1
    assert [state_of(client, run).name for run in (mine, far, foreign, waiting)] == ["Running", "Running", "Running", "Pending"]
    assert not [item for item in reconcile(config, client) if item.kind == "flow run"], "the second time nothing is left to do"


def test_a_flow_run_that_is_tried_again_does_not_end_with_its_last_attempt(config: RunConfig, client: SyncPrefectClient) -> None:
    pending, running = make_run(client, Pending(), GONE), make_run(client, Running(), GONE, later_s=-60)
    reconcile(config, client)
    assert (state_of(client, pending).name, state_of(client, running).name) == ("Pending", "Running")


def test_what_was_training_says_where_it_can_be_resumed(config: RunConfig, client: SyncPrefectClient) -> None:
    run, tracker = make_run(client, Running(), GONE), open_tracker(config.paths, config.tracking)
    tracked = tracker.start_run("train", "some-key", tags={FLOW_RUN: str(run.id)})
    tracker.set_tags(tracked, {OWNER: GONE})
    checkpoint = config.paths.training / "some-key" / CHECKPOINTS / "checkpoint-7"
    checkpoint.mkdir(parents=True)
    seal_checkpoint(checkpoint, 7)
    reconcile(config, client)
    assert "resumable at step 7 by running the same again" in str(state_of(client, run).message)
    assert ended(tracker, tracked)[0] == "KILLED" and "is gone" in ended(tracker, tracked)[1]


def test_elsewhere_silence_decides(config: RunConfig, client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch) -> None:
    run, waiting = make_run(client, Running(), ELSEWHERE), make_run(client, Pending(), ELSEWHERE)
    monkeypatch.setattr("tasks.reconcile.BEATS", 0)
    monkeypatch.setattr("tasks.reconcile.UNBEGUN_S", 0)
    reconcile(config, client)
    assert "process 1 on another-host has sent no heartbeat for" in str(state_of(client, run).message)
    assert "it had not begun after" in str(state_of(client, waiting).message)


def test_tasks_of_a_flow_run_that_was_killed_elsewhere_end_when_no_event_is_on_its_way(
    config: RunConfig, client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.reconcile.PAGE", 2)
    run = make_run(client, Running(), ELSEWHERE)
    tasks = [client.create_task_run(some_task, run.id, str(number), state=Running()) for number in range(5)]
    client.set_flow_run_state(run.id, Crashed(message="its container was killed"), force=True)

    def states() -> set[str]:
        return {str(client.read_task_run(one.id).state_name) for one in tasks}

    reconcile(config, client)
    assert states() == {"Running"}
    monkeypatch.setattr("tasks.reconcile.LATE_EVENTS_S", 0)
    reconcile(config, client)
    assert states() == {"Crashed"}


def take(client: SyncPrefectClient, run: FlowRun, pid: int, worker: str = "w-1", kind: str = "process") -> None:
    """Tell the server what a worker tells when it starts a process for a flow run."""
    client.update_flow_run(run.id, infrastructure_pid=str(pid))
    event = Event(
        event="prefect.worker.submitted-flow-run",
        resource={"prefect.resource.id": f"prefect.worker.{kind}.{worker}"},
        related=[{"prefect.resource.id": f"prefect.flow-run.{run.id}", "prefect.resource.role": "flow-run"}],
    )
    client._client.post("/events", json=[event.model_dump(mode="json")]).raise_for_status()
    wanted = EventFilter(id=EventIDFilter(id=[event.id]))
    deadline = time.monotonic() + 30
    while not client.read_events(wanted, limit=1).events:
        assert time.monotonic() < deadline, "the server has not stored the event"


def test_what_a_worker_of_this_machine_never_began_is_over(
    config: RunConfig, client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, begun, reused, foreign, unknown = (make_run(client, Pending(), ELSEWHERE) for _ in range(5))
    idle = [sys.executable, "-c", "input()"]
    with subprocess.Popen(idle, stdin=subprocess.PIPE, env={**os.environ, RUN_VARIABLE: str(begun.id)}) as process:
        take(client, gone, 2**22 - 3)
        take(client, begun, process.pid)
        take(client, reused, os.getpid())
        take(client, foreign, 2**22 - 3, "w-2")
        client.update_flow_run(unknown.id, infrastructure_pid=str(2**22 - 3))
        runs = (gone, begun, reused, foreign, unknown)
        reconcile(config, client, ["W 1"])
        assert {state_of(client, run).name for run in runs} == {"Pending"}, "too soon: it may be tried again and name a process of before"
        monkeypatch.setattr("tasks.reconcile.UNBEGUN_HERE_S", 0)
        reconcile(config, client)
        assert {state_of(client, run).name for run in runs} == {"Pending"}, "a process elsewhere cannot be looked up here"
        reconcile(config, client, ["W 1"])
        assert [state_of(client, run).name for run in runs] == ["Crashed", "Pending", "Crashed", "Pending", "Pending"]
        assert process.stdin is not None
        process.stdin.close()


def test_an_mlflow_run_ends_with_its_process_or_its_flow_run(
    config: RunConfig, client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = open_tracker(config.paths, config.tracking)
    failed, done = make_run(client, Failed(message="no model")), make_run(client, Completed())
    running = make_run(client, Running(), ELSEWHERE)
    mine, gone, unknown = track(tracker, owners.owner_tag(), failed.id), track(tracker, GONE), track(tracker, ELSEWHERE, uuid4())
    lost, odd, live = (track(tracker, ELSEWHERE, run.id) for run in (failed, done, running))
    reconcile(config, client)
    assert ended(tracker, mine) == ("RUNNING", ""), "a living process ends its own run"
    assert ended(tracker, live)[0] == ended(tracker, unknown)[0] == "RUNNING"
    assert ended(tracker, gone) == ("KILLED", f"{owners.describe_owner(GONE)} is gone")
    assert ended(tracker, lost) == ("FAILED", "its flow run ended as Failed: no model")
    assert ended(tracker, odd)[0] == "KILLED"
    monkeypatch.setattr("tasks.reconcile.UNKNOWN_S", -1)
    reconcile(config, client)
    assert ended(tracker, unknown) == ("KILLED", "Prefect does not know its flow run")


def test_a_run_gone_on_with_no_longer_says_why_it_ended(config: RunConfig) -> None:
    tracker = open_tracker(config.paths, config.tracking)
    with pytest.raises(ValueError), tracker.run("train", "key") as first:
        raise ValueError("no disk")
    assert ended(tracker, first) == ("FAILED", "ValueError: no disk")
    with tracker.run("train", "key") as second:
        pass
    assert (second, ended(tracker, second)) == (first, ("FINISHED", ""))
    stop = SystemExit(143)
    stop.add_note("training stopped; resumable at step 4")
    with pytest.raises(SystemExit), tracker.run("train", "other") as third:
        raise stop
    assert ended(tracker, third) == ("KILLED", "told to stop (SystemExit): training stopped; resumable at step 4")


def test_heartbeats_are_watched_once_and_long_enough(client: SyncPrefectClient) -> None:
    assert [watch_heartbeats(client) for _ in range(3)] == [True, False, False]
    (automation,) = client.read_automations_by_name(HEARTBEATS)
    watch = _watch(automation)
    assert watch is not None and watch.within_s == owners.BEATS * 30
    assert list(check_automations(with_api(watches=(watch,)))) == []
    assert any("nothing watches heartbeats" in found.message for found in check_automations(with_api(watches=(), scheduled=1)))
    assert SOUND.prefect is not None


def test_an_owner_of_another_boot_or_container_is_gone_but_cannot_be_looked_up() -> None:
    host, pid, started, *_ = owners.owner_tag().split()
    before = f"{host} {pid} {started} another-boot/1"
    assert owners.is_orphan(before) and not owners.is_neighbour(before)
    assert owners.is_neighbour(owners.owner_tag()) and owners.process_of(owners.owner_tag()) is not None
    assert owners.process_of(GONE) is None and owners.process_of(ELSEWHERE) is None


@pytest.mark.skipif(not psutil.LINUX, reason="elsewhere a process' start is not counted from the boot")
@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_makes_no_living_process_dead(
    config: RunConfig, client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    mine, dead, tracker = make_run(client, Running()), make_run(client, Running(), GONE), open_tracker(config.paths, config.tracking)
    label_flow_run(client, str(mine.id))
    tracked, owner, began = track(tracker, owners.owner_tag(), mine.id), owners.owner_tag(), psutil.Process().create_time()
    # The kernel counts the starts of processes from the boot, so a clock that is set moves the time of the boot.
    booted = psutil.boot_time() + jump_s
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted)
    monkeypatch.setattr("tasks.reconcile.now", lambda zone: now(zone) + timedelta(seconds=jump_s))
    assert psutil.Process().create_time() == began + jump_s, "the jump is seen as psutil sees one"
    assert not owners.is_orphan(owner) and owners.process_of(owner) is not None
    reconcile(config, client)
    assert [state_of(client, run).name for run in (mine, dead)] == ["Running", "Crashed"]
    assert ended(tracker, tracked) == ("RUNNING", "")
