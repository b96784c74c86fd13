"""What the installer is run with; a stand-in takes its place and writes down what it saw."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slmsearch.artifacts import packages
from slmsearch.artifacts.packages import unpack_package, with_uv_names
from slmsearch.errors import ServiceError

INSTALLER = """#!{python}
import json, os, pathlib, sys
seen = {{"folder": os.getcwd(), "out": sys.argv[sys.argv.index("--target") + 1], "links": os.environ.get("UV_FIND_LINKS")}}
pathlib.Path({seen!r}).write_text(json.dumps(seen))
sys.exit("error: " + pathlib.Path(sys.argv[-1]).read_text())
"""


def test_it_runs_outside_the_folder_in_which_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    (project / "wheels").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[tool.uv]\nconstraint-dependencies = ["x>=99"]\n')
    monkeypatch.chdir(project)
    monkeypatch.setattr(packages, "PathFinder", SimpleNamespace(find_spec=lambda name: None))  # no pip in this environment
    uv, seen = tmp_path / "uv", tmp_path / "seen.json"
    uv.write_text(INSTALLER.format(python=sys.executable, seen=str(seen)))
    uv.chmod(0o755)
    with pytest.raises(ServiceError, match=r"the package x==1 cannot be fetched \(x==1 --hash=sha256:00"):
        unpack_package("x==1", "00", Path("unpacked"), {"UV": str(uv), "UV_FIND_LINKS": "wheels"})
    found = json.loads(seen.read_text())
    assert not any((folder / "pyproject.toml").exists() for folder in (Path(found["folder"]), *Path(found["folder"]).parents))
    assert (found["out"], found["links"]) == (str(project / "unpacked"), str(project / "wheels"))
    assert {path.name for path in project.iterdir()} == {"pyproject.toml", "wheels"}


def test_folders_of_wheels_become_absolute_and_addresses_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels").mkdir()
    named = with_uv_names({"PIP_FIND_LINKS": "wheels https://host/links", "UV_OFFLINE": "1"})
    assert named["PIP_FIND_LINKS"] == f"{tmp_path}/wheels https://host/links"
    assert named["UV_FIND_LINKS"] == f"{tmp_path}/wheels,https://host/links"
    assert with_uv_names({"UV_FIND_LINKS": "gone"})["UV_FIND_LINKS"] == "gone"


def test_looking_for_an_installer_leaves_setuptools_usable() -> None:
    looked = "import os; from slmsearch.artifacts.packages import find_installer; find_installer(os.environ)"
    subprocess.run([sys.executable, "-c", f"{looked}; import setuptools"], check=True)
