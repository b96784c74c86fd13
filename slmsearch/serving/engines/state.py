"""Shared state of a server for other commands: one file for each role, and a lock that its supervisor holds.

The lock shows whether a process supervises a server; the file names it and the address. A killed supervisor leaves the file behind and the
lock free.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import psutil
from filelock import FileLock, Timeout

from slmsearch.artifacts.files import replace_text
from slmsearch.errors import ServiceError
from slmsearch.processes import watchdog
from slmsearch.processes.child import GRACE_SECONDS, wait_for_end
from slmsearch.processes.watchdog import kill_belongings
from slmsearch.serving.engines.request import Role

STOP_SECONDS = GRACE_SECONDS + 15.0
"""Time limit for a supervisor to stop its server; then it is killed, and its watchdog ends the server."""
END_SECONDS = 10.0
"""Time limit for a supervisor to end after its server, and for a watchdog to end a server after its supervisor's death."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ServerState:
    """Last description of a server by its supervisor."""

    role: Role
    engine: str
    model: str
    """Requested model."""
    name: str
    """Name that clients use for it."""
    base_url: str
    log: str
    supervisor: int
    """Process ids of supervisor, watchdog and server; 0 for one that has not started."""
    watchdog: int = 0
    server: int = 0
    mark: str = ""
    """Mark in the environment of the server and all it starts."""
    phase: Literal["starting", "ready", "failed"] = "starting"
    error: str = ""
    started: str = ""
    """Time of the start, ISO 8601 with its zone."""
    detached: bool = False


def state_file(folder: Path, role: Role) -> Path:
    """Return the path of the state of a role's server."""
    return folder / f"{role}.json"


def write_state(folder: Path, state: ServerState) -> None:
    """Replace the state of a role's server."""
    replace_text(state_file(folder, state.role), json.dumps(asdict(state), indent=1))


def read_state(folder: Path, role: Role) -> ServerState | None:
    """Return the written state of a role's server, running or not; None if there is no readable one."""
    try:
        return ServerState(**json.loads(state_file(folder, role).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def held(folder: Path, role: Role) -> Iterator[None]:
    """Hold a role for this process.

    Raises:
        ServiceError: another process supervises a server in this role.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{role}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ServiceError(f"a {role} server is supervised already; `slmsearch serve {role} --stop` stops it") from error
    try:
        yield
    finally:
        lock.release()


def is_supervised(folder: Path, role: Role) -> bool:
    """Return whether a living supervisor has a server in this role."""
    if not (folder / f"{role}.lock").exists():
        return False
    try:
        with FileLock(folder / f"{role}.lock", timeout=0):
            return False
    except Timeout:
        return True


def running_state(folder: Path, role: Role) -> ServerState | None:
    """Return the state of a role's server if it is supervised; wait a moment for a state that is being written."""
    deadline = time.monotonic() + 5.0
    while is_supervised(folder, role):
        state = read_state(folder, role)
        if state is not None and psutil.pid_exists(state.supervisor):
            return state
        if time.monotonic() > deadline:
            raise ServiceError(f"a {role} server is supervised, but {state_file(folder, role)} does not say by whom; end it by hand")
        time.sleep(_POLL_SECONDS)
    return None


def stop_server(folder: Path, role: Role) -> ServerState | None:
    """Stop a role's server and wait until all its processes have ended; return its state, None if none ran.

    Raises:
        ServiceError: one of its processes cannot be ended.
    """
    state = running_state(folder, role)
    if state is not None:
        _end(state.supervisor, "terminate")
        deadline = time.monotonic() + STOP_SECONDS
        while (left := is_supervised(folder, role)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if left:
            _end(state.supervisor, "kill")
        wait_for_end(state.supervisor, END_SECONDS)
    clear_state(folder, role)
    return state


def clear_state(folder: Path, role: Role) -> None:
    """Remove the state of a dead supervisor, and end processes that a killed supervisor and a killed watchdog left running.

    Raises:
        ServiceError: one of its processes cannot be ended.
    """
    state = read_state(folder, role)
    stuck: list[int] = []
    if state is not None:
        wait_for_end(state.watchdog, END_SECONDS, watchdog.__file__)
        stuck = kill_belongings(state.mark)
    with suppress(FileNotFoundError):
        state_file(folder, role).unlink()
    if stuck:
        raise ServiceError(f"processes {stuck} of the {role} server do not end, not even when killed; look at what they wait for")


def _end(pid: int, method: Literal["terminate", "kill"]) -> None:
    with suppress(psutil.NoSuchProcess):
        getattr(psutil.Process(pid), method)()
