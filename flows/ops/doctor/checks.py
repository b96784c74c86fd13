"""Checks of servers, disk and leftovers: who may get in, whether Prefect has what a run needs, whether there is room; and all in order."""

import ipaddress

from flows.ops.doctor import packages
from flows.ops.doctor.facts import Facts, Finding, Severity
from flows.ops.pool import POOL
from flows.ops.process_environment import DEFAULTS
from tasks.owners import BEATS, HEARTBEAT

LITTLE_BYTES = 1 << 30
"""Less free than this: the next checkpoint or index may not fit."""
SOME_BYTES = 5 << 30
DEFAULT_HEARTBEAT_S = 180.0
"""Prefect's own, where nothing is set."""


def check_binds(facts: Facts) -> list[Finding]:
    """Find servers that other machines can reach without a password."""
    remedies = {
        "prefect": "bind it to 127.0.0.1, or set PREFECT_SERVER_API_AUTH_STRING and PREFECT_API_AUTH_STRING",
        "mlflow": "bind it to 127.0.0.1, or start it with --app-name basic-auth",
        "chroma": "bind it to 127.0.0.1: it has no passwords",
        "model": "bind it to 127.0.0.1, or put it behind a proxy that asks for a key",
    }
    open_ones = [item for item in facts.listeners if not item.guarded and not _is_loopback(item.host)]
    return [
        Finding("binds", "error", f"{item.service} (process {item.pid}) listens on {item.host}:{item.port} and lets anybody in",
            remedies[item.service])
        for item in open_ones
    ]  # fmt: skip


def _is_loopback(host: str) -> bool:
    if host in ("localhost", ""):
        return host == "localhost"
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def check_environment(facts: Facts) -> list[Finding]:
    """Find variables that contradict each other or open what should be closed."""
    env, found = facts.environment, []
    if env.get("PREFECT_API_KEY") and env.get("PREFECT_API_AUTH_STRING"):
        found.append(
            Finding("environment", "error", "PREFECT_API_KEY wins over PREFECT_API_AUTH_STRING, and a server of your own answers 401",
                "unset PREFECT_API_KEY")
        )  # fmt: skip
    if env.get("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false").lower() in ("true", "1"):
        found.append(
            Finding("environment", "warning", "MLFLOW_ALLOW_PICKLE_DESERIALIZATION lets a model run code when it is loaded",
                "set it to false, or unset it")
        )  # fmt: skip
    if env.get("PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES", "").lower() in ("true", "1"):
        found.append(
            Finding("environment", "warning", "PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES lets a deployment rewrite this environment",
                "unset it")
        )  # fmt: skip
    storage = "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE"
    if env.get(storage, DEFAULTS[storage]) != DEFAULTS[storage]:
        found.append(Finding("environment", "warning", f"{storage} keeps leases in memory: a killed server leaves slots taken", "unset it"))
    if facts.prefect is None and facts.prefect_expected:
        message = f"no Prefect API answers at {facts.prefect_expected}"
        found.append(Finding("prefect", "error", message, "start it with `slmsearch up`, or unset PREFECT_API_URL"))
    return found


def check_pools(facts: Facts) -> list[Finding]:
    """Find the work pool missing, paused or without a worker, where deployments wait for it."""
    api = facts.prefect
    if api is None or not api.scheduled:
        return []
    pool = next((pool for pool in api.pools if pool.name == POOL), None)
    if pool is None:
        return [Finding("pools", "error", f"the work pool {POOL!r} is missing at {api.url}: deployments are never run", "slmsearch up")]
    found = []
    if pool.paused:
        found.append(
            Finding("pools", "error", f"the work pool {POOL!r} is paused", f"prefect work-pool resume {POOL}", fix="resume the pool")
        )
    if not pool.online_workers:
        message = f"no worker of the pool {POOL!r} is alive: runs wait for ever"
        found.append(Finding("pools", "error", message, f"slmsearch up, or prefect worker start --pool {POOL}"))
    return found


def check_limits(facts: Facts) -> list[Finding]:
    """Find device limits that are missing, wide open, or taken by nobody."""
    api = facts.prefect
    if api is None:
        return []
    known, found = {limit.name: limit for limit in api.limits}, []
    for name in facts.devices:
        if name not in known:
            message = f"the limit {name} is missing: what asks for it without `strict` runs unprotected"
            found.append(Finding("limits", "warning", message, f"prefect gcl create {name} --limit 1", fix="create limits"))
    for limit in (known[name] for name in known if name.startswith("gpu:")):
        if limit.limit != 1:
            message = f"the limit {limit.name} lets {limit.limit} stages on one device"
            found.append(Finding("limits", "warning", message, f"prefect gcl update {limit.name} --limit 1"))
        if limit.active_slots and not api.live_runs:
            message = f"{limit.active_slots} slot of {limit.name} is taken and no flow run is running: every later run waits"
            remedy = f"wait a minute for its lease to run out, then prefect gcl update {limit.name} --active-slots 0"
            found.append(Finding("limits", "warning", message, remedy))
    return found


