"""The modules of docs/core.md play, learn and measure with the packages that the page lists, and without all others."""

import re
import subprocess
import venv
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.root import ROOT

PAGE = (ROOT / "docs" / "core.md").read_text(encoding="utf-8")
MODULES = [f"slmsearch.{path.replace('/', '.')}" for path in re.findall(r"`(?!flows/|tests/)([a-z_]+(?:/[a-z_]+)+)\.py`", PAGE)]
PACKAGES = re.findall(r"[\w-]+", re.findall(r"^pip install -c constraints\.txt ((?:.*\\\n)*.*)$", PAGE, re.MULTILINE)[0])
"""Arguments of the command that installs the packages of the core."""


def test_the_page_lists_the_groups_of_pyproject() -> None:
    core, *_ = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("# The core")[2].split("# A folder of documents")
    assert sorted(PACKAGES) == sorted(re.findall(r'^ +"([\w-]+)', core, re.MULTILINE))


def with_requirements(names: Iterable[str]) -> set[str]:
    """Return the names of installed packages and of everything that they require here."""
    waiting, found = [Requirement(name) for name in names], set[str]()
    seen = set[str]()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        try:
            required = distribution(wanted.name).requires or []
        except PackageNotFoundError:
            continue  # torch asks for CUDA, which its build for CPUs does not bring
        found.add(wanted.name)
        for requirement in map(Requirement, required):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                waiting.append(requirement)
    return found


def make_environment(folder: Path, names: Iterable[str]) -> Path:
    """Make an environment of links to installed packages, with this checkout beside them; return its interpreter."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "checkout.pth").write_text(f"{ROOT}\n")
    for name in names:
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(installed.locate_file(top)))
    return folder / "bin" / "python"


def test_the_core_needs_no_other_package(tmp_path: Path) -> None:
    assert len(MODULES) > 40 and "trl" in PACKAGES
    python = make_environment(tmp_path / "thin", with_requirements(PACKAGES))
    code = (
        f"import importlib, runpy\nfor name in {MODULES!r}: importlib.import_module(name)\n"
        f"for name in ('play', 'evaluate'): runpy.run_path(f'{ROOT}/examples/{{name}}.py')"
    )
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("answer ") == 3 and "inconclusive" in done.stdout
