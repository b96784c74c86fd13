"""Facts as plain data, and the checks of them: each check is a generator of findings and can be tried on made-up facts."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from flows.runtime.pool import POOL
from flows.runtime.process_environment import DEFAULTS
from slmsearch.serving.engines.request import is_loopback
from tasks.owners import BEATS, HEARTBEAT

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of the installation."""

    check: str
    severity: Severity
    """Severity. `error`: a run will fail or another user can get in. `warning`: it may."""
    message: str
    remedy: str
    """Remedy, one line."""

    def describe(self) -> str:
        """Describe the problem in one line."""
        return f"{self.message}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket on which a server of this project listens."""

    service: Literal["prefect", "mlflow", "chroma", "model"]
    host: str
    port: int
    pid: int
    guarded: bool
    """True if the server asks for a password."""


@dataclass(frozen=True, slots=True)
class WatchedRuns:
    """An automation that waits for an event and acts if it does not come."""

    name: str
    expect: tuple[str, ...]
    within_s: float
    enabled: bool


@dataclass(frozen=True, slots=True)
class PrefectFacts:
    """Answers of a Prefect API about itself."""

    url: str
    paused: bool | None = None
    """True if the work pool is paused; None if it is missing."""
    online_workers: int = 0
    """Number of online workers of the pool."""
    taken_slots: Mapping[str, int] = field(default_factory=dict)
    """Taken slots of each global concurrency limit."""
    watches: tuple[WatchedRuns, ...] = ()
    live_runs: int = 0
    """Number of flow runs that are running."""
    scheduled: int = 0
    """Number of scheduled deployments of the project."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts that the checks read."""

    packages: Mapping[str, str] = field(default_factory=dict)
    """Installed versions, by normalised name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    free_bytes: Mapping[str, int] = field(default_factory=dict)
    """Free space, by directory."""
    unwritable: tuple[str, ...] = ()
    entered_by_others: tuple[str, ...] = ()
    """Data directories that other users of the machine may read."""
    listeners: tuple[Listener, ...] = ()
    prefect: PrefectFacts | None = None
    """Facts of Prefect; None if no API answers."""
    chroma_server: tuple[str, str] | None = None
    """Address and version of the configured Chroma server; the version is empty if it does not answer."""
    abandoned: tuple[Path, ...] = ()
    """Temporary files and directories whose writer has ended."""
    dead_records: tuple[Path, ...] = ()
    """Records of servers that do not run."""
    orphans: int = 0
    """MLflow runs that show as running on this machine and whose process has ended."""
    damaged: tuple[str, ...] = ()
    """Facts that could not be collected, and why."""


Found = Iterator[Finding]
BAD_PAIRS = tomllib.loads(Path(__file__).with_name("bad_pairs.toml").read_text(encoding="utf-8"))["pairs"]
LITTLE_BYTES = 1 << 30
"""Free space below which the next checkpoint or index may not fit."""
SOME_BYTES = 5 << 30
DEFAULT_HEARTBEAT_S = 180.0
"""Prefect's own default."""
LEASES = "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE"
CLOSE_SERVER = {
    "prefect": "bind it to 127.0.0.1, or set PREFECT_SERVER_API_AUTH_STRING and PREFECT_API_AUTH_STRING",
    "mlflow": "bind it to 127.0.0.1, or start it with --app-name basic-auth",
    "chroma": "bind it to 127.0.0.1: it has no passwords",
    "model": "bind it to 127.0.0.1, or put it behind a proxy that asks for a key",
}
OPENING_VARIABLES = {
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": ("lets a model run code when it is loaded", "set it to false, or unset it"),
    "PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES": ("lets a deployment rewrite this environment", "unset it"),
}
"""Environment variables that open a closed service -> how, and the remedy."""


