"""Every check fails when its cause is planted, and only then."""

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from flows.ops.doctor.checks import CHECKS, Facts, Listener, PrefectFacts, WatchedRuns, examine, render

VERSIONS = {"fastapi": "0.150.0", "prefect": "3.9.1", "chromadb": "1.5.9", "trl": "1.16.0", "transformers": "5.24.0", "mlflow": "3.17.2"}
BEAT = "prefect.flow-run.heartbeat"
API = PrefectFacts(
    "http://127.0.0.1:4200/api",
    paused=False,
    online_workers=1,
    taken_slots={"gpu:here:0": 0},
    watches=(WatchedRuns("zombies", (BEAT,), 90.0, True),),
    scheduled=5,
)
SOUND = Facts(
    packages=VERSIONS,
    environment={"PREFECT_RUNNER_HEARTBEAT_FREQUENCY": "30"},
    free_bytes={"data": 50 << 30},
    listeners=(Listener("prefect", "127.0.0.1", 4200, 1, False), Listener("mlflow", "::1", 5000, 2, False)),
    prefect=API,
    chroma_server=("http://127.0.0.1:8000", "1.5.9"),
)


def with_packages(**changed: str) -> Facts:
    return replace(SOUND, packages={**VERSIONS, **{name.replace("_", "-"): found for name, found in changed.items()}})


def with_variables(**added: str) -> Facts:
    return replace(SOUND, environment={**SOUND.environment, **added})


def with_api(**changed: object) -> Facts:
    return replace(SOUND, prefect=replace(API, **changed))  # type: ignore[arg-type]


PLANTED = {
    "fastapi that kills prefect": (with_packages(fastapi="0.155.0", prefect="3.8.8"), "error", "fastapi 0.155.0 beside prefect 3.8.8"),
    "fastapi untried": (with_packages(fastapi="0.152.1", prefect="3.8.8"), "warning", "fastapi 0.152.1"),
    "prefect without password": (with_packages(prefect="3.8.2"), "error", "prefect 3.8.2"),
    "great expectations of old": (
        with_packages(great_expectations="1.24.1", prefect_great_expectations="0.2"), "warning", "prefect-great-expectations"),
    "chroma of old": (replace(with_packages(chromadb="1.4.0"), chroma_server=None), "error", "chromadb 1.4.0"),
    "setuptools and vllm": (with_packages(setuptools="81.0", vllm="0.30.1"), "warning", "setuptools 81.0"),
    "transformers and trl": (with_packages(transformers="5.25.0"), "error", "transformers 5.25.0"),
    "trl": (with_packages(trl="1.17.0"), "error", "trl 1.17.0"),
    "mlflow": (with_packages(mlflow="3.16.0"), "error", "mlflow 3.16.0"),
    "chroma skew": (replace(SOUND, chroma_server=("http://h:8000", "1.5.2")), "error", "'_type'"),
    "chroma down": (replace(SOUND, chroma_server=("http://h:8000", "")), "warning", "no Chroma server answers"),
    "open prefect": (replace(SOUND, listeners=(Listener("prefect", "0.0.0.0", 4200, 7, False),)), "error", "lets anybody in"),
    "open mlflow": (replace(SOUND, listeners=(Listener("mlflow", "::", 5000, 7, False),)), "error", "mlflow (process 7)"),
    "open chroma": (replace(SOUND, listeners=(Listener("chroma", "192.168.1.4", 8000, 7, False),)), "error", "chroma"),
    "open model": (replace(SOUND, listeners=(Listener("model", "0.0.0.0", 11434, 7, False),)), "error", "model"),
    "key over password": (with_variables(PREFECT_API_KEY="k", PREFECT_API_AUTH_STRING="a"), "error", "PREFECT_API_KEY"),
    "pickle": (with_variables(MLFLOW_ALLOW_PICKLE_DESERIALIZATION="true"), "warning", "PICKLE"),
    "auto install": (
        with_variables(PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES="true"), "warning", "AUTO_INSTALL"),
    "leases in memory": (
        with_variables(PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE="memory"), "warning", "LEASE"),
    "prefect named and down": (
        replace(with_variables(PREFECT_API_URL="http://h:4200/api"), prefect=None), "error", "no Prefect API answers at http://h:4200/api"),
    "pool missing": (with_api(paused=None), "error", "is missing"),
    "pool paused": (with_api(paused=True), "error", "is paused"),
    "pool dead": (with_api(online_workers=0), "error", "no worker of the pool"),
    "slot leaked": (with_api(taken_slots={"gpu:here:0": 1}), "warning", "no flow run is running"),
    "window too short": (with_api(watches=(WatchedRuns("zombies", (BEAT,), 60.0, True),)), "error", "gives up after 60 s"),
    "window of the docs": (replace(SOUND, environment={}), "error", "gives up after 90 s and heartbeats come every 180 s"),
    "window by wildcard": (with_api(watches=(WatchedRuns("zombies", ("prefect.flow-run.*",), 60.0, True),)), "error", "gives up"),
    "nobody watches": (with_api(watches=()), "warning", "nothing watches heartbeats"),
    "watch asleep": (with_api(watches=(WatchedRuns("zombies", (BEAT,), 90.0, False),)), "warning", "switched off"),
    "disk full": (replace(SOUND, free_bytes={"data": 1 << 28}), "error", "data has 0.2 GB free"),
    "disk low": (replace(SOUND, free_bytes={"data": 2 << 30}), "warning", "data has 2.0 GB free"),
    "read-only": (replace(SOUND, unwritable=("data",)), "error", "cannot be written to"),
    "open": (replace(SOUND, entered_by_others=("data",)), "warning", "other users of this machine may read data"),
    "half-written": (replace(SOUND, abandoned=(Path(".tmp-x-1"),)), "warning", "half-written"),
    "dead record": (replace(SOUND, dead_records=(Path("up.json"),)), "warning", "its process is gone"),
    "orphans": (replace(SOUND, orphans=2), "warning", "2 MLflow runs"),
    "not seen": (replace(SOUND, damaged=("MLflow at x: no",)), "warning", "MLflow at x"),
}  # fmt: skip


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_found_and_nothing_else(cause: str) -> None:
    facts, severity, text = PLANTED[cause]
    found = [finding for finding in examine(facts) if text in finding.message]
    assert [finding.severity for finding in found] == [severity]
    assert all(finding.remedy and "\n" not in finding.describe() for finding in found)
    assert len(examine(facts)) == 1


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert examine(SOUND) == []
    assert render([], []) == f"{len(CHECKS)} checks: 0 errors, 0 warnings"


def test_a_slot_of_a_living_run_is_no_leak() -> None:
    assert examine(with_api(taken_slots={"gpu:here:0": 1}, live_runs=1)) == []


def test_a_guarded_server_may_be_open() -> None:
    assert examine(replace(SOUND, listeners=(Listener("prefect", "0.0.0.0", 4200, 7, True),))) == []


def test_without_deployments_no_pool_is_asked_for() -> None:
    assert examine(with_api(paused=None, scheduled=0)) == []


def test_the_worst_comes_first() -> None:
    facts = replace(SOUND, orphans=1, unwritable=("data",))
    assert [finding.severity for finding in examine(facts)] == ["error", "warning"]
    assert render(examine(facts), ["removed x"]).splitlines()[0] == "fixed    removed x"


def test_the_pins_of_the_project_are_no_known_bad_pair() -> None:
    assert version("prefect") == VERSIONS["prefect"] and version("trl").startswith("1.16")
