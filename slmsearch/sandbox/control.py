"""Controls of the escape suite: an instance without some isolation layers, and without any limit of the server's own.

Only the suite imports this module; nothing that serves can reach it.
"""

import os
import subprocess
import sys
from collections.abc import Set
from pathlib import Path

from slmsearch.config import ProgramLimits
from slmsearch.sandbox.bubblewrap import Bubblewrap, BubblewrapInstance
from slmsearch.sandbox.cgroups import Group
from slmsearch.sandbox.checks import ScriptedTools
from slmsearch.sandbox.engine import Instance, open_process
from slmsearch.sandbox.execution import Conversation, Execution, order_program

LONG_SECONDS = 1_000_000.0
"""No program that ends by itself takes as long."""


class Weakened(Bubblewrap):
    """bubblewrap without some of its layers."""

    def __init__(self, limits: ProgramLimits, state_dir: Path, without: Set[str], scratch: Path, own_root: bool = False) -> None:
        """Take layers down.

        Args:
            limits: see `Bubblewrap`.
            state_dir: where the instances' file system is kept.
            without: keys of `engine.LAYERS`.
            scratch: directory that can be written to without `read_only`.
            own_root: without `read_only` the instances' file system can be written to; needs a `state_dir` nobody else uses.
        """
        super().__init__(limits, state_dir)
        self._without, self._scratch, self._own_root = without, scratch, own_root
        self._inside = str(self.root) if "root" in without else ""
        if "cgroup" in without and self._groups is not None:
            self._groups.close()
            self._groups = None

    def start(self) -> BubblewrapInstance:
        """See `Engine.start`."""
        instance = super().start()
        instance.channel.max_message_bytes = instance.channel.max_total_bytes = sys.maxsize
        return instance

    def _open(self, command: list[str], fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
        environment = None if "environment" in self._without else dict[str, str]()
        if "descriptors" not in self._without:
            return open_process(command, environment, "/", fds)
        for fd in fds:
            os.set_inheritable(fd, True)
        return open_process(command, environment, "/", close_fds=False)

    def _prelude(self, number: int, group: Group | None) -> list[str]:
        command = super()._prelude(number, group)
        setpriv = command.index(self._setpriv) if self._setpriv in command and "identity" in self._without else len(command)
        return command[:setpriv]

    def _layer_options(self, filter_fd: int) -> dict[str, list[str]]:
        without = self._without | ({"nesting"} if "identity" in self._without else set())
        options = {layer: words for layer, words in super()._layer_options(filter_fd).items() if layer not in without}
        if "root" in without:
            options["root"] = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"]
        elif self._own_root and "read_only" in without:
            options["root"] = ["--bind", str(self.root), "/"]
        if "read_only" in without:
            options["scratch"] = ["--bind", str(self._scratch), writable_path(self._scratch, without)]
        return options


def writable_path(scratch: Path, without: Set[str]) -> str:
    """Return where a program of a `Weakened` instance sees the directory that it can write to."""
    return str(scratch) if "root" in without else "/tmp"


def execute_unbounded(instance: Instance, program: str, limits: ProgramLimits, rlimits: bool) -> Execution:
    """Run a program that ends by itself without clock, count or cut, and leave its interpreter alive.

    Args:
        instance: of an engine that limits no messages.
        program: Python.
        limits: of the process.
        rlimits: whether they are set.
    """
    unbounded = limits.model_copy(update={"wall_s": LONG_SECONDS, "calls": sys.maxsize, "output_chars": sys.maxsize})
    order = order_program(program, unbounded)
    return Conversation(instance, ScriptedTools().serve_one, unbounded, 0.0).hold(order if rlimits else {**order, "limits": None})
