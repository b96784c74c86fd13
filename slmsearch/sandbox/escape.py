"""Escapes: programs that try to get out, as data, and how one knows whether they did."""

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from slmsearch.sandbox.cgroups import find_groups
from slmsearch.sandbox.channel import MAX_TOTAL_BYTES
from slmsearch.sandbox.execution import Execution
from slmsearch.sandbox.fixture import LATE_SECONDS, Fixture
from slmsearch.sandbox.root import RUNNER

PROOF = "ESCAPED"
"""Printed only by a program that got through."""
POISON = b"poison"
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")


@dataclass(frozen=True, slots=True)
class Escape:
    """A program that tries to get out."""

    name: str
    layers: tuple[str, ...]
    """Keys of `engine.LAYERS`: those that stop it."""
    evidence: str
    """A key of `EVIDENCE`: by what success is known."""
    program: str
    """Python, with `$names` of what a fixture makes."""
    about: str = ""
    bounded: bool = False
    """It would go on for ever and is bounded, so that its control can be run without harm."""
    needs: str = ""
    """What its control needs of this machine: `core_files` or `cgroup`."""
    wall_s: float = 2.0
    """Its time limit: short where it is to run out of it, long where it has to work."""
    own_root: bool = False
    """Its control gets a file system of its own, because it damages it."""


Evidence = Callable[[Fixture, Execution], bool]
EVIDENCE: dict[str, Evidence] = {
    "proof": lambda fixture, execution: PROOF in execution.stdout,
    "secret": lambda fixture, execution: any(secret in execution.stdout for secret in fixture.secrets),
    "message": lambda fixture, execution: fixture.found_message(),
    "victim_dead": lambda fixture, execution: fixture.found_victim_dead(),
    "written": lambda fixture, execution: fixture.found_bytes() > 0,
    "filled": lambda fixture, execution: fixture.found_bytes() > 8 << 20,
    "many_files": lambda fixture, execution: len(fixture.found_files()) > 100,
    "device": lambda fixture, execution: fixture.found_files() == ["null"],
    "core": lambda fixture, execution: any(name.startswith("core") for name in fixture.found_files()),
    "poisoned": lambda fixture, execution: _is_poisoned(fixture.root),
    "survivor": lambda fixture, execution: fixture.found_survivor(),
    "lingers": lambda fixture, execution: fixture.lingers,
    "overtime": lambda fixture, execution: execution.seconds - execution.tool_seconds > fixture.limits.wall_s + LATE_SECONDS,
    "oversize": lambda fixture, execution: len(execution.stdout) > 2 * fixture.limits.output_chars,
    "flooded": lambda fixture, execution: execution.received_bytes > 2 * MAX_TOTAL_BYTES,
    "calls": lambda fixture, execution: len(execution.calls) > fixture.limits.calls,
}
"""Name -> whether an escape got through, by what it left behind or by what came back."""


def load_escapes() -> list[Escape]:
    """Load all escapes, in the order of files and lines."""
    folder = resources.files("slmsearch.sandbox") / "escapes"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    tables = [table for file in files for table in tomllib.loads(file.read_text(encoding="utf-8"))["escape"]]
    return [Escape(**{**table, "layers": tuple(table["layers"])}) for table in tables]


def why_no_control(escape: Escape) -> str:
    """Say why an escape's control cannot be run on this machine; empty if it can."""
    if "identity" in escape.layers and os.getuid() != 0:
        return "needs root"
    if escape.needs == "core_files" and (not CORE_PATTERN.is_file() or CORE_PATTERN.read_text().startswith(("|", "/"))):
        return "this machine writes no core files where a program crashes"
    if escape.needs == "cgroup" or escape.layers == ("cgroup",):
        groups = find_groups()
        if groups is None:
            return "no cgroup can be made here"
        groups.close()
    return ""


def _is_poisoned(root: Path | None) -> bool:
    return root is not None and (root / RUNNER.lstrip("/")).read_bytes().endswith(POISON)
