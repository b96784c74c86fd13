"""A promotion that waits for a person, with real Prefect servers: approved, refused, unanswered, stopped; a server that dies meanwhile."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.input.run_input import Keyset
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled

from flows.cli.session import Session
from flows.ops import runner
from flows.ops.runner import run_flow
from flows.runtime.api import Api, start_prefect_server
from flows.runtime.servers import wait_until_ready
from flows.stages import approval
from flows.stages.approval import ask_to_approve
from flows.train import train_and_eval
from slmsearch.config import PathsConfig, RunConfig
from slmsearch.errors import ServiceError
from slmsearch.processes.ports import free_port
from tasks import record
from tasks.promotion import find_champion
from tasks.tracking import OWNER, open_tracker
from tests.e2e.stand import wait_for
from tests.flows.fakes import make_config, replace_heavy_parts, shown_artifacts, write_corpus
from tests.flows.test_commands import Invoke, invoke
from tests.root import ROOT

__all__ = ["invoke"]

pytestmark = pytest.mark.timeout(600)
WAIT_SECONDS = 60.0
ASKING = """
from prefect import flow
from flows.stages.approval import ask_to_approve

@flow
def asking():
    return ask_to_approve("Shall it?", 600).model_dump_json()

print(asking())
"""


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval, "POLL_SECONDS", 0.05)


@pytest.fixture
def config(isolated_environment: Path, prefect_harness: None, monkeypatch: pytest.MonkeyPatch, empty_store: Path) -> RunConfig:
    replace_heavy_parts(monkeypatch)
    monkeypatch.setattr("flows.stages.summary.leave_reports", lambda *_: None)
    monkeypatch.setattr(record, "TRACED_EPISODES", 0)
    fewer = {"evaluate": {"baselines": [], "split": "all"}, "control": {"enabled": False}}
    return make_config(isolated_environment, write_corpus(isolated_environment / "corpus"), empty_store, **fewer)


def find_paused(client: SyncPrefectClient) -> FlowRun | None:
    wanted = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PAUSED])))
    return next(iter(client.read_flow_runs(flow_run_filter=wanted)), None)


def is_asked(client: SyncPrefectClient, run: FlowRun) -> bool:
    return any(found.key.endswith("-schema") for found in client.filter_flow_run_input(run.id, "paused", 10, set()))


def when_paused(act: Callable[[SyncPrefectClient, FlowRun], Any]) -> Any:
    """Wait for the flow run that pauses and asks, and do something with it."""
    with get_client(sync_client=True) as client:
        run = wait_for(lambda: find_paused(client), WAIT_SECONDS, "a flow run has paused")
        wait_for(lambda: is_asked(client, run), WAIT_SECONDS, "its page has the form")
        return act(client, run)


def answering(approve: bool, reason: str) -> Callable[[SyncPrefectClient, FlowRun], list[str]]:
    """Answer as the page does, first without a word, which the form refuses; return the keys of the run's artifacts at that time."""

    def act(client: SyncPrefectClient, run: FlowRun) -> list[str]:
        refused = [{}, {"approve": approve}, {"approve": approve, "reason": ""}, {"approve": "perhaps", "reason": "x"}]
        assert [client.resume_flow_run(run.id, wrong).status for wrong in refused] == [SetStateStatus.REJECT] * 4
        shown = [str(found.key) for found in shown_artifacts(run.id)]
        assert client.resume_flow_run(run.id, {"approve": approve, "reason": reason}).status == SetStateStatus.ACCEPT
        return shown

    return act


@flow
def asking(wait_s: float) -> str:
    return ask_to_approve("Shall it?", wait_s).model_dump_json()


@pytest.mark.parametrize("approve", [True, False])
def test_the_answer_decides(config: RunConfig, approve: bool) -> None:
    with ThreadPoolExecutor(1) as pool:
        answered: Future[list[str]] = pool.submit(when_paused, answering(approve, "read the\nwrong  ones "))
        summary = train_and_eval(config.changed({"tracking.approval_s": WAIT_SECONDS}))
        shown = answered.result(WAIT_SECONDS)
    assert "comparison" in shown, "it is shown before anybody is asked"
    champion = find_champion(config.paths, config.tracking)
    if approve:
        assert champion is not None and champion.version == "1"
        assert summary["decision"] == "promote" and str(summary["reason"]).endswith(" Approved: read the wrong ones")
    else:
        assert champion is None
        assert summary["decision"] == "hold" and str(summary["reason"]).endswith(" Not approved: read the wrong ones")
    tracker = open_tracker(config.paths, config.tracking)
    (stage,) = tracker.client.search_runs([tracker.experiment_id], "tags.`slmsearch.stage` = 'approve'")
    assert (stage.data.tags["slmsearch.approved"], stage.data.tags["slmsearch.reason"]) == (str(approve).lower(), "read the wrong ones")


