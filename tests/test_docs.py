"""The pages of docs/ say what the code does, and every link in them leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

import slmsearch

ROOT = Path(__file__).parent.parent


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_pages_of_commands_and_settings_are_what_the_code_says() -> None:
    done = run(".ci/reference.py", "--check")
    assert done.returncode == 0, done.stderr


def test_no_link_is_dead_and_every_page_can_be_reached(tmp_path: Path) -> None:
    done = run("-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path))  # --quiet would hide the warnings from --strict
    assert done.returncode == 0, done.stdout + done.stderr
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} == {Path(name).stem for name in named((ROOT / "mkdocs.yml").read_text())}


def test_the_page_of_the_library_has_every_public_name() -> None:
    names = re.findall(r"^::: slmsearch\.(\w+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(names) == sorted(slmsearch._MODULES)


def named(settings: str) -> list[str]:
    nav = yaml.safe_load(settings)["nav"]
    found: list[str] = []
    for entry in nav:
        for target in entry.values():
            found += [target] if isinstance(target, str) else [page for item in target for page in item.values()]
    return found


def test_the_readme_can_be_read_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_every_test_that_the_threat_model_names_is_there() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(tests) >= 20 and text.count("`tests/") == len(tests) + 1, "all are written as path::name; one is this file"
    missing = [
        f"{path}::{name}" for path, name in tests if f"def {name}(" not in ((ROOT / path).read_text() if (ROOT / path).exists() else "")
    ]
    assert not missing
