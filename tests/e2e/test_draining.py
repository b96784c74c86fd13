"""A real worker of Prefect's that is told to take no more."""

from pathlib import Path

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.settings import PREFECT_API_URL

from flows.ops.pool_worker import CLOSED
from flows.runtime.servers import WORKER, close_service, start_service
from slmsearch.processes.child import ChildProcess
from tests.e2e.stand import wait_for

pytestmark = pytest.mark.usefixtures("prefect_harness")
POOL = "drained"
FLOW = "from prefect import flow\n\n@flow\ndef play():\n    return 1\n"


def start(name: str, home: Path) -> ChildProcess:
    process_environment = {
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),
        "PREFECT_WORKER_QUERY_SECONDS": "0.2",
        "PREFECT_HOME": str(home),
    }
    arguments = [WORKER, "worker", "start", "--pool", POOL, "--type", "process", "--name", name]
    service = start_service(name, arguments, home / f"{name}.log", process_environment)
    wait_for(lambda: "started!" in service.log.read_text(), 120, f"{name} has started", 0.1)
    return service


def test_a_worker_that_is_told_to_take_no_more_leaves_what_is_scheduled_to_others(tmp_path: Path) -> None:
    (tmp_path / "play.py").write_text(FLOW)
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        closed = start("closed", tmp_path)
        try:
            close_service(closed)
            wait_for(lambda: CLOSED in closed.log.read_text(), 30, "it has heard", 0.1)
            flow_id = client.create_flow_from_name("play")
            deployment = client.create_deployment(
                flow_id, "play", path=str(tmp_path), entrypoint="play.py:play", work_pool_name=POOL, enforce_parameter_schema=False
            )
            run = client.create_flow_run_from_deployment(deployment)
            other = start("other", tmp_path)  # ten times as long as the first takes to look again
            try:
                wait_for(lambda: (state := client.read_flow_run(run.id).state) and state.is_final(), 120, "it has been played", 0.2)
            finally:
                other.stop()
            state = client.read_flow_run(run.id).state
            assert state is not None and state.is_completed(), other.log.read_text()
            assert str(run.id) in other.log.read_text()
            assert closed.is_alive and str(run.id) not in closed.log.read_text()
            assert not psutil.Process(closed.process.pid).children()
        finally:
            closed.stop()
