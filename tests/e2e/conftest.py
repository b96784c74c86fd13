"""Everything in this folder starts real processes: it is marked `e2e` and may take longer."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from slmsearch.processes.ports import free_port
from tests.root import ROOT

HERE = Path(__file__).parent
TIMEOUT_S = 900
MODEL = ROOT / "data" / "models" / "tiny-searcher"
START_SECONDS = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of `transformers serve` with tiny-searcher, whose name there is `str(MODEL)`."""
    port, log = free_port(), tmp_path_factory.mktemp("serve") / "serve.log"
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(MODEL), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--device", "cpu", "--dtype", "float32"], stdout=file, stderr=file, env={**os.environ})
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"http://127.0.0.1:{port}/health"):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
