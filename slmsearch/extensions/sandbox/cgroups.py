"""One memory and process cgroup per sandbox, in version 1 or 2 of the kernel's interface, if this process may make them.

They bind a process whatever its user, and hold all its descendants. Where none can be made (a server
without root and without a delegated group), the unprivileged user, the system call filter and the process limits stand alone.
"""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slmsearch.extensions.sandbox.engine import wait_for
from slmsearch.extensions.sandbox.reaper import remove_groups

PREFIX = "slmsearch-sandbox-"
MOUNTS = Path("/sys/fs/cgroup")
MAX_PROCESSES = 8
"""bubblewrap's own process, the shell that becomes it, and the interpreter; a program cannot make one more."""
EMPTY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Group:
    """The cgroup of one sandbox: a directory per controller in version 1, one for all in version 2."""

    directories: tuple[Path, ...]

    @property
    def joined_by(self) -> list[str]:
        """Return the files to which a process writes 0 to join."""
        return [str(directory / "cgroup.procs") for directory in self.directories]

    def remove(self) -> bool:
        """Kill the rest of its processes and remove it; return False if one survives."""
        return wait_for(self._is_removed, EMPTY_SECONDS)

    def _is_removed(self) -> bool:
        for directory in self.directories:
            with suppress(OSError):
                for line in (directory / "cgroup.procs").read_text().split():
                    if line != "0":  # a process of a foreign namespace cannot be sent a signal
                        os.kill(int(line), 9)
        for directory in self.directories:
            with suppress(OSError):
                directory.rmdir()
        return not any(directory.exists() for directory in self.directories)


class Groups:
    """Factory of groups below one of this server's own."""

    def __init__(self, places: Mapping[str, Path], version: int) -> None:
        """Make this server's own group in the place of each controller, and remove those of servers that were killed.

        Raises:
            OSError: it cannot be made.
        """
        self.version = version
        name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(3)}"
        self._parents = {controller: place / name for controller, place in places.items()}
        for place in places.values():
            if not (place / "cgroup.procs").exists():
                raise FileNotFoundError(place)
            for left in place.glob(f"{PREFIX}*"):
                pid = left.name.removeprefix(PREFIX).partition("-")[0]
                if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                    remove_groups([left])
        for parent in self.parents:
            parent.mkdir()
        if version == 2:
            (self._parents["memory"] / "cgroup.subtree_control").write_text("+memory +pids")

    @property
    def parents(self) -> list[Path]:
        """Return this server's own groups."""
        return list(dict.fromkeys(self._parents.values()))

    def make(self, name: str, memory_bytes: int) -> Group:
        """Make an empty group with limits.

        Raises:
            OSError: it cannot be made.
        """
        directories = {controller: parent / name for controller, parent in self._parents.items()}
        for directory in dict.fromkeys(directories.values()):
            directory.mkdir()
        (directories["pids"] / "pids.max").write_text(str(MAX_PROCESSES))
        of_version = {1: ("limit_in_bytes", "memsw.limit_in_bytes", memory_bytes), 2: ("max", "swap.max", 0)}
        limit, swap, swap_bytes = of_version[self.version]
        (directories["memory"] / f"memory.{limit}").write_text(str(memory_bytes))
        with suppress(OSError):  # the kernel may not account for swap
            (directories["memory"] / f"memory.{swap}").write_text(str(swap_bytes))
        return Group(tuple(dict.fromkeys(directories.values())))

    def close(self) -> None:
        """Remove the server's own group."""
        for parent in self.parents:
            with suppress(OSError):
                parent.rmdir()


def find_groups(mounts: Path = MOUNTS, membership: Path = Path("/proc/self/cgroup")) -> Groups | None:
    """Make a group for this server; return None if that is not allowed or not possible."""
    try:
        own = dict(line.split(":", 2)[1:] for line in membership.read_text().splitlines())
        controllers = {name: path for names, path in own.items() for name in names.split(",")}
        if {"memory", "pids"} <= controllers.keys():
            places = {name: mounts / name / controllers[name].lstrip("/") for name in ("memory", "pids")}
            version = 1
        else:
            # In version 2 a group that holds processes has no children with limits: the top is the one place where that may be.
            places, version = dict.fromkeys(("memory", "pids"), mounts), 2
            (mounts / "cgroup.subtree_control").write_text("+memory +pids")
        return Groups(places, version)
    except (OSError, ValueError):
        return None