def check_automations(facts: Facts) -> list[Finding]:
    """Find automations that crash healthy runs, that are there twice, or that sleep."""
    api = facts.prefect
    if api is None:
        return []
    beat = float(facts.environment.get("PREFECT_RUNNER_HEARTBEAT_FREQUENCY") or DEFAULT_HEARTBEAT_S)
    found = []
    for watch in api.watches:
        if not any(_expects_heartbeat(name) for name in watch.expect):
            continue
        if watch.within_s < BEATS * beat:
            times = f"gives up after {watch.within_s:.0f} s and heartbeats come every {beat:.0f} s"
            message = f"the automation {watch.name!r} {times}: healthy runs are crashed"
            found.append(Finding("automations", "error", message, f"set its window to {BEATS * beat:.0f} s or more"))
        if not watch.enabled:
            message = f"the automation {watch.name!r} is switched off: a killed run shows as running for ever"
            found.append(Finding("automations", "warning", message, f"prefect automation resume {watch.name!r}"))
    if api.scheduled and not any(_expects_heartbeat(name) for watch in api.watches for name in watch.expect):
        message = "nothing watches heartbeats: a flow run killed together with its worker shows as running for ever"
        found.append(Finding("automations", "warning", message, "slmsearch reconcile", fix="watch heartbeats"))
    twice = sorted({name for name in api.automations if api.automations.count(name) > 1})
    found += [
        Finding("automations", "warning", f"there are {api.automations.count(name)} automations named {name!r}: each acts",
            f"prefect automation delete {name!r}, and create it once")
        for name in twice
    ]  # fmt: skip
    return found


def check_nights(facts: Facts) -> list[Finding]:
    """Find nights that did not come, and those whose regression nobody has answered."""
    found = []
    for night in facts.nights:
        if night.age_h > night.late_h and facts.prefect is not None:
            message = f"the last nightly evaluation of {night.model} ended {night.age_h:.0f} hours ago"
            found.append(Finding("nights", "warning", message, "slmsearch run nightly; see the worker and the schedule"))
        if night.regressed:
            remedy = f"slmsearch nights says what fell; slmsearch rollback, or slmsearch nights --accept {night.name}"
            found.append(Finding("nights", "warning", f"{night.model} regressed in night {night.name}", remedy))
    return found


def _expects_heartbeat(name: str) -> bool:
    return HEARTBEAT.startswith(name[:-1]) if name.endswith("*") else name == HEARTBEAT


def check_disk(facts: Facts) -> list[Finding]:
    """Check that there is room and that it may be written to."""
    found = []
    for directory, free in facts.free_bytes.items():
        if free >= SOME_BYTES:
            continue
        severity: Severity = "error" if free < LITTLE_BYTES else "warning"
        message = f"{directory} has {free / (1 << 30):.1f} GB free"
        found.append(Finding("disk", severity, message, "slmsearch housekeeping shows what can go; or set paths.data_dir"))
    for directory in facts.unwritable:
        found.append(Finding("disk", "error", f"{directory} cannot be written to", "fix its permissions, or set paths.data_dir"))
    for directory in facts.entered_by_others:
        message = f"other users of this machine may read {directory}: corpora, episodes, reports"
        found.append(Finding("disk", "warning", message, f"chmod o-rwx {directory}"))
    return found


def check_leftovers(facts: Facts) -> list[Finding]:
    """Find what killed processes left behind."""
    found = []
    if facts.abandoned:
        message = f"{len(facts.abandoned)} half-written things whose writers are gone, such as {facts.abandoned[0]}"
        found.append(Finding("leftovers", "warning", message, "slmsearch doctor --fix removes them", fix="remove half-written things"))
    for path in facts.dead_records:
        message = f"{path} is left of `slmsearch up`, and its process is gone"
        found.append(Finding("locks", "warning", message, "slmsearch doctor --fix removes it", fix="remove dead records"))
    for path in facts.dead_locks:
        message = f"training {path.name} was broken off; its lock is free and its checkpoints are kept"
        found.append(Finding("locks", "info", message, "run the same command again to go on, or let `slmsearch housekeeping` take it"))
    if facts.orphans:
        message = f"{facts.orphans} MLflow runs show as running and their processes are gone"
        found.append(Finding("mlflow", "warning", message, "slmsearch doctor --fix ends them as KILLED", fix="end orphaned runs"))
    if facts.file_store:
        message = "the MLflow directory holds a store of files, which MLflow 3 refuses"
        found.append(Finding("mlflow", "warning", message, "unset MLFLOW_TRACKING_URI: runs go to the SQLite store beside it"))
    found += [Finding("looking", "warning", text, "fix that, and run `slmsearch doctor` again") for text in facts.damaged]
    return found


CHECKS = (
    *packages.CHECKS,
    check_binds,
    check_environment,
    check_pools,
    check_limits,
    check_automations,
    check_nights,
    check_disk,
    check_leftovers,
)
ORDER = ("error", "warning", "info")
MARKS = {"error": "ERROR  ", "warning": "warning", "info": "note   "}


def examine(facts: Facts) -> list[Finding]:
    """Return everything that is wrong, the worst first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: ORDER.index(finding.severity))


def render(findings: list[Finding], done: list[str]) -> str:
    """Render findings and what was done about them."""
    rows = [f"{MARKS[finding.severity]}  {finding.check}: {finding.describe()}" for finding in findings]
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in ORDER}
    verdict = f"{len(CHECKS)} checks: {counts['error']} errors, {counts['warning']} warnings"
    return "\n".join([*(f"fixed    {line}" for line in done), *rows, verdict])
