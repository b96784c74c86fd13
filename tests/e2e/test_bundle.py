"""A bundle, from here to a machine without a network and its results back: real wheels, a real environment that holds torch alone."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.flows.fakes import write_corpus
from tests.root import ROOT
from tests.zoo.models import DEFAULT, make_model

TIMEOUT_S = 900
MAX_MB = 60
NODE = Path(__file__).with_name("gpu-node.txt")
"""A GPU node: Python 3.12, an older torch and transformers, a newer numpy, neither PEFT nor datasets."""
pytestmark = [pytest.mark.bundle, pytest.mark.timeout(3 * TIMEOUT_S)]
SMALL = {
    "policy.device": "cpu",
    "policy.dtype": "float32",
    "searcher.max_turn_tokens": 48,
    "searcher.max_turns": 2,
    "searcher.max_episode_tokens": 320,
    "train.steps": 2,
    "train.preflight": "record",
    "train.questions_per_step": 2,
    "train.group_size": 2,
    "train.accumulation": 1,
    "train.monitor.held_out": 0,
    "train.cpu_threads": 1,
    "reward.kind": "random",
    "evaluate.limit": 2,
    "evaluate.baselines": '["random"]',
}
"""Chance as the reward: random weights earn nothing else that differs within a group."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder on the disk of the checkout: in memory it would take gigabytes."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bundle-", dir=cache) as folder:
        yield Path(folder)


def variables(**more: str) -> dict[str, str]:
    """Return the environment of a command, with nothing of this test session's."""
    ours = ("SLMSEARCH_", "PREFECT_", "MLFLOW_", "TESTS_", "PYTHON", "VIRTUAL_ENV", "HF_", "TRANSFORMERS_")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(ours)}, **more}


def slmsearch(folder: Path, *words: object) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("slmsearch")), *map(str, words), "--json"]
    ended = subprocess.run(command, cwd=folder, env=variables(), capture_output=True, text=True, timeout=TIMEOUT_S)
    if "Failed to fetch" in ended.stderr:  # what else goes wrong with packages is a fault
        pytest.skip(f"the bundle's packages cannot be fetched: {ended.stderr.strip().splitlines()[-1]}")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert isinstance(result, dict)
    return result


