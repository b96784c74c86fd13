"""What every engine offers: instances, each of which runs one program and is thrown away.

There are two engines, `bubblewrap` and `docker`. Where neither works nothing is run: there is no way round this interface.
"""

import subprocess
from dataclasses import dataclass
from typing import Protocol

from slmsearch.sandbox.channel import Channel
from slmsearch.sandbox.layers import Layer


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
    layers: frozenset[Layer]
    """Those that stand."""
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