def check_pairs(facts: Facts) -> Found:
    """Find package versions that are known to break, alone or with each other."""
    for pair in BAD_PAIRS:
        both = [_within(facts, Requirement(pair[name])) for name in ("package", "beside") if name in pair]
        if None not in both:
            yield Finding("versions", pair["severity"], f"{' beside '.join(filter(None, both))}: {pair['why']}", pair["remedy"])


def _within(facts: Facts, bad: Requirement) -> str | None:
    """Return name and version of a package whose installed version is a bad one."""
    installed = facts.packages.get(canonicalize_name(bad.name))
    try:
        inside = installed is not None and bad.specifier.contains(Version(installed), prereleases=True)
    except InvalidVersion:
        return None
    return f"{bad.name} {installed}" if inside else None


def check_chroma(facts: Facts) -> Found:
    """Compare Chroma here with the configured server."""
    if facts.chroma_server is None:
        return
    (address, version), here = facts.chroma_server, facts.packages.get("chromadb", "")
    if not version:
        yield Finding("chroma", "warning", f"no Chroma server answers at {address}", "start it, or fix retrieval.chroma_url")
    elif version != here:
        message = f"the Chroma server at {address} is {version}, the client {here}: queries end in KeyError '_type'"
        yield Finding("chroma", "error", message, f"uv pip install 'chromadb=={version}', or update the server")


def check_binds(facts: Facts) -> Found:
    """Find servers that other machines can reach without a password."""
    for item in facts.listeners:
        if not item.guarded and not is_loopback(item.host):
            message = f"{item.service} (process {item.pid}) listens on {item.host}:{item.port} and lets anybody in"
            yield Finding("binds", "error", message, CLOSE_SERVER[item.service])


def check_environment(facts: Facts) -> Found:
    """Find variables that contradict each other or open what should be closed."""
    env = facts.environment
    if env.get("PREFECT_API_KEY") and env.get("PREFECT_API_AUTH_STRING"):
        message = "PREFECT_API_KEY wins over PREFECT_API_AUTH_STRING, and a server of your own answers 401"
        yield Finding("environment", "error", message, "unset PREFECT_API_KEY")
    for name, (consequence, remedy) in OPENING_VARIABLES.items():
        if env.get(name, "").lower() in ("true", "1"):
            yield Finding("environment", "warning", f"{name} {consequence}", remedy)
    if env.get(LEASES, DEFAULTS[LEASES]) != DEFAULTS[LEASES]:
        yield Finding("environment", "warning", f"{LEASES} keeps leases in memory: a killed server leaves slots taken", "unset it")
    if facts.prefect is None and env.get("PREFECT_API_URL"):
        message = f"no Prefect API answers at {env['PREFECT_API_URL']}"
        yield Finding("prefect", "error", message, "start it with `slmsearch up`, or unset PREFECT_API_URL")


def check_pools(facts: Facts) -> Found:
    """Find a work pool that is missing, paused or without a worker although deployments wait for it."""
    api = facts.prefect
    if api is None or not api.scheduled:
        return
    if api.paused is None:
        yield Finding("pools", "error", f"the work pool {POOL!r} is missing at {api.url}: deployments are never run", "slmsearch up")
        return
    if api.paused:
        yield Finding("pools", "error", f"the work pool {POOL!r} is paused", f"prefect work-pool resume {POOL}")
    if not api.online_workers:
        message = f"no worker of the pool {POOL!r} is alive: runs wait for ever"
        yield Finding("pools", "error", message, f"slmsearch up, or prefect worker start --pool {POOL}")


def check_limits(facts: Facts) -> Found:
    """Find device limits whose slot no process holds; the next run makes a missing limit, and sets every limit to one slot."""
    api = facts.prefect
    if api is None or api.live_runs:
        return
    for name, taken in api.taken_slots.items():
        if taken and name.startswith("gpu:"):
            message = f"{taken} slot of {name} is taken and no flow run is running: every later run waits"
            remedy = f"wait a minute for its lease to run out, then prefect gcl update {name} --active-slots 0"
            yield Finding("limits", "warning", message, remedy)


