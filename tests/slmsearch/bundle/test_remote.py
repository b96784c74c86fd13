"""`run.sh` on the other side: what was not copied whole is named in one line before anything is installed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.artifacts.files import file_hash
from slmsearch.bundle.pack import _link, pack
from slmsearch.bundle.remote import PackedFile, check_files, child_environment, join, plain

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
FACTS: dict[str, Any] = {"product": "0", "python": HERE, "used": {}, "data_wheels": [], "command": ["run", "train-and-eval"]}
CONTENTS = {"wheels/a-1-py3-none-any.whl": b"a" * 1_700_000, "wheels/b-1-py3-none-any.whl": b"b" * 300_000, "run/settings.yaml": b"{}"}


def written(folder: Path, max_mb: int | None = 1, **facts: Any) -> Path:
    """Write a bundle of a few files."""
    sources = {}
    for number, (path, content) in enumerate(CONTENTS.items()):
        sources[path] = folder / f"source-{number}"
        sources[path].write_bytes(content)
    out = folder / "out"
    out.mkdir()
    pack(out, sources, {**FACTS, **facts}, max_mb)
    return out


def run(bundle: Path, *words: str) -> tuple[int, str]:
    ended = subprocess.run(
        ["sh", str(bundle / "run.sh"), *words], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
    )
    return ended.returncode, ended.stderr.strip()


def test_archives_hold_at_most_what_was_asked_for_and_pieces_come_together(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    archives = sorted(bundle.glob("*.tar"))
    assert len(archives) > 1
    assert all(path.stat().st_size <= 1_000_000 for path in archives)
    code, said = run(bundle, "--install")
    assert (code, said.splitlines()[-1]) == (3, "run.sh: the bundle has no wheel of pip, which installs the others; create it again")
    files = bundle / "home" / "files"
    assert {path: (files / path).read_bytes() for path in CONTENTS} == CONTENTS


def test_a_folder_is_used_as_it_is(tmp_path: Path) -> None:
    bundle = written(tmp_path, None)
    assert not list(bundle.glob("*.tar"))
    assert {path: (bundle / "files" / path).read_bytes() for path in CONTENTS} == CONTENTS
    assert run(bundle, "--check")[0] == 0


def test_a_link_to_a_file_is_carried_as_the_file(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"weights")
    (tmp_path / "model.safetensors").symlink_to("blob")
    _link(tmp_path / "model.safetensors", target := tmp_path / "bundle" / "files" / "model.safetensors")
    (tmp_path / "blob").unlink()
    assert not target.is_symlink() and target.read_bytes() == b"weights"


def test_settings_of_the_other_machine_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA_DIR", "DEV", "JUDGE_MODEL", "SLMSEARCH_TRAIN__SEED", "KEPT"):
        monkeypatch.setenv(name, "1")
    found = child_environment(tmp_path / "my bundle")
    assert not {"DATA_DIR", "DEV", "JUDGE_MODEL", "SLMSEARCH_TRAIN__SEED"} & set(found) and found["KEPT"] == "1"
    assert found["PIP_FIND_LINKS"].startswith("file://") and " " not in found["PIP_FIND_LINKS"]


def test_a_transfer_that_was_cut_off_is_named(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    path = bundle / "slmsearch-02.tar"
    path.write_bytes(path.read_bytes()[:1000])
    code, said = run(bundle, "--check")
    assert code == 3
    assert said.startswith("run.sh: slmsearch-02.tar was cut off: 1,000 of ")
    assert said.endswith("copy it again")


def test_an_archive_that_is_missing_is_named(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    (bundle / "slmsearch-01.tar").unlink()
    assert run(bundle, "--check") == (3, "run.sh: slmsearch-01.tar is missing; copy it beside run.sh")


def test_a_wrong_hash_is_named(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    path = bundle / "slmsearch-01.tar"
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    assert run(bundle, "--check") == (3, "run.sh: slmsearch-01.tar has another SHA-256 than it was written with; copy it again")


def test_a_missing_or_damaged_wheel_is_named(tmp_path: Path) -> None:
    bundle = written(tmp_path, None)
    wheel = bundle / "files" / "wheels" / "b-1-py3-none-any.whl"
    wheel.write_bytes(b"c" * 300_000)
    code, said = run(bundle, "--install")
    assert (code, said.splitlines()[-1]) == (
        3,
        "run.sh: wheels/b-1-py3-none-any.whl has another SHA-256 than it was written with; copy the bundle again",
    )
    wheel.unlink()
    assert run(bundle, "--install")[1].endswith("wheels/b-1-py3-none-any.whl is missing from the bundle; copy it again")


@pytest.mark.parametrize("name", ["bundle.json", "bundle.py"])
def test_its_own_files_are_checked_first(tmp_path: Path, name: str) -> None:
    bundle = written(tmp_path)
    (bundle / name).write_bytes((bundle / name).read_bytes()[:-10])
    code, said = run(bundle, "--check")
    assert (code, said) == (3, "run.sh: bundle.py or bundle.json is missing or was not copied whole; copy both again")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"python": "3.9"}, "this bundle is for Python 3.9"),
        ({"used": {"packaging": "0.1"}}, "packaging is "),
        ({"used": {"no-such-package": "1"}}, "no-such-package is not installed here and 1 in the target file"),
    ],
)
def test_another_machine_than_the_target_is_refused(tmp_path: Path, facts: dict[str, Any], said: str) -> None:
    code, told = run(written(tmp_path, **facts), "--check")
    assert code == 3
    assert said in told and len(told.splitlines()) == 1


@settings(max_examples=30)
@given(st.binary(max_size=4000), st.integers(1, 700))
def test_any_file_comes_together_from_pieces_of_any_size(tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int) -> None:
    path = tmp_path_factory.mktemp("pieces") / "file"
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    for number, part in enumerate(parts):
        path.with_name(f"file.piece{number:03d}").write_bytes(part)
    join(path, len(parts))
    if parts:
        assert path.read_bytes() == content
        check_files([PackedFile("file", len(content), file_hash(path))], path.parent)


def test_versions_are_compared_without_leading_zeros() -> None:
    assert plain("2024.09.01") == plain("2024.9.1")
    assert plain("1.10.0") != plain("1.1.0")
