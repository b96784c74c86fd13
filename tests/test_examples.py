"""The examples run as a stranger runs them, and the library's public names are there and documented."""

import subprocess
import sys
from pathlib import Path

import pytest

import slmsearch
from tests.root import ROOT

EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}


def run_example(name: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES[name]), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300).stdout


def test_a_folder_is_searched(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "boats.md").write_text("# Boats\n\nThe yawl Petrel was built in 1911 at Wexmouth.\n")
    (tmp_path / "notes" / "bread.md").write_text("# Bread\n\nRye rises for nine hours.\n")
    first, *_ = run_example("search", tmp_path, "notes", "which yard built the yawl").splitlines()
    assert "Boats" in first


def test_questions_are_played_turn_by_turn(tmp_path: Path) -> None:
    out = run_example("play", tmp_path)
    assert out.count("answer ") == 3 and "<tool>search_pages(" in out


def test_two_policies_are_compared(tmp_path: Path) -> None:
    assert "inconclusive" in run_example("evaluate", tmp_path)


@pytest.mark.parametrize("path", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize("name", [name for name in slmsearch.__all__ if name in slmsearch._MODULES])
def test_a_public_name_says_what_it_is(name: str) -> None:
    found = getattr(slmsearch, name)
    assert found.__module__ == slmsearch._MODULES[name]
    assert (found.__doc__ or "").strip().endswith((".", ")")) or "\n" in found.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        slmsearch.nonsense  # noqa: B018
