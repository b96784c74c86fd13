"""What every measurement writes: the machine, medians with their spread, Markdown tables, a JSON file."""

import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

Say = Callable[[str], None]
"""Told what is being done."""
CPUINFO = Path("/proc/cpuinfo")


def describe_machine(*packages: str) -> dict[str, Any]:
    """Name processor, cores, load of the last minute and versions.

    Args:
        packages: distributions whose versions matter.
    """
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    return {"processor": _processor(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "versions": versions}


def render_machine(machine: dict[str, Any]) -> str:
    """Render what `describe_machine` gives, on one line."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return f"{machine['processor']}, {machine['cores']} cores, load {machine['load']:.1f} at the end; {versions}"


def summarize(values: Sequence[float]) -> dict[str, float]:
    """Return `median`, `low` and `high` of repeated measurements."""
    return {"median": median(values), "low": min(values), "high": max(values)}


def render_spread(figure: dict[str, float], digits: int = 2) -> str:
    """Render a summary as `median (lowest-highest)`."""
    return f"{figure['median']:,.{digits}f} ({figure['low']:,.{digits}f}-{figure['high']:,.{digits}f})"


def render_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a Markdown table of cells that hold no text from outside."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (headers, ["---"] * len(headers), *rows))


def save_result(result: dict[str, Any], path: Path) -> None:
    """Write a result as JSON; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _processor() -> str:
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines() if CPUINFO.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
