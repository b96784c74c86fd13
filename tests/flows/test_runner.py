import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from flows.ops import runner, up
from flows.ops.runner import FLOWS, PARTS, as_error
from flows.ops.up import POINTER_MARK
from flows.ops.worker import SHARD_QUEUE
from flows.runtime.api import UpRecord
from flows.runtime.links import where_to_look
from slmsearch import errors
from slmsearch.config import PathsConfig, RunConfig, TrackingConfig
from slmsearch.report.tables import Table
from tests.root import ROOT

HEAVY = {"torch", "transformers", "trl", "chromadb", "great_expectations"}
RESULT = {"mlflow_experiment_id": "1", "mlflow_run_id": "m", "flow_run_id": "f", "before": {}}


@pytest.mark.parametrize(
    ("message", "kind", "told"),
    [
        ("Failed: Flow run encountered an exception: ModelError: no model at 'x'", errors.ModelError, "no model at 'x'"),
        ("Failed: Flow run encountered an exception: InvalidDataError: q7 is wrong", errors.InvalidDataError, "q7 is wrong"),
        ("Failed: Flow run encountered an exception: NotWorthItError: not trained: GRPO", errors.NotWorthItError, "not trained: GRPO"),
        ("Crashed: Flow run infrastructure exited with non-zero status code -9.", errors.ServiceError, "status code -9"),
    ],
)
def test_a_failed_flow_run_raises_what_ended_it(message: str, kind: type[Exception], told: str) -> None:
    error = as_error(message)
    assert type(error) is kind
    assert told in str(error)


def test_a_server_that_goes_away_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise httpx.ConnectError("connection refused")

    monkeypatch.setattr("prefect.deployments.run_deployment", lambda *_, **__: SimpleNamespace(name="brave-fox", id="1"))
    monkeypatch.setattr(runner, "_follow", away)
    with pytest.raises(errors.ServiceError, match=r"went away \(connection refused\) while flow run brave-fox ran"):
        runner._submit_flow("validate", {}, print)


def test_every_flow_is_where_it_is_said_to_be_and_deployed_from_there() -> None:
    import yaml

    import slmsearch_flows

    deployed = yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())["deployments"]
    entrypoints = {found["name"]: found["entrypoint"] for found in deployed}
    known = {**FLOWS, **PARTS}
    assert set(entrypoints) == set(known) - {"train"}
    for name, entrypoint in entrypoints.items():
        found = getattr(slmsearch_flows, entrypoint.removeprefix("slmsearch_flows."))
        assert known[name] == f"{found.fn.__module__}:{found.fn.__name__}"
        assert found.name == name
    assert {found["work_pool"]["name"] for found in deployed} == {"gpu"}
    queues = {found["name"]: found["work_pool"].get("work_queue_name") for found in deployed}
    assert {name for name, queue in queues.items() if queue} == set(PARTS)
    assert queues["evaluate-shard"] == SHARD_QUEUE
    scheduled = {found["name"]: found["schedules"][0] for found in deployed if "schedules" in found}
    assert set(scheduled) == {"nightly", "housekeeping", "reconcile", "refresh"}
    assert all(schedule["cron"] and schedule["timezone"] for schedule in scheduled.values())
    assert next(found for found in deployed if found["name"] == "housekeeping")["parameters"]["apply"] is False


def test_no_deployed_flow_loads_torch_before_it_runs() -> None:
    """Deploying imports them all, and so does every flow run before its first task."""
    modules = sorted({place.partition(":")[0] for place in (*FLOWS.values(), *PARTS.values())})
    code = f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\nprint({HEAVY!r} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "set()"


def test_where_to_look_names_commands_that_work_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(paths=PathsConfig(data_dir=str(tmp_path), mlruns_dir=str(tmp_path / "mlruns")))
    told = where_to_look(config.paths, config.tracking, RESULT)
    assert "http://127.0.0.1:5000/#/experiments/1/runs/m" in told
    assert f"mlflow server --backend-store-uri sqlite:///{tmp_path}/mlruns/mlflow.db" in told
    assert "http://127.0.0.1:4200/runs/flow-run/f" in told
    assert "latest.json" in told
    served = config.model_copy(update={"tracking": TrackingConfig(uri="https://mlflow.example/")})
    assert "https://mlflow.example/#/experiments/1/runs/m" in where_to_look(served.paths, served.tracking, RESULT)
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    told = where_to_look(served.paths, served.tracking, RESULT)
    assert "Prefect  https://prefect.example/runs/flow-run/f" in told and "slmsearch up" not in told


def test_only_a_pointer_of_ours_to_nowhere_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pointer, record = tmp_path / "prefect.toml", UpRecord(os.getpid(), "http://127.0.0.1:8/api", "ui", "mlflow")
    own = '[api]\nurl = "http://127.0.0.1:9/api"\n'
    for before, taken in (("", True), (own, False), (f"{POINTER_MARK}\n{own}", True)):
        pointer.unlink(missing_ok=True)
        if before:
            pointer.write_text(before)
        told: list[str] = []
        with up._announced(PathsConfig(data_dir=str(tmp_path)), record, "user:password", told.append):
            assert bool(told) is not taken
            assert ("127.0.0.1:8" in pointer.read_text()) is taken
        assert pointer.exists() is not taken, "the user's own stays"


def test_a_turned_table_has_policies_as_columns() -> None:
    from flows.cli.text import turned

    assert turned(Table(("policy", "n", "F1"), (("a", "1", "2"), ("b", "3", "4")))) == Table(
        ("policy", "a", "b"), (("n", "1", "3"), ("F1", "2", "4"))
    )
