"""Programs that stand in for model servers, and ways to see whether something is left of them."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

PROGRAMS = Path(__file__).parent / "programs"
GONE_SECONDS = 30.0
"""Long enough for a busy machine; the figures in the README are measured."""


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Say whether a process runs; one that has ended and was not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone_after(pids: list[int], timeout_s: float = GONE_SECONDS) -> float:
    """Wait until none of the processes runs; return the seconds it took."""
    start = time.monotonic()
    wait_until(lambda: not any(runs(pid) for pid in pids), timeout_s)
    return time.monotonic() - start


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """Put a program of `programs/` on the PATH under another name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def install(name: str, program: str) -> Path:
        path = folder / name
        path.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(PROGRAMS / program)!r}, run_name='__main__')\n")
        path.chmod(0o755)
        return path

    yield install
