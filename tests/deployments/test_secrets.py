"""`make-secrets` and `with-secrets`: what the servers get, and what nobody else does."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deployments.reading import DEPLOYMENTS, compose

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl (Debian: openssl)")


def make(folder: Path) -> str:
    return subprocess.run([str(DEPLOYMENTS / "make-secrets"), str(folder)], check=True, capture_output=True, text=True).stdout


def start(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "CREDENTIALS_DIRECTORY": str(folder)}
    return subprocess.run([str(DEPLOYMENTS / "with-secrets"), *words], capture_output=True, text=True, env=environment)


def test_every_secret_of_the_compose_file_is_made_and_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make(folder)
    first = {path.name: path.read_text() for path in folder.iterdir()}
    assert first.keys() == compose()["secrets"].keys() - {"pip.conf"}, "settings of pip are the user's"
    assert len(set(first.values())) == len(first)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(len(text.strip()) >= 20 for text in first.values())
    assert make(folder) == ""
    assert {path.name: path.read_text() for path in folder.iterdir()} == first
    (folder / "prefect_auth").unlink()
    make(folder)
    changed = {path.name for path in folder.iterdir() if path.read_text() != first[path.name]}
    assert changed == {"prefect_auth", "prefect_htpasswd"}, "the hash follows its password"


def test_a_command_has_its_secrets_in_its_environment_alone(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a b'c\"$(id)\n")
    done = start(tmp_path, "PASSWORD=one", "--", "sh", "-c", 'printf %s "$PASSWORD"; tr "\\0" " " </proc/$$/cmdline')
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a b'c\"$(id)")
    assert "a b'c" not in done.stdout[10:]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["PASSWORD=missing", "--", "true"], "missing is missing or may not be read by user"),
        (["PASSWORD=empty", "--", "true"], "empty is empty; remove it"),
        (["PASSWORD=", "--", "true"], "names no file"),
        (["PASSWORD", "--", "true"], "names no file"),
        (["1X=one", "--", "true"], "no name of a variable"),
        (["X;id=one", "--", "true"], "no name of a variable"),
        (["PASSWORD=one", "--"], "no command follows"),
        (["PASSWORD=one"], "no command follows"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_started(tmp_path: Path, words: list[str], told: str) -> None:
    (tmp_path / "one").write_text("x")
    (tmp_path / "empty").write_text("\n")
    done = start(tmp_path, *words)
    assert done.returncode == 78
    assert told in done.stderr and len(done.stderr.splitlines()) == 1