def check_automations(facts: Facts) -> Found:
    """Find automations that crash healthy runs, or that are disabled."""
    api = facts.prefect
    if api is None:
        return
    beat_s = float(facts.environment.get("PREFECT_RUNNER_HEARTBEAT_FREQUENCY") or DEFAULT_HEARTBEAT_S)
    watches = [watch for watch in api.watches if any(map(_expects_heartbeat, watch.expect))]
    for watch in watches:
        if watch.within_s < BEATS * beat_s:
            times = f"gives up after {watch.within_s:.0f} s and heartbeats come every {beat_s:.0f} s"
            message = f"the automation {watch.name!r} {times}: healthy runs are crashed"
            yield Finding("automations", "error", message, f"set its window to {BEATS * beat_s:.0f} s or more")
        if not watch.enabled:
            message = f"the automation {watch.name!r} is switched off: a killed run shows as running for ever"
            yield Finding("automations", "warning", message, f"prefect automation resume {watch.name!r}")
    if api.scheduled and not watches:
        message = "nothing watches heartbeats: a flow run killed together with its worker shows as running for ever"
        yield Finding("automations", "warning", message, "slmsearch ops reconcile")


def _expects_heartbeat(name: str) -> bool:
    return HEARTBEAT.startswith(name[:-1]) if name.endswith("*") else name == HEARTBEAT


def check_disk(facts: Facts) -> Found:
    """Check that the disk has room and that directories are writable."""
    for directory, free in facts.free_bytes.items():
        if free < SOME_BYTES:
            message, remedy = (
                f"{directory} has {free / (1 << 30):.1f} GB free",
                "slmsearch ops housekeeping shows what can go; or set paths.data_dir",
            )
            yield Finding("disk", "error" if free < LITTLE_BYTES else "warning", message, remedy)
    for directory in facts.unwritable:
        yield Finding("disk", "error", f"{directory} cannot be written to", "fix its permissions, or set paths.data_dir")
    for directory in facts.entered_by_others:
        message = f"other users of this machine may read {directory}: corpora, episodes, reports"
        yield Finding("disk", "warning", message, f"chmod o-rwx {directory}")


def check_leftovers(facts: Facts) -> Found:
    """Find leftovers of killed processes."""
    if facts.abandoned:
        message = f"{len(facts.abandoned)} half-written things whose writers are gone, such as {facts.abandoned[0]}"
        yield Finding("leftovers", "warning", message, "slmsearch ops doctor --fix removes them")
    for path in facts.dead_records:
        message = f"{path} is left of `slmsearch up`, and its process is gone"
        yield Finding("locks", "warning", message, "slmsearch ops doctor --fix removes it")
    if facts.orphans:
        message = f"{facts.orphans} MLflow runs show as running and their processes are gone"
        yield Finding("mlflow", "warning", message, "slmsearch ops doctor --fix ends them as KILLED")
    for text in facts.damaged:
        yield Finding("looking", "warning", text, "fix that, and run `slmsearch ops doctor` again")


CHECKS = (
    check_pairs,
    check_chroma,
    check_binds,
    check_environment,
    check_pools,
    check_limits,
    check_automations,
    check_disk,
    check_leftovers,
)
MARKS: dict[Severity, str] = {"error": "ERROR  ", "warning": "warning"}
"""Order of severities, the worst first."""


def examine(facts: Facts) -> list[Finding]:
    """Return all findings, the worst first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: list(MARKS).index(finding.severity))


def render(findings: list[Finding], done: list[str]) -> str:
    """Render findings and the fixes that were applied."""
    rows = [f"{MARKS[finding.severity]}  {finding.check}: {finding.describe()}" for finding in findings]
    errors, warnings = (sum(finding.severity == severity for finding in findings) for severity in ("error", "warning"))
    verdict = f"{len(CHECKS)} checks: {errors} errors, {warnings} warnings"
    return "\n".join([*(f"fixed    {line}" for line in done), *rows, verdict])
