"""What every engine offers: instances, each of which runs one program and is thrown away.

There are two engines, `bubblewrap` and `docker`. Where neither works nothing is run: there is no way round this interface.
"""

import subprocess
from dataclasses import dataclass
from typing import Protocol

from slmsearch.sandbox.channel import Channel

LAYERS = {
    "root": "the file system is an interpreter and nothing else; no /proc, /sys or /dev",
    "read_only": "nothing can be written anywhere",
    "environment": "no variable of the server is passed on",
    "descriptors": "no open file of the server is passed on",
    "pid": "own process namespace",
    "network": "own network namespace, with no interface up",
    "ipc": "own System V IPC and POSIX message queues",
    "uts": "own host name",
    "cgroup_view": "own cgroup namespace",
    "nesting": "no further user namespace can be made",
    "identity": "a user id that nobody else has, and no capabilities",
    "syscalls": "the seccomp filter",
    "rlimits": "limits of the process: memory, CPU, processes, open files, file size, core dumps",
    "cgroup": "memory and process cgroup, where the server may make one",
    "clock": "the server's clock",
    "output": "the server's limit on what comes back",
    "calls": "the server's count of tool calls",
    "patience": "the server never waits for a program to read",
    "frames": "the server's limit on the length of one message",
    "kill": "the sandbox is killed as soon as the program has answered",
    "token": "calls reach only the tools of the session whose token came with the program",
}
"""The isolation layers between a program and the machine. No setting and no request takes one down."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What an interpreter has taken so far, its start included, as the kernel counts it; zeros where that is not known."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    """The most that was resident at any time."""


class Instance(Protocol):
    """A sandbox with one interpreter in it that waits for its program."""

    channel: Channel
    """Messages from and to the runner."""

    def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the runner reports.

        Raises:
            SandboxError: it does not; the message holds the engine's own words.
        """
        ...

    def usage(self) -> Usage:
        """Measure, from outside."""
        ...

    def is_alive(self) -> bool:
        """Say whether its interpreter runs."""
        ...

    def kill(self) -> None:
        """End its program at once; may be called again."""
        ...

    def terminate(self) -> bool:
        """Kill it, wait until nothing is left and give back what it held; False if something would not die."""
        ...


class Engine(Protocol):
    """Starts instances."""

    name: str
    layers: frozenset[str]
    """Keys of `LAYERS`: those that stand on this machine."""
    notes: tuple[str, ...]
    """What a user should know about this machine, such as a missing cgroup."""

    def start(self) -> Instance:
        """Start an instance and return without waiting for it.

        Call it from a thread that lives as long as the server: the kernel ties the instance to the thread that started it.

        Raises:
            SandboxError: it cannot be started.
        """
        ...

    def start_reaper(self) -> "subprocess.Popen[bytes]":
        """Start the process that clears up if this one is killed; see `reaper.start_reaper`."""
        ...

    def close(self) -> None:
        """Remove what the engine keeps on this machine while it runs."""
        ...
