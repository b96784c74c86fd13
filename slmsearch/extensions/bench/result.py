"""Common parts of benchmarks: sides that take turns, medians with their spread, the machine, and a result as JSON and as tables."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from string import Formatter
from typing import Any, TypeVar

from slmsearch.processes.processor import CPUINFO
from slmsearch.report.tables import NONE, Table

T = TypeVar("T")
Say = Callable[[str], None]
"""Function that receives a line about the present step."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a benchmark."""

    values: Mapping[str, object]
    """Values for JSON."""
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    """Lines below the tables."""

    def render(self) -> str:
        """Render tables and notes as Markdown."""
        return "\n\n".join([*(table.to_markdown() for table in self.tables), "\n".join(self.notes)])


def take_turns(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Run the sides in turn, round by round; return the results of each, without the first round, which warms up."""
    played = [{name: side() for name, side in sides.items()} for _ in range(rounds + 1)]
    return {name: [found[name] for found in played[1:]] for name in sides}


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios, taken round by round."""
    return median(a / b for a, b in zip(over, under, strict=True))


class Spread(dict[str, float]):
    """Median, lowest and highest of repeated measurements; written as `median (lowest-highest)`."""

    def __init__(self, values: Sequence[float]) -> None:
        """Take the measurements."""
        super().__init__(median=median(values), low=min(values), high=max(values))

    def __format__(self, spec: str) -> str:
        return f"{self['median']:{spec}} ({self['low']:{spec}}-{self['high']:{spec}})"


class _Cells(Formatter):
    """Format as `str.format` does; a missing value becomes a dash."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return NONE if value is None else str(super().format_field(value, format_spec))


def tabulate(columns: Mapping[str, str], records: Iterable[Mapping[str, object]]) -> Table:
    """Make a table with a record a row; `columns` is header -> format of its cells, with the record's names in braces."""
    rows = (tuple(_Cells().vformat(cell, (), record) for cell in columns.values()) for record in records)
    return Table(tuple(columns), tuple(rows))


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a measurement."""

    processor: str
    cores: int | None
    load: float
    """Load average of the last minute."""
    versions: dict[str, str]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.processor}, {self.cores} cores, load {self.load:.1f} at the end; {versions}"


def describe_machine(*packages: str) -> Machine:
    """Name processor, cores, load, and the versions of Python and of some packages."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines() if CPUINFO.exists() else []
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    return Machine(processor, os.cpu_count(), os.getloadavg()[0], versions)
