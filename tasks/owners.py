"""Owners of runs: which process owns a run, whether it still lives, and whether a server answers at all."""

import os
import socket
import time
import urllib.error
import urllib.request

import psutil

from slmsearch.artifacts.writers import pid_scope
from slmsearch.errors import ServiceError
from slmsearch.foreign import cause_of, without_credentials

HEARTBEAT = "prefect.flow-run.heartbeat"
"""Event that a flow run sends while it lives."""
RUN_VARIABLE = "PREFECT__FLOW_RUN_ID"
"""Environment variable with the flow run that a worker started a process for."""
BEATS = 3
"""Missing heartbeats after which a flow run counts as dead: a smaller number crashes healthy runs."""
RESTART_S = 45.0
"""Time within which a supervised server answers again after it has ended."""
START_TOLERANCE_S = 2.0
"""Difference of two readings of a process's start below which it is the same process."""


def owner_tag() -> str:
    """Return a tag by which another process can find out later whether this one lives: host, id, start, machine."""
    return f"{socket.gethostname()} {os.getpid()} {started_s(psutil.Process()):.0f} {pid_scope()}".strip()


def started_s(process: psutil.Process) -> float:
    """Return the start time of a process; on Linux in seconds since the boot, which does not move when the clock is set.

    The kernel counts from the boot; psutil adds the boot time by the current clock, which would give a living process another start.
    """
    return float(process.create_time() - (psutil.boot_time() if psutil.LINUX else 0.0))


def is_orphan(owner: str) -> bool:
    """Return whether the process named by `owner_tag` has ended; processes of other hosts count as alive.

    After a restart of the host, or of a container that keeps its name, every earlier process has ended.
    """
    host, pid, started, machine = _parts(owner)
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    if machine and pid_scope() and machine != pid_scope():
        return True
    try:
        process = psutil.Process(int(pid))
        # A zombie is dead: its parent has not read its exit code yet.
        return bool(abs(started_s(process) - float(started)) > START_TOLERANCE_S or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def is_neighbour(owner: str) -> bool:
    """Return whether an owner's process id is in this process' scope, so that a missing process is one that has ended."""
    host, pid, _, machine = _parts(owner)
    return host == socket.gethostname() and pid.isdecimal() and machine == pid_scope()


def describe_owner(owner: str) -> str:
    """Describe an owner for people."""
    host, pid, *_ = _parts(owner)
    return f"process {pid} on {host}" if host else "a process that left no name"


def process_of(owner: str) -> psutil.Process | None:
    """Return the living process of a neighbour; None if it has ended or is elsewhere."""
    if not is_neighbour(owner) or is_orphan(owner):
        return None
    try:
        return psutil.Process(int(_parts(owner)[1]))
    except psutil.Error:
        return None


def begins(pid: int, flow_run_id: str) -> bool:
    """Return whether a process of this machine is the living one that a worker started for a flow run; true if unsure."""
    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.environ().get(RUN_VARIABLE) == flow_run_id)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _parts(owner: str) -> tuple[str, str, str, str]:
    host, pid, started, machine = ([*owner.split(), "", "", "", ""])[:4]
    return host, pid, started, machine


def require_reachable(uri: str) -> None:
    """Check in seconds, not in minutes of retries, that an MLflow server answers.

    A process that a worker started for a flow run waits for the server a while: a supervisor restarts it.

    Raises:
        ServiceError: no server answers.
    """
    if not uri.startswith(("http://", "https://")):
        return
    deadline = time.monotonic() + (RESTART_S if os.environ.get(RUN_VARIABLE) else 0.0)
    while (error := _unreachable(f"{without_credentials(uri).rstrip('/')}/health")) is not None:
        if time.monotonic() >= deadline:
            raise ServiceError(f"no MLflow server answers at {uri} ({cause_of(error)}); start it, or unset tracking.uri") from error
        time.sleep(0.5)


def _unreachable(address: str) -> Exception | None:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return None
    except urllib.error.HTTPError:
        return None  # it answers; a missing page or permission shows in the first real call
    except (OSError, ValueError) as error:
        return error
