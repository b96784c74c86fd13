"""The engine `docker`: its files against the compose specification, its command line against a stand-in; a real daemon: tests/docker."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from slmsearch.config import SandboxConfig
from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox import runner
from slmsearch.extensions.sandbox.checks import ScriptedTools
from slmsearch.extensions.sandbox.docker import SERVICE, Docker
from slmsearch.extensions.sandbox.execution import execute_program
from slmsearch.extensions.sandbox.seccomp import FREE, RULES, docker_profile
from slmsearch.extensions.sandbox.server import make_engine
from slmsearch.extensions.sandbox.suite import LIMITS

ROOT = Path(__file__).parents[4]
COMPOSE = ROOT / "deployments" / "sandbox.yaml"
DOCKERFILE = ROOT / "deployments" / "Dockerfile"
SECCOMP = ROOT / "deployments" / "sandbox-seccomp.json"


def check_schema(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a file against the compose specification's JSON schema, which check-jsonschema carries."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["compose.yaml", "sandbox.yaml"])
def test_the_compose_files_keep_to_the_specification(name: str) -> None:
    done = check_schema(COMPOSE.with_name(name))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("right", "wrong"), [("mem_limit:", "mem_limt:"), ("read_only: true", "read_only: [1]")])
def test_the_specification_would_notice(tmp_path: Path, right: str, wrong: str) -> None:
    text = COMPOSE.read_text()
    assert right in text
    (tmp_path / "compose.yaml").write_text(text.replace(right, wrong))
    assert check_schema(tmp_path / "compose.yaml").returncode == 1


def test_the_container_is_confined() -> None:
    project = yaml.safe_load(COMPOSE.read_text())
    assert project.keys() == {"name", "services"} and list(project["services"]) == [SERVICE], "no network to be made by two at once"
    program: dict[str, Any] = project["services"][SERVICE]
    assert program["network_mode"] == "none"
    assert program["read_only"] is True
    assert program["cap_drop"] == ["ALL"]
    assert program["security_opt"] == ["no-new-privileges:true", f"seccomp:./{SECCOMP.name}"]
    assert program["user"] == "65534:65534"
    assert "${DOCKER_MEMORY_LIMIT:-" in program["mem_limit"] == program["memswap_limit"]
    assert "${DOCKER_CPU_LIMIT:-" in program["cpus"]
    assert program["pids_limit"] <= 16
    assert not {"volumes", "ports", "privileged", "cap_add", "devices", "pid", "env_file", "extra_hosts"} & program.keys()


def test_docker_gets_the_filter_that_bubblewrap_has() -> None:
    found = json.loads(SECCOMP.read_text())
    assert found == docker_profile(), f"python -m slmsearch.extensions.sandbox.seccomp > {SECCOMP}"
    free, *conditional, missing = found["syscalls"]
    assert set(free["names"]) == {*FREE, "fstatfs"}
    assert [rule["names"] for rule in conditional] == [[rule.name] for rule in RULES if rule.conditions] + [["openat"]]
    assert (found["defaultErrnoRet"], missing["errnoRet"]) == (1, 38)


def test_the_image_holds_the_files_that_bubblewrap_shows_and_nothing_else() -> None:
    made, image = DOCKERFILE.read_text().split("FROM scratch")
    copied = {name for line in made.splitlines() if line.startswith(("COPY", "ADD")) for name in line.split()[1:-1]}
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / name).is_file() for name in copied)
    assert [line for line in image.splitlines() if line.startswith(("COPY", "ADD", "RUN"))] == ["COPY --from=made /files /"]
    assert "USER 65534:65534" in image


def test_what_the_image_is_made_with_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    lines = [line.split()[1:] for line in DOCKERFILE.read_text().splitlines() if line.startswith("COPY slmsearch")]
    for *names, target in lines:
        (tmp_path / target[1:]).mkdir(parents=True)
        for name in names:
            shutil.copy(ROOT / name, tmp_path / target[1:])
    code = "import pathlib, sys; sys.path[:0] = ['']; from slmsearch.extensions.sandbox import root; root.fill_root(pathlib.Path('files'))"
    (tmp_path / "made" / "files").mkdir()
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], cwd=tmp_path / "made", check=True)
    assert {path.name for path in (tmp_path / "made" / "files").iterdir()} >= {"python", "runner.pyc", "tmp"}


def test_the_runner_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(runner.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.fixture
def fake_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for `docker` on PATH; returns the folder in which it keeps its state."""
    state, folder = tmp_path / "state", tmp_path / "bin"
    state.mkdir()
    folder.mkdir()
    script = folder / "docker"
    script.write_text(f"#!{sys.executable}\n{(Path(__file__).parent / 'fake_docker.py').read_text()}")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("FAKE_DOCKER_STATE", str(state))
    monkeypatch.setenv("FAKE_DOCKER_RUNNER", runner.__file__)
    return state


def test_a_program_runs_in_a_container_that_is_removed(fake_docker: Path) -> None:
    engine = Docker(SandboxConfig(docker_memory_limit="512m", docker_cpu_limit=0.5), COMPOSE)
    instance = engine.start()
    instance.wait_until_ready(30.0)
    execution = execute_program(instance, "print(search_pages('x')[0][1])", ScriptedTools().serve_one, LIMITS)
    assert (execution.stdout, execution.error) == ("Page of x\n", "")
    assert instance.terminate()
    assert not instance.is_alive()
    calls = (fake_docker / "calls").read_text().splitlines()
    assert any(re.fullmatch(rf"compose --file \S+ build {SERVICE}", call) for call in calls), "there was no image yet"
    names = [call.split()[-2] for call in calls if " run " in call]
    assert [call for call in calls if call.startswith("rm ")] == [f"rm --force {name}" for name in names]


def test_an_endless_program_is_removed(fake_docker: Path) -> None:
    instance = Docker(SandboxConfig(), COMPOSE).start()
    instance.wait_until_ready(30.0)
    execution = execute_program(instance, "while True: pass", ScriptedTools().serve_one, LIMITS.model_copy(update={"wall_s": 0.5}))
    assert execution.error == "stopped: it ran out of time"
    assert instance.terminate()


def test_output_that_nobody_reads_keeps_no_container(fake_docker: Path) -> None:
    instance = Docker(SandboxConfig(), COMPOSE).start()
    instance.wait_until_ready(30.0)
    flood = "import os\nwhile True: os.write(1, b'x' * 60000)"
    execution = execute_program(instance, flood, ScriptedTools().serve_one, LIMITS.model_copy(update={"wall_s": 5.0}))
    assert execution.error == "stopped: it wrote to the sandbox's own channel"
    assert instance.terminate()


def test_limits_come_from_the_settings(fake_docker: Path) -> None:
    engine = Docker(SandboxConfig(docker_memory_limit="512m", docker_cpu_limit=0.5), COMPOSE)
    assert engine._environment["DOCKER_MEMORY_LIMIT"] == "512m"
    assert engine._environment["DOCKER_CPU_LIMIT"] == "0.5"


def test_without_a_daemon_nothing_is_run(fake_docker: Path) -> None:
    (fake_docker / "down").touch()
    with pytest.raises(SandboxError, match=r"Cannot connect to the Docker daemon.*so no program is run; install Docker"):
        Docker(SandboxConfig(), COMPOSE)


def test_without_docker_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SandboxError, match=r"docker is missing, so no program is run; install Docker"):
        make_engine(SandboxConfig(engine="docker"), tmp_path)
