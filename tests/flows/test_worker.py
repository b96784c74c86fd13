"""What a worker is told, what it finds below itself, and what it leaves when it ends."""

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import pytest
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed, Running

from flows.ops import pool_worker, worker
from flows.ops.worker import drain, flow_runs_below
from slmsearch.config import PathsConfig, RunConfig, TrackingConfig, TrainConfig
from slmsearch.errors import ServiceError
from tasks.owners import RUN_VARIABLE

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_shards_have_a_worker_with_as_many_places_as_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(read_work_pool=lambda name: SimpleNamespace(type=pool_types[0]))
    pool_types = ["process"]
    monkeypatch.setattr(worker, "_pool_client", lambda: nullcontext(client))
    config = RunConfig(train=TrainConfig(num_processes=2, accumulation=4))
    assert worker._plan("w", 3, config.train) == {
        "w": ["--work-queue", "default", "--limit", "3"],
        "w-shards": ["--work-queue", "shards", "--limit", "2"],
    }
    pool_types[0] = "kubernetes"
    assert worker._plan("w", 0, config.train) == {"w": []}


@pytest.fixture
def child() -> Any:
    run = uuid4()
    process = subprocess.Popen(SLEEP, env={**os.environ, RUN_VARIABLE: str(run)})
    yield run, process
    process.kill()
    process.wait()


def test_flow_runs_are_found_by_their_processes(child: tuple[UUID, Any]) -> None:
    assert set(flow_runs_below(os.getpid())) >= {child[0]}
    child[1].kill()
    psutil.wait_procs([psutil.Process(child[1].pid)], timeout=5)
    child[1].wait()
    assert child[0] not in set(flow_runs_below(os.getpid()))
    assert list(flow_runs_below(child[1].pid)) == [], "nobody is below who is gone"


@pytest.mark.parametrize(
    ("reported", "forced"),
    [(Cancelled(), False), (Running(), True), (Crashed(), True)],
    ids=["the worker reports it", "the worker does not", "the flow run did not know why"],
)
def test_draining_leaves_flow_runs_cancelled(child: tuple[UUID, Any], monkeypatch: pytest.MonkeyPatch, reported: Any, forced: bool) -> None:
    run, process = child
    told: list[str] = []

    class Client:
        def __enter__(self) -> "Client":
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def set_flow_run_state(self, which: UUID, state: Any, force: bool = False) -> None:
            assert which == run
            told.append(f"{state.name}{' by force' if force else ''}")
            process.kill()
            process.wait()

        def read_flow_run(self, which: UUID) -> Any:
            return SimpleNamespace(state=reported)

    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: Client())
    monkeypatch.setattr(worker, "REPORT_SECONDS", 0.0)
    drain([os.getpid()], 30.0, told.append)
    assert told == (["Cancelling", "Cancelled by force"] if forced else ["Cancelling"])


class Down:
    """A client of a server that has just ended."""

    def __enter__(self) -> "Down":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getattr__(self, _: str) -> Any:
        def refused(*_: Any, **__: Any) -> None:
            raise httpx.ConnectError("[Errno 111] Connection refused")

        return refused


def test_a_server_that_has_just_ended_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: Down())
    for ask in (lambda: worker._plan("w", 0, TrainConfig()), lambda: worker.check_worker("w")):
        with pytest.raises(ServiceError, match=r"cannot be asked \(\[Errno 111\] Connection refused\); start it"):
            ask()


class ToldToEnd(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        return True


def test_told_to_end_without_a_server_a_worker_says_so_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    stopped: list[Any] = []
    signals: list[int] = []
    service = SimpleNamespace(process=SimpleNamespace(pid=1, send_signal=signals.append), is_alive=True, log="its.log", name="w")
    service.stop = lambda first: stopped.append(service)
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: Down())
    monkeypatch.setattr(worker, "_plan", lambda *_: {"w": []})
    monkeypatch.setattr(worker, "_start", lambda *_: service)
    monkeypatch.setattr(worker, "flow_runs_below", lambda _: [uuid4()])
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(worker, "threading", SimpleNamespace(Event=ToldToEnd, Thread=lambda **_: SimpleNamespace(start=lambda: None)))
    worker.serve_worker(PathsConfig(), TrackingConfig(), TrainConfig(), "w", 0, said.append)
    assert "cannot be cancelled and are killed" in said[-1] and "Connection refused" in said[-1]
    assert signals == [pool_worker.CLOSE], "it takes no more"
    assert stopped == [service]


def test_a_closed_worker_takes_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def take(_: Any) -> list[str]:
        return ["a flow run"]

    monkeypatch.setattr(pool_worker, "_take", take)
    monkeypatch.setattr(pool_worker, "_closed", False)
    assert asyncio.run(pool_worker.take_unless_closed(None)) == ["a flow run"]  # type: ignore[arg-type]
    pool_worker.close(pool_worker.CLOSE, None)
    assert asyncio.run(pool_worker.take_unless_closed(None)) == []  # type: ignore[arg-type]
    assert capsys.readouterr().out == "takes no more flow runs\n"


def test_draining_waits_for_what_was_being_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[list[UUID]] = [[], [], [uuid4()], []]
    now, told = [0.0], list[str]()

    class Client(Down):
        def __enter__(self) -> "Client":
            return self

        def set_flow_run_state(self, _: UUID, state: Any) -> None:
            told.append(state.name)
            now[0] = 10.0

        def read_flow_run(self, _: UUID) -> Any:
            return SimpleNamespace(state=Cancelled())

    monkeypatch.setattr(worker, "flow_runs_below", lambda _: looks.pop(0))
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: Client())
    drain([1], 60.0, told.append)
    assert told == ["Cancelling"]
    assert looks == []


def test_states_are_looked_at_again_after_whatever_could_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [ObjectNotFound(http_exc=KeyError()), httpx.ConnectError("refused"), ServiceError("no MLflow")]
    passes, said = [False, False, False, True], list[str]()

    def reconcile_here(*_: Any) -> list[Any]:
        if errors:
            raise errors.pop(0)
        return []

    monkeypatch.setattr("flows.reconcile.reconcile_here", reconcile_here)
    correct = partial(worker.reconcile_and_say, PathsConfig(), TrackingConfig(), frozenset(), said.append)
    worker._keep_states_true(correct, SimpleNamespace(wait=lambda _: passes.pop(0)))  # type: ignore[arg-type]
    assert len(said) == 3 and all(line.startswith("states cannot be compared now: ") for line in said)
    assert passes == []
