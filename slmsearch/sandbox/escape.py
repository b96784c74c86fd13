"""Escapes: programs that try to get out, as data, and how one knows whether they did."""

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from slmsearch.config import ProgramLimits
from slmsearch.sandbox.cgroups import find_groups
from slmsearch.sandbox.channel import MAX_TOTAL_BYTES
from slmsearch.sandbox.layers import Layer
from slmsearch.sandbox.root import RUNNER
from slmsearch.sandbox.stage import Stage

PROOF = "ESCAPED"
"""Printed only by a program that got through."""
POISON = b"poison"
LATE_SECONDS = 1.5
"""Past its time limit by so much, a program was not stopped."""
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")


@dataclass(frozen=True, slots=True)
class Escape:
    """A program that tries to get out."""

    name: str
    layers: tuple[Layer, ...]
    """Those that stop it, each by itself."""
    evidence: str
    """A key of `EVIDENCE`: by what success is known."""
    program: str
    """Python, with `$names` of what is on the stage."""
    about: str = ""
    bounded: bool = False
    """It would go on for ever and is bounded, so that its control can be run without harm."""
    needs: str = ""
    """What its control needs of this machine: `core_files` or `cgroup`."""
    wall_s: float = 2.0
    """Its time limit: short where it is to run out of it, long where it has to work."""
    own_root: bool = False
    """Its control gets a file system of its own, because it damages it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What evidence is looked for in."""

    stdout: str
    seconds: float
    """Wall time without that of the tools."""
    calls: int
    received_bytes: int
    root: Path | None
    """File system of the instance, on the host."""
    lingers: bool
    """Its interpreter was still alive some time after the answer."""


def read_outcome(answer: dict[str, Any], root: Path | None, lingers: bool) -> Outcome:
    """Read the answer of `/execute`."""
    seconds = answer["seconds"] - answer["tool_seconds"]
    return Outcome(answer["stdout"], seconds, len(answer["calls"]), answer["received_bytes"], root, lingers)


Evidence = Callable[[Stage, Outcome], bool]
EVIDENCE: dict[str, Evidence] = {
    "proof": lambda stage, outcome: PROOF in outcome.stdout,
    "secret": lambda stage, outcome: any(secret in outcome.stdout for secret in stage.secrets),
    "message": lambda stage, outcome: stage.found_message(),
    "victim_dead": lambda stage, outcome: stage.found_victim_dead(),
    "written": lambda stage, outcome: stage.found_bytes() > 0,
    "filled": lambda stage, outcome: stage.found_bytes() > 8 << 20,
    "many_files": lambda stage, outcome: len(stage.found_files()) > 100,
    "device": lambda stage, outcome: stage.found_files() == ["null"],
    "core": lambda stage, outcome: any(name.startswith("core") for name in stage.found_files()),
    "poisoned": lambda stage, outcome: outcome.root is not None and _is_poisoned(outcome.root),
    "survivor": lambda stage, outcome: stage.found_survivor(),
    "lingers": lambda stage, outcome: outcome.lingers,
    "overtime": lambda stage, outcome: outcome.seconds > stage.limits.wall_s + LATE_SECONDS,
    "oversize": lambda stage, outcome: len(outcome.stdout) > 2 * stage.limits.output_chars,
    "flooded": lambda stage, outcome: outcome.received_bytes > 2 * MAX_TOTAL_BYTES,
    "calls": lambda stage, outcome: outcome.calls > stage.limits.calls,
}
"""Name -> whether an escape got through, by what it left on the stage or by what came back."""


def load_escapes() -> list[Escape]:
    """Load all escapes, in the order of files and lines."""
    folder = resources.files("slmsearch.sandbox") / "escapes"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    tables = [table for file in files for table in tomllib.loads(file.read_text(encoding="utf-8"))["escape"]]
    return [Escape(**{**table, "layers": tuple(Layer(name) for name in table["layers"])}) for table in tables]


def overtime(limits: ProgramLimits) -> dict[str, str]:
    """Return how many seconds, and seconds of CPU, a program goes on that should have been stopped."""
    return {"overtime_s": str(limits.wall_s + LATE_SECONDS + 1.0), "overtime_cpu_s": str(limits.wall_s + 0.6)}


def why_no_control(escape: Escape) -> str:
    """Say why an escape's control cannot be run on this machine; empty if it can."""
    if Layer.IDENTITY in escape.layers and os.getuid() != 0:
        return "needs root"
    if escape.needs == "core_files" and (not CORE_PATTERN.is_file() or CORE_PATTERN.read_text().startswith(("|", "/"))):
        return "this machine writes no core files where a program crashes"
    if escape.needs == "cgroup" or escape.layers == (Layer.CGROUP,):
        groups = find_groups()
        if groups is None:
            return "no cgroup can be made here"
        groups.close()
    return ""


def _is_poisoned(root: Path) -> bool:
    return (root / RUNNER.lstrip("/")).read_bytes().endswith(POISON)