def torch_alone(folder: Path) -> tuple[Path, dict[str, str]]:
    """Make an environment that holds this environment's torch and what torch needs; return its Python and versions by name."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, env=variables())
    python = folder / "bin" / "python"
    site = Path(
        subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    versions, waiting = dict[str, str](), ["torch"]
    while waiting:
        name = waiting.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:  # a requirement for another platform
            continue
        if canonicalize_name(name) in versions:
            continue
        versions[canonicalize_name(name)] = found.version
        for top in {file.parts[0] for file in found.files or () if ".." not in file.parts}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))))
        wanted = (Requirement(line) for line in found.requires or ())
        waiting += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return python, versions


@pytest.fixture(scope="module")
def machine(place: Path) -> tuple[Path, Path]:
    """The Python of a machine that holds torch alone, and its target file."""
    python, versions = torch_alone(place / "machine")
    target = place / "target.txt"
    lines = [f"python {sys.version_info[0]}.{sys.version_info[1]}", *(f"{name}=={version}" for name, version in versions.items())]
    target.write_text("\n".join(lines) + "\n")
    return python, target


@pytest.fixture(scope="module")
def bundle(place: Path, machine: tuple[Path, Path]) -> Path:
    """A bundle for that machine, with a model of a real shape, in archives."""
    model, corpus = make_model(DEFAULT, place / "model"), write_corpus(place / "corpus")
    files = {"policy.model": model, "corpus.pages": corpus["pages"], "corpus.questions": corpus["questions"]}
    flags = [f"--{name}={value}" for name, value in {**SMALL, **files}.items()]
    made = slmsearch(place, "bundle", "--target", machine[1].name, "--out", "bundle", "--max-mb", MAX_MB, *flags)
    assert "jinja2" in made["used"]  # torch needs it, and it is there
    assert "torch" not in made["carried"] and not [name for name in made["carried"] if name.startswith("nvidia")]
    shutil.rmtree(place / "model")
    shutil.rmtree(place / "corpus")
    return place / "bundle"


def run_sh(bundle: Path, python: Path, *words: str) -> tuple[int, str]:
    process = start_run_sh(bundle, python, *words)
    _, said = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, said


def start_run_sh(bundle: Path, python: Path, *words: str) -> "subprocess.Popen[str]":
    """Start `run.sh` as on a machine whose every way to a network is closed."""
    closed = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    closed |= {"no_proxy": "127.0.0.1,localhost", "PYTHON": str(python), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([str(bundle / "run.sh"), *words], cwd="/", env=variables(**closed), stderr=subprocess.PIPE, text=True)


def test_from_archives_to_a_trained_adapter_and_its_results_back(place: Path, machine: tuple[Path, Path], bundle: Path) -> None:
    assert all(path.stat().st_size <= MAX_MB * 1_000_000 for path in bundle.iterdir())
    assert len(list(bundle.glob("slmsearch-*.tar"))) > 1
    code, said = run_sh(bundle, machine[0], "--seconds", "1")
    assert (code, said.splitlines()[-1].split(" ", 1)[1]) == (75, "time limit reached; run it again to resume"), said
    stopped = start_run_sh(bundle, machine[0])
    assert stopped.stderr is not None
    assert any("build-index" in line for line in stopped.stderr)
    assert run_sh(bundle, machine[0]) == (3, f"run.sh: another run works in {bundle / 'home'}; wait for it, or stop it\n")
    stopped.terminate()
    stopped.stderr.read()
    assert stopped.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    with tarfile.open(next(bundle.glob("results-*.tar.gz"))) as tar:
        assert "mlruns/mlflow.db" in tar.getnames()  # what there was by then
    code, said = run_sh(bundle, machine[0])  # and nothing of that one is left, which would hold the folder
    assert code == 0, said
    assert "installing" not in said  # that was done
    (archive,) = bundle.glob("results-*.tar.gz")
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert [name for name in names if name.endswith("adapter/adapter_model.safetensors")]

    home = place / "home"
    home.mkdir()
    imported = slmsearch(home, "bundle", "import", archive)
    assert imported["torch"] == distribution("torch").version or imported["torch"].startswith(distribution("torch").version)
    assert imported["gpu_check"] == "no CUDA device here"
    again = slmsearch(home, "bundle", "import", archive)
    assert again["run_id"] == imported["run_id"] and again["new"] == []

    client = MlflowClient(f"sqlite:///{home / 'mlruns' / 'mlflow.db'}")
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    named = {run.info.run_name: run for run in runs}
    root = next(run for run in runs if run.info.run_id == imported["run_id"])
    assert root.info.status == "FINISHED" and root.data.params["machine"] == imported["machine"]
    assert {"logs", "results.json"} <= {item.path for item in client.list_artifacts(root.info.run_id)}
    train = named["train"]
    history = client.get_metric_history(train.info.run_id, "reward/mean")
    assert [point.step for point in history] == [1, 2]
    assert "adapter/adapter_model.safetensors" in {item.path for item in client.list_artifacts(train.info.run_id, "adapter")}
    assert all(run.data.tags["slmsearch.machine"] == imported["machine"] for run in runs)
    assert {run.info.status for run in runs} <= {"FINISHED", "KILLED"}


def test_a_gpu_node_is_resolved_and_archived(place: Path) -> None:
    out = place / "node"
    made = slmsearch(place, "bundle", "--target", NODE, "--out", out, "--max-mb", MAX_MB)
    assert made["used"]["numpy"] == "2.5.2"
    assert made["shadowed"] == {"transformers": "5.17.0"} and made["carried"]["transformers"].startswith("5.24.")
    assert {"peft", "trl", "datasets", "pip"} <= set(made["carried"])
    assert "torch" not in made["carried"] and "triton" not in made["carried"]
    assert all(path.stat().st_size <= MAX_MB * 1_000_000 for path in out.iterdir())
    wheels = [file["path"] for file in json.loads((out / "bundle.json").read_text())["files"] if file["path"].startswith("wheels/")]
    assert len(wheels) == len(made["carried"]) + 1  # and our own
    assert not [wheel for wheel in wheels if "cp311-cp311" in wheel]
