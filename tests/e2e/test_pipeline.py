"""The whole pipeline with nothing replaced: killed in the middle of training, run again, run once more."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from slmsearch.evaluate.store import load_evaluation
from slmsearch.http_client import answers
from slmsearch.processes.ports import free_port
from tests.root import ROOT

COMMAND = [sys.executable, "-m", "flows", "run", "train-and-eval", "--json", "--config", "quick"]
SETTINGS = ["--corpus.world.pages", "60", "--train.epochs", "2"]
"""Six steps, a checkpoint after each."""
WAIT_SECONDS = 400


def wait_for(happened: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not happened():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


def run(environment: dict[str, str]) -> tuple[dict[str, object], str]:
    done = subprocess.run([*COMMAND, *SETTINGS], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result, done.stderr


def test_a_killed_run_is_gone_on_with_and_a_repeated_one_is_looked_up(
    isolated_environment: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "killed.log"
    with log.open("wb") as file:
        first = subprocess.Popen([*COMMAND, *SETTINGS], cwd=ROOT, env=environment, stdout=file, stderr=file)
    training = isolated_environment / "data" / "training"
    wait_for(lambda: any(len(lines(path)) >= 2 for path in training.glob("*/steps.jsonl")), first, log)
    family = psutil.Process(first.pid).children(recursive=True)
    first.send_signal(signal.SIGKILL)
    first.wait()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive, "server and training end with the process that started them"

    second, _ = run(environment)
    latest = json.loads((isolated_environment / "mlruns" / "latest.json").read_text())
    assert latest == second
    assert second["n"] == 3
    assert second["decision"] == "inconclusive"

    third, shown = run(environment)
    for task in ("validate-", "build-index-", "evaluate-untrained", "evaluate-random", "evaluate-retrieve-then-answer"):
        assert any(task in line and "Cached" in line for line in shown.splitlines()), f"{task} is looked up\n{shown}"
    assert third["training"] == second["training"]
    assert {**third["after"], "time/episode_s": 0, "by": 0} == {**second["after"], "time/episode_s": 0, "by": 0}  # type: ignore[dict-item]

    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{isolated_environment}/mlruns/mlflow.db")
    experiment = client.get_experiment_by_name("slmsearch")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
    assert {found.info.status for found in runs} == {"FINISHED"}
    parents = [found.info.run_id for found in runs if found.info.run_name.startswith("train-and-eval ")]
    assert parents == [second["mlflow_run_id"], third["mlflow_run_id"]], "the second run went on in that of the killed one"
    trained = [found.info.run_id for found in runs if found.info.run_name == "train"]
    steps = [[point.step for point in client.get_metric_history(run_id, "reward/mean")] for run_id in trained]
    assert steps == [[1, 2, 3, 4, 5, 6]] * 2, "no point is missing and none is there twice"
    [version] = client.search_model_versions("name = 'slmsearch-searcher'")
    model = client.get_logged_model(version.source.removeprefix("models:/"))
    measured = {metric.key: metric.value for metric in model.metrics}
    assert measured["answer/exact_match"] == second["after"]["answer/exact_match"] and model.source_run_id == version.run_id
    check_that_mlflow_serves_it(isolated_environment, environment, second, tmp_path / "serve.log")
    check_that_mlflow_scores_it(isolated_environment, environment, second)
    check_two_models_in_a_process(isolated_environment, environment, second, tmp_path)


def check_that_mlflow_serves_it(home: Path, environment: dict[str, str], summary: dict[str, Any], log: Path) -> None:
    """The stock command answers as the evaluation after the training did."""
    rows = load_evaluation(home / "data" / "evals", summary["lineage"]["eval_key_after"]).rows
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/slmsearch-searcher/1", "--port", str(port)]
    place = place_of(home)
    place["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"  # MLflow looks there for uvicorn
    with log.open("wb") as file:
        server = subprocess.Popen(
            [*command, "--env-manager", "local"], cwd=home, env={**environment, **place}, stdout=file, stderr=file, start_new_session=True
        )
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/ping"), server, log)
        asked = {"dataframe_records": [{"question": row.question} for row in rows]}
        reply = httpx.post(f"http://127.0.0.1:{port}/invocations", json=asked, timeout=WAIT_SECONDS, trust_env=False)
        told = reply.json()["predictions"]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()
    assert [(one["answer"], one["stop_reason"]) for one in told] == [(row.answer, row.stop_reason) for row in rows]
    assert all({"section_id", "page_id"} <= source.keys() for one in told for source in json.loads(one["sources"]))


def check_that_mlflow_scores_it(home: Path, environment: dict[str, str], summary: dict[str, Any]) -> None:
    """The example, on the data set that the evaluation left, finds the exact match of the product's own table."""
    from mlflow import MlflowClient

    client = MlflowClient(place_of(home)["MLFLOW_TRACKING_URI"])
    runs = client.search_runs(["1"], f"tags.`slmsearch.eval_key` = '{summary['lineage']['eval_key_after']}'")
    (name,) = {one.dataset.name for run in runs for one in run.inputs.dataset_inputs if one.dataset.name != "corpus"}
    command = [sys.executable, str(ROOT / "examples" / "score_in_mlflow.py"), "models:/slmsearch-searcher/1", name]
    done = subprocess.run(command, cwd=home, env={**environment, **place_of(home)}, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) == pytest.approx(summary["after"]["answer/exact_match"])


TWO = """
import sys
import mlflow, pandas as pd, yaml
from pathlib import Path

first, second = map(Path, sys.argv[1:3])
settings = yaml.safe_load((second / "settings.yaml").read_text())
settings["searcher"]["max_turns"] = 1
(second / "settings.yaml").write_text(yaml.safe_dump(settings))
asked = pd.DataFrame({"question": sys.argv[3:]})
models = [mlflow.pyfunc.load_model(str(folder)) for folder in (first, second)]
for model in (models[0], models[1], models[0]):
    print(*model.predict(asked)["stop_reason"])
"""


def check_two_models_in_a_process(home: Path, environment: dict[str, str], summary: dict[str, Any], folder: Path) -> None:
    """Each answers as itself, also where the data directory has been moved."""
    from mlflow import MlflowClient

    rows = load_evaluation(home / "data" / "evals", summary["lineage"]["eval_key_after"]).rows
    folders = [folder / "first", folder / "second"]
    stored = MlflowClient(place_of(home)["MLFLOW_TRACKING_URI"]).get_model_version_download_uri("slmsearch-searcher", "1")
    for place in folders:
        shutil.copytree(stored.removeprefix("file://"), place)
    (home / "data").rename(home / "moved")
    known = {**environment, **place_of(home), "SLMSEARCH_PATHS__DATA_DIR": str(home / "moved")}
    command = [sys.executable, "-c", TWO, *map(str, folders), *(row.question for row in rows)]
    done = subprocess.run(command, cwd=home, env=known, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    first, second, again = done.stdout.splitlines()[-3:]
    assert first == again == " ".join(row.stop_reason for row in rows) and second != first


def place_of(home: Path) -> dict[str, str]:
    """Variables that name the store to MLflow, and the code."""
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlruns/mlflow.db", "PYTHONPATH": str(ROOT)}
