"""What a stranger's clone relies on: pins, the console script, what git keeps, and what a light import must not load."""

import ast
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from slmsearch.models.known import SHIPPED

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
# Written so that this file does not hold what it looks for.
REGISTRY = re.compile(r"py[p]i\.org|python[h]osted\.|npm[j]s\.|[/]simple[/]|download\.py[t]orch")
HEAVY = {
    "accelerate",
    "chromadb",
    "datasets",
    "great_expectations",
    "matplotlib",
    "mlflow",
    "pandas",
    "peft",
    "prefect",
    "scipy",
    "sentence_transformers",
    "torch",
    "transformers",
    "trl",
}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def loaded(code: str) -> set[str]:
    """Run code in a fresh interpreter and return which of the heavy libraries it loaded."""
    code += f"\nimport sys; print('LOADED', *({HEAVY!r} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(result.stdout.rpartition("LOADED")[2].split())


def test_no_file_names_a_package_registry():
    files = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    found = []
    for name in filter(None, files):
        path = ROOT / name
        if path.is_file() and (hit := REGISTRY.search(path.read_bytes().decode(errors="ignore"))):
            found.append(f"{name}: {hit.group()}")
    assert found == []


def test_pins_are_plain_names_and_versions():
    assert [pin for pin in PINS if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)] == []
    names = [pin.partition("==")[0] for pin in PINS]
    assert len(names) == len(set(names))
    assert "torch==2.13.0" in PINS


def test_pins_fit_every_dependency_of_the_package_and_of_dev():
    project = PYPROJECT["project"]
    pinned = dict(pin.split("==") for pin in PINS)
    for text in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), text


def test_every_imported_library_is_a_declared_dependency():
    declared = {canonicalize_name(Requirement(text).name) for text in PYPROJECT["project"]["dependencies"]}
    optional = PYPROJECT["project"]["optional-dependencies"]
    extras = {canonicalize_name(Requirement(text).name) for name in ("gpu", "llamacpp", "mcp", "verifiers") for text in optional[name]}
    own = {"slmsearch", "tasks", "flows"}
    providers = packages_distributions()
    missing = set()
    for path in (path for package in own for path in (ROOT / package).rglob("*.py")):
        for name in imported(path) - own - sys.stdlib_module_names:
            # What only an extra brings is not installed here, so that no provider is known: it goes by its own name.
            if canonicalize_name(name) not in extras and not declared & {
                canonicalize_name(provider) for provider in providers.get(name, [])
            }:
                missing.add(f"{path.relative_to(ROOT)}: {name}")
    assert missing == set()


def imported(path: Path) -> set[str]:
    """Return the top-level names a file imports, deferred imports included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


def test_the_pins_stand_once():
    assert "constraint-dependencies" not in PYPROJECT["tool"]["uv"]


def test_the_console_script_is_the_command_line():
    (script,) = entry_points(group="console_scripts", name="slmsearch")
    from flows.cli.main import main

    assert script.load() is main


def test_help_of_every_command_loads_no_heavy_library():
    code = """
from click.testing import CliRunner
from flows.cli.main import cli
from flows.cli.groups import EXTENSIONS
for arguments in [[], *([name] for name in [*cli.commands, *EXTENSIONS])]:
    result = CliRunner().invoke(cli, [*arguments, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output, result.output
assert cli.commands
"""
    assert loaded(code) == set()


@pytest.mark.parametrize(
    "modules",
    [
        "slmsearch.config, slmsearch.keys, slmsearch.errors, flows.runtime.settings",
        "slmsearch.corpus.sections, slmsearch.corpus.library, slmsearch.corpus.world",
        "slmsearch.environments.searcher.rollout, slmsearch.environments.searcher.reward, slmsearch.judge",
    ],
)
def test_playing_and_grading_loads_no_heavy_library(modules: str):
    assert loaded(f"import {modules}") == set()


def test_the_probe_for_heavy_libraries_sees_them():
    assert loaded("import sys, types; sys.modules['torch'] = types.ModuleType('torch')") == {"torch"}


@pytest.mark.parametrize(
    "path", ["uv.lock", ".cache/x", ".venv/x", "mlruns/mlflow.db", "data/index/CURRENT", "data/corpora/x/pages.jsonl", ".env"]
)
def test_git_ignores_what_commands_write(path: str):
    assert git("check-ignore", path).strip() == path


@pytest.mark.parametrize(
    "path",
    [
        "data/models/tiny-searcher/model.safetensors",
        "data/models/tiny-searcher-clean/config.json",
        "data/models/tiny-planner/model.safetensors",
        "data/models/smollm2-135m-searcher/adapter_model.safetensors",
        "constraints.txt",
    ],
)
def test_git_keeps_what_a_fresh_clone_needs(path: str):
    ignored = subprocess.run(["git", "check-ignore", "--quiet", path], cwd=ROOT, check=False)
    assert ignored.returncode == 1


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_what_is_shipped_is_named_for_every_package(target: str):
    build = PYPROJECT["tool"]["hatch"]["build"]["targets"][target]
    named = [name.lstrip("/") for name in build.get("only-include", build.get("include"))]
    assert [name for name in SHIPPED if not any(fnmatch(f"data/models/{name}", pattern) for pattern in named)] == []


def test_a_wheel_holds_every_file_of_the_packages():
    """Hatchling takes what lies there and git does not ignore; pages, prompts and tables are read from there."""
    packages = PYPROJECT["tool"]["importlinter"]["root_packages"]
    assert set(packages) <= set(PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    ignored = git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", *packages).split("\0")
    assert [name for name in filter(None, ignored) if "__pycache__" not in name] == []


def test_extras_are_installed_from_this_directory():
    """The name is not ours on any index: whoever registers it there would be installed in its place."""
    sources = [
        ROOT / "README.md",
        *(path for top in ("slmsearch", "flows", "tasks", "deployments") for path in (ROOT / top).rglob("*.[pmy]*")),
    ]
    told = [path for path in sources if path.is_file() and re.search(r"slmsearch\[\w+\]", path.read_text(errors="replace"))]
    assert not told
