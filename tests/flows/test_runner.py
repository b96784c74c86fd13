from pathlib import Path

import pytest

from flows.look import where_to_look
from flows.runner import FLOWS, _as_error
from flows.settings import find_project_root
from flows.up import POINTER_MARK, _may_replace
from slmsearch import errors
from slmsearch.config import PathsConfig, RunConfig, TrackingConfig
from slmsearch.report.tables import Table

RESULT = {"mlflow_experiment_id": "1", "mlflow_run_id": "m", "flow_run_id": "f", "before": {}}


@pytest.mark.parametrize(
    ("message", "kind", "told"),
    [
        ("Failed: Flow run encountered an exception: ModelError: no model at 'x'", errors.ModelError, "no model at 'x'"),
        ("Failed: Flow run encountered an exception: ValidationFailed: q7 is wrong", errors.CorpusError, "q7 is wrong"),
        ("Crashed: Flow run infrastructure exited with non-zero status code -9.", errors.ServiceError, "status code -9"),
    ],
)
def test_a_failed_flow_run_raises_what_ended_it(message: str, kind: type[Exception], told: str) -> None:
    error = _as_error(message)
    assert type(error) is kind
    assert told in str(error)


def test_every_flow_is_where_it_is_said_to_be_and_deployed_from_there() -> None:
    import yaml

    root = find_project_root()
    deployed = yaml.safe_load((root / "deployments" / "prefect.yaml").read_text())["deployments"]
    entrypoints = {found["name"]: found["entrypoint"] for found in deployed}
    assert set(entrypoints) == set(FLOWS) - {"train"}
    for name, entrypoint in entrypoints.items():
        path, _, function = entrypoint.partition(":")
        assert FLOWS[name] == f"{path.removesuffix('.py').replace('/', '.')}:{function}"
        assert f"def {function}(" in (root / path).read_text()
        assert f'@flow(name="{name}"' in (root / path).read_text()
    assert {found["work_pool"]["name"] for found in deployed} == {"gpu"}
    nightly = next(found for found in deployed if found["name"] == "evaluate")["schedules"]
    assert nightly[0]["cron"]
    assert nightly[0]["timezone"]


def test_where_to_look_names_commands_that_work_without_a_server(tmp_path: Path) -> None:
    config = RunConfig(paths=PathsConfig(data_dir=str(tmp_path), mlruns_dir=str(tmp_path / "mlruns")))
    told = where_to_look(config, RESULT)
    assert "http://127.0.0.1:5000/#/experiments/1/runs/m" in told
    assert f"mlflow server --backend-store-uri sqlite:///{tmp_path}/mlruns/mlflow.db" in told
    assert "http://127.0.0.1:4200/runs/flow-run/f" in told
    assert "latest.json" in told
    served = config.model_copy(update={"tracking": TrackingConfig(uri="https://mlflow.example/")})
    assert "https://mlflow.example/#/experiments/1/runs/m" in where_to_look(served, RESULT)


def test_only_a_pointer_of_ours_to_nowhere_is_replaced(tmp_path: Path) -> None:
    pointer = tmp_path / "prefect.toml"
    assert _may_replace(pointer)
    pointer.write_text('[api]\nurl = "http://127.0.0.1:9/api"\n')
    assert not _may_replace(pointer), "the user's own"
    pointer.write_text(f'{POINTER_MARK}\n[api]\nurl = "http://127.0.0.1:9/api"\n')
    assert _may_replace(pointer)


def test_a_turned_table_has_policies_as_columns() -> None:
    from flows.text import turned

    assert turned(Table(("policy", "n", "F1"), (("a", "1", "2"), ("b", "3", "4")))) == Table(
        ("policy", "a", "b"), (("n", "1", "3"), ("F1", "2", "4"))
    )
