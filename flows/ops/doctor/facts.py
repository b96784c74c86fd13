"""What is looked at, and what is said about it: plain data, so that every check can be tried on facts made up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong."""

    check: str
    severity: Severity
    """`error`: a run will fail or somebody else can get in. `warning`: it may. `info`: worth knowing."""
    message: str
    remedy: str
    """What to do, one line."""

    def describe(self) -> str:
        """Say it in one line."""
        return f"{self.message}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket on which a server of ours waits."""

    service: Literal["prefect", "mlflow", "chroma", "model"]
    host: str
    port: int
    pid: int
    guarded: bool
    """Whether it asks who is there."""


@dataclass(frozen=True, slots=True)
class Watch:
    """An automation that waits for an event and acts when it does not come."""

    name: str
    expect: tuple[str, ...]
    within_s: float
    enabled: bool


@dataclass(frozen=True, slots=True)
class PrefectFacts:
    """What a Prefect API says of itself."""

    url: str
    paused: bool | None = None
    """Whether the work pool is paused; None where it is missing."""
    online_workers: int = 0
    """Of the pool."""
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Slots of each global concurrency limit, and how many of them are taken."""
    watches: tuple[Watch, ...] = ()
    automations: tuple[str, ...] = ()
    """Names of all."""
    live_runs: int = 0
    """Flow runs that run."""
    scheduled: int = 0
    """Deployments of the project."""


@dataclass(frozen=True, slots=True)
class LastNight:
    """The last nightly evaluation of a registered model."""

    model: str
    name: str
    age_h: float
    """Hours since it ended."""
    late_h: float
    """Hours after which the next one is late."""
    regressed: bool
    """And not accepted."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is looked at."""

    packages: Mapping[str, str] = field(default_factory=dict)
    """Installed, by normalised name."""
    requirements: tuple[str, ...] = ()
    """Of slmsearch, as its metadata have them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    free_bytes: Mapping[str, int] = field(default_factory=dict)
    """By directory."""
    unwritable: tuple[str, ...] = ()
    entered_by_others: tuple[str, ...] = ()
    """Data directories that other users of the machine may read."""
    listeners: tuple[Listener, ...] = ()
    prefect: PrefectFacts | None = None
    """None: no API answers."""
    chroma_server: tuple[str, str] | None = None
    """Address and version of the configured Chroma server; the version is empty where it does not answer."""
    abandoned: tuple[Path, ...] = ()
    """Temporary files and directories whose writer is gone."""
    dead_records: tuple[Path, ...] = ()
    """Files that say a server runs which does not."""
    dead_locks: tuple[Path, ...] = ()
    """Training directories whose last process is gone and whose training has not ended."""
    orphans: int = 0
    """MLflow runs that show as running on this machine and whose process is gone."""
    nights: tuple[LastNight, ...] = ()
    """The last nightly evaluation of each model that had one."""
    damaged: tuple[str, ...] = ()
    """What could not be looked at, and why."""