def test_nobody_is_asked_unless_it_is_wanted(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.stages.promotion.ask_to_approve", lambda *_: pytest.fail("asked"))
    assert train_and_eval(config)["decision"] == "promote"


def test_a_time_without_an_answer_is_a_refusal(prefect_harness: None) -> None:
    state = asking(0.2, return_state=True)
    assert json.loads(state.result()) == {"approve": False, "reason": "nobody answered within 0 s"} and state.is_completed()


def test_without_an_answer_the_version_is_held(config: RunConfig) -> None:
    summary = train_and_eval(config.changed({"tracking.approval_s": 0.2}))
    assert summary["decision"] == "hold" and str(summary["reason"]).endswith(" Not approved: nobody answered within 0 s")
    assert find_champion(config.paths, config.tracking) is None


@pytest.mark.parametrize(("given", "waits"), [([], 86_400.0), (["--config", "own.yaml"], 3600.0), (["--tracking.approval_s", "60"], 60.0)])
def test_approve_waits_as_long_as_the_settings_say_or_a_day(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, given: list[str], waits: float
) -> None:
    asked: list[float] = []

    def run(session: Session, *_: object) -> dict[str, object]:
        asked.append(session.config.tracking.approval_s)
        raise ServiceError("enough")

    monkeypatch.setattr(Session, "run", run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text("tracking:\n  approval_s: 3600\n")
    assert invoke("run", "train-and-eval", "--approve", *given)[2] == "slmsearch: enough\n"
    assert asked == [waits]


def test_only_a_flow_that_promotes_needs_somebody_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Api("http://127.0.0.1:9/api", "own", "")
    monkeypatch.setattr(runner, "prefect_api", lambda _: nullcontext(own))
    monkeypatch.setattr(runner, "preflight", lambda *_: None)
    monkeypatch.setattr("flows.reconcile.reconcile_here", lambda *_: pytest.fail("it goes on"))
    config = RunConfig(tracking={"approval_s": 60})  # type: ignore[arg-type]
    with pytest.raises(ServiceError, match="nobody can be asked"):
        runner.run_flow("train-and-eval", config, lambda _: None)
    with pytest.raises(pytest.fail.Exception, match="it goes on"):
        runner.run_flow("validate", config, lambda _: None)


def test_a_run_that_is_stopped_while_it_waits_says_so(prefect_harness: None) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(when_paused, lambda client, run: client.set_flow_run_state(run.id, Cancelled(), force=True))
        with pytest.raises(ServiceError, match="set to Cancelled while it waited"):
            asking(WAIT_SECONDS)


def test_the_waiting_process_is_the_owner_of_the_run(prefect_harness: None) -> None:
    def look(client: SyncPrefectClient, run: FlowRun) -> str:
        owner = wait_for(lambda: client.read_flow_run(run.id).labels.get(OWNER), WAIT_SECONDS, "it is labelled")
        client.resume_flow_run(run.id, {"approve": True, "reason": "x"})
        return str(owner)

    with ThreadPoolExecutor(1) as pool:
        owner = pool.submit(when_paused, look)
        asking(WAIT_SECONDS)
        assert f" {os.getpid()} " in owner.result(WAIT_SECONDS)


def test_a_form_whose_saving_was_cut_off_is_saved_again(prefect_harness: None, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, show = list[str](), approval._show

    def cut_off(client: SyncPrefectClient, run_id: UUID, form: type[approval.Approval], keys: Keyset) -> None:
        saved.append(keys["schema"])
        if len(saved) == 1:
            client.create_flow_run_input(run_id, keys["schema"], "{}")
            raise httpx.ReadError("the server died")
        show(client, run_id, form, keys)

    monkeypatch.setattr(approval, "_show", cut_off)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(when_paused, lambda client, run: wait_for(lambda: len(saved) == 2, WAIT_SECONDS, "it is saved again"))
        answered = pool.submit(when_paused, answering(True, "x"))
        told = asking(WAIT_SECONDS)
        answered.result(WAIT_SECONDS)
    assert json.loads(told) == {"approve": True, "reason": "x"} and len(saved) == 2


def test_a_server_without_pages_asks_nobody(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(ServiceError, match="start `slmsearch up`"):
        run_flow("train-and-eval", config.changed({"tracking.approval_s": 1.0}), lambda _: None)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PathsConfig]:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    yield PathsConfig(data_dir=str(tmp_path / "data"), mlruns_dir=str(tmp_path / "mlruns"))


def test_a_server_that_is_killed_meanwhile_changes_nothing(paths: PathsConfig) -> None:
    port, password = free_port(), "slmsearch:word"
    url = f"http://127.0.0.1:{port}/api"
    environment = {**os.environ, "PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": password, "PREFECT_CLIENT_MAX_RETRIES": "0"}
    with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: password}):
        server = start_prefect_server(paths, port, password, with_ui=False)
        wait_until_ready(server, f"{url}/health")
        asks = subprocess.Popen(
            [sys.executable, "-c", ASKING], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            run_id = when_paused(lambda client, run: run.id)
            server.process.kill()
            server.process.wait()
            assert asks.stderr is not None
            told = list[str]()
            assert any("still waiting for approval" in line for line in asks.stderr if told.append(line) is None), told
            server = start_prefect_server(paths, port, password, with_ui=False)
            wait_until_ready(server, f"{url}/health")
            with get_client(sync_client=True) as client:
                assert client.read_flow_run(run_id).state_type == StateType.PAUSED
                assert client.resume_flow_run(run_id, {"approve": True, "reason": "back"}).status == SetStateStatus.ACCEPT
                out, err = asks.communicate(timeout=300)
                assert json.loads(out.splitlines()[-1]) == {"approve": True, "reason": "back"}, err
                assert client.read_flow_run(run_id).state_type == StateType.COMPLETED
        finally:
            asks.kill()
            server.stop()
