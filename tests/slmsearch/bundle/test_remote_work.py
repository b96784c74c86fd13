"""`run.sh` at work, with programs in place of the installed ones: attempts that follow each other, Ctrl-C, a bundle that is read-only."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from slmsearch.artifacts.files import file_hash
from slmsearch.bundle import remote
from slmsearch.bundle.pack import pack

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
PYTHON = """#!/bin/sh
echo '{"torch": "2", "gpu": "a card", "gpu_bytes": 1}'
"""
PROGRAM = f"""#!{sys.executable}
import json, signal, sys
from pathlib import Path
with Path("said").open("a") as said:
    said.write(sys.argv[1] + "\\n")
if sys.argv[1] == "bench":
    print(json.dumps({{"passed": True}}))
elif "wait" in Path("settings.yaml").read_text():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("training", file=sys.stderr, flush=True)
    signal.pause()
else:
    print(json.dumps({{"decision": "promote"}}))
"""


def make_bundle(folder: Path, settings: str) -> Path:
    """Write a bundle whose environment is installed already."""
    source, out = folder / "settings.yaml", folder / "out"
    source.write_text(settings)
    out.mkdir(exist_ok=True)
    facts = {"product": "0", "python": HERE, "used": {}, "data_wheels": [], "command": ["run", "train-and-eval"]}
    (out / remote.FILES / "run" / "settings.yaml").unlink(missing_ok=True)
    pack(out, {"run/settings.yaml": source}, facts, None)
    programs = out / "home" / "env" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name, text in (("python", PYTHON), ("slmsearch", PROGRAM)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs.parent / ".complete").write_text(file_hash(out / remote.MANIFEST))
    return out


def start(bundle: Path, *words: str) -> "subprocess.Popen[str]":
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
    command = ["sh", str(bundle / "run.sh"), *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=bundle.parent, start_new_session=True)


def read_results(folder: Path) -> dict[str, object]:
    (path,) = folder.glob("results-*.tar.gz")
    with tarfile.open(path) as tar:
        file = tar.extractfile("results.json")
        assert file is not None
        found: dict[str, object] = json.load(file)
    return found


def test_a_later_attempt_tells_of_the_check_of_an_earlier_one_and_takes_new_settings(tmp_path: Path) -> None:
    for seed in (1, 2):
        bundle = make_bundle(tmp_path, json.dumps({"train": {"seed": seed}}))
        with start(bundle) as process:
            said = process.communicate()[1]
        assert process.returncode == 0, said
        assert read_results(bundle)["gpu_check"] == "passed"
        assert json.loads((bundle / "home" / "run" / "settings.yaml").read_text()) == {"train": {"seed": seed}}
    assert (bundle / "home" / "run" / "said").read_text().split() == ["bench", "run", "run"]


def test_a_relative_folder_begins_where_the_script_is_started(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, "{}")
    (bundle / "home").rename(tmp_path / "elsewhere")
    with start(bundle, "--into", "elsewhere") as process:
        said = process.communicate()[1]
    assert process.returncode == 0, said
    assert (tmp_path / "elsewhere" / "run" / "said").read_text().split() == ["bench", "run"]


def test_ctrl_c_ends_the_run_and_packs_what_there_is(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, '"wait"')
    with start(bundle, "--no-gpu-check") as process:
        assert process.stderr is not None
        while process.stderr.readline() != "training\n":
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
        said = process.communicate()[1]
    assert process.returncode == 130
    assert "Traceback" not in said and "results in " in said
    assert read_results(bundle)["finished"] is False


def test_results_of_a_bundle_that_cannot_be_written_to_lie_beside_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_bundle(tmp_path, "{}")
    into = bundle / "home"
    monkeypatch.setattr(remote, "HERE", bundle)
    monkeypatch.setattr(remote.os, "access", lambda path, mode: path != bundle)
    lock = remote.hold(into / ".lock")
    try:
        manifest = remote.read_manifest(bundle / remote.MANIFEST)
        assert remote.work(manifest, bundle / remote.FILES, into, into / "env" / "bin" / "python", None, False, lock) == 0
    finally:
        os.close(lock)
    assert read_results(into)["finished"] is True and not list(bundle.glob("results-*"))
