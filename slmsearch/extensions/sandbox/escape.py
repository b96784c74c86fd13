"""Escapes: programs that try to break out, as data, with the target of each and the evidence of its success.

An escape counts as successful by what is found in its fixture, or by a word that its program can only print once it has succeeded.
"""

import ctypes
import os
import platform
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from string import Template

import psutil

from slmsearch.config import ProgramLimits
from slmsearch.extensions.sandbox.cgroups import find_groups
from slmsearch.extensions.sandbox.engine import MAX_TOTAL_BYTES, wait_for
from slmsearch.extensions.sandbox.execution import Execution
from slmsearch.extensions.sandbox.root import RUNNER

PROOF = "ESCAPED"
"""Text that only a successful program prints."""
POISON = b"poison"
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
SETTLE_SECONDS = 2.0
"""Time for evidence to appear after a program has ended, such as a packet that arrives or a process that ends."""
LATE_SECONDS = 1.5
"""Time past its limit at which a program counts as not stopped."""
IPC_RMID = 0
IPC_CREAT = 0o1000
VICTIM = """
import ctypes, os, sys
secret = ctypes.create_string_buffer(os.environ["SECRET"].encode())
print(ctypes.addressof(secret), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Escape:
    """A program that tries to break out."""

    name: str
    layers: tuple[str, ...]
    """Keys of `engine.LAYERS` that stop it."""
    evidence: str
    """Key of `EVIDENCE` that shows its success."""
    program: str
    """Python source, with `$names` of the fixture."""
    about: str = ""
    bounded: bool = False
    """True if it would run for ever; it is bounded, so that its control can run without harm."""
    needs: str = ""
    """Requirement of its control on this machine: `core_files` or `cgroup`."""
    wall_s: float = 2.0
    """Time limit: short if it must reach it, long if it must work."""
    own_root: bool = False
    """True if its control needs a file system of its own, because it damages it."""


class Fixture(ExitStack):
    """Targets of one run of one escape: secrets, a victim process, listeners, a folder to write to; use it as a context.

    Programs name what they need as `$name`, an attribute of this; it is made when a program names it, and deleted at the end.
    """

    def __init__(self, limits: ProgramLimits, server_port: str, token: str, secrets_: tuple[str, ...] = ()) -> None:
        """Prepare.

        Args:
            limits: limits of the program.
            server_port: port of the sandbox server.
            token: text that the program takes for the token of another session.
            secrets_: further secrets that must not leak.
        """
        super().__init__()
        self.secret = secrets.token_hex(12)
        self.secrets = (self.secret, *secrets_)
        self.nonce = secrets.token_hex(7)
        self.limits, self.server_port, self.token = limits, server_port, token
        self.server_pid, self.machine, self.hostname = os.getpid(), platform.machine(), platform.node()
        self.overtime_s = limits.wall_s + LATE_SECONDS + 1.0
        """Seconds for which a program continues that should have been stopped."""
        self.overtime_cpu_s = limits.wall_s + 0.6
        """The same in seconds of CPU."""
        self.writable = "/tmp"
        """Path at which a program would write to `scratch`."""
        self.root: Path | None = None
        """File system of the instance, on the host."""
        self.lingers = False
        """True if its interpreter was still alive some time after the answer."""
        self._receivers: list[socket.socket] = []

    def render(self, program: str) -> str:
        """Fill in the `$names` of a program."""
        template = Template(program)
        return template.substitute({name: str(getattr(self, name)) for name in template.get_identifiers()})

    @cached_property
    def folder(self) -> Path:
        """Return a folder that every user may enter."""
        path = Path(tempfile.mkdtemp(prefix="slmsearch-escape-"))
        self.callback(shutil.rmtree, path, ignore_errors=True)
        path.chmod(0o755)
        (path / f"named-{self.secret}").touch()
        return path

    @cached_property
    def secret_file(self) -> Path:
        """Return a file of the host that every user may read."""
        return self._write(self.folder / "public", 0o644)

    @cached_property
    def root_only_file(self) -> Path:
        """Return a file that only the server's user may read."""
        return self._write(self.folder / "private", 0o600)

    @cached_property
    def file_handle(self) -> tuple[int, bytes]:
        """Return type and bytes of the kernel's handle of the secret file."""
        buffer = ctypes.create_string_buffer(136)
        ctypes.memmove(buffer, (128).to_bytes(4, sys.byteorder), 4)
        mount = ctypes.c_int()
        if ctypes.CDLL(None).name_to_handle_at(-100, os.fsencode(self.secret_file), buffer, ctypes.byref(mount), 0) != 0:
            raise OSError("this file system gives no handles")
        length = int.from_bytes(buffer.raw[:4], sys.byteorder)
        return int.from_bytes(buffer.raw[4:8], sys.byteorder), buffer.raw[8 : 8 + length]

    @cached_property
    def scratch(self) -> Path:
        """Return a folder of the host that every user may write to, if the layers allow it."""
        path = self.folder / "scratch"
        path.mkdir()
        path.chmod(0o777)
        return path

    @cached_property
    def shared_memory_file(self) -> Path:
        """Return a file in /dev/shm."""
        path = self._write(Path("/dev/shm") / f"slmsearch-{self.nonce}", 0o644)
        self.callback(path.unlink, missing_ok=True)
        return path

    def _write(self, path: Path, mode: int) -> Path:
        path.write_text(self.secret)
        path.chmod(mode)
        return path

    @cached_property
    def victim(self) -> "tuple[subprocess.Popen[str], int]":
        """Start a process of the server's user with the secret in memory, environment and command line; return it and the address."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", VICTIM, self.secret],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"SECRET": self.secret},
        )
        self.enter_context(process)
        self.callback(process.kill)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    @property
    def victim_pid(self) -> int:
        """Return the victim's process id on the host."""
        return self.victim[0].pid

    @property
    def victim_address(self) -> int:
        """Return the address of the secret in its memory."""
        return self.victim[1]

    @cached_property
    def tcp_port(self) -> int:
        """Return the port of a listener on loopback."""
        listener = self.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._receivers.append(listener)
        return int(listener.getsockname()[1])

    @cached_property
    def udp_port(self) -> int:
        """Return the port of a socket that takes packets on loopback."""
        return int(self._receive(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1])

    @cached_property
    def socket_path(self) -> Path:
        """Return the name of a socket in the file system."""
        path = self.scratch / "socket"
        self._receive(socket.AF_UNIX, str(path))
        path.chmod(0o777)
        return path

    @cached_property
    def abstract_name(self) -> str:
        """Return the name of a socket outside the file system."""
        name = f"slmsearch-{self.nonce}"
        self._receive(socket.AF_UNIX, f"\0{name}")
        return name

    def _receive(self, family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
        receiver = self.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        receiver.bind(address)
        self._receivers.append(receiver)
        return receiver

    @cached_property
    def shm_key(self) -> int:
        """Return the key of a System V shared memory that every user may read."""
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        key = secrets.randbelow(2**30) + 1
        number = libc.shmget(key, 4096, IPC_CREAT | 0o666)
        address = libc.shmat(number, None, 0)
        ctypes.memmove(address, self.secret.encode(), len(self.secret))
        libc.shmdt(ctypes.c_void_p(address))
        self.callback(libc.shmctl, number, IPC_RMID, None)
        return key

    # What is found afterwards.

    def found_message(self) -> bool:
        """Return whether the nonce arrived at a socket."""
        ready = select.select(self._receivers, [], [], SETTLE_SECONDS / 4)[0]
        return any(self.nonce.encode() in self._take(receiver) for receiver in ready)

    def _take(self, receiver: socket.socket) -> bytes:
        if receiver.type == socket.SOCK_DGRAM:
            return receiver.recv(1024)
        connection, _ = receiver.accept()
        with connection:
            connection.settimeout(SETTLE_SECONDS)
            return connection.recv(1024)

    def found_bytes(self) -> int:
        """Count the bytes that were written to the host."""
        return sum(path.stat().st_size for path in self.scratch.rglob("*") if path.is_file())

    def found_files(self) -> list[str]:
        """List the files that were made on the host."""
        return sorted(path.name for path in self.scratch.iterdir())

    def found_survivor(self) -> bool:
        """Return whether a process named after the nonce is alive, and kill it."""
        if wait_for(lambda: not self._namesakes(), SETTLE_SECONDS):
            return False
        for process in self._namesakes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return True

    def _namesakes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter(["name"]) if process.info["name"] == self.nonce]


Evidence = Callable[[Fixture, Execution], bool]
EVIDENCE: dict[str, Evidence] = {
    "proof": lambda fixture, execution: PROOF in execution.stdout,
    "secret": lambda fixture, execution: any(secret in execution.stdout for secret in fixture.secrets),
    "message": lambda fixture, execution: fixture.found_message(),
    "victim_dead": lambda fixture, execution: wait_for(lambda: fixture.victim[0].poll() is not None, SETTLE_SECONDS / 4),
    "written": lambda fixture, execution: fixture.found_bytes() > 0,
    "filled": lambda fixture, execution: fixture.found_bytes() > 8 << 20,
    "many_files": lambda fixture, execution: len(fixture.found_files()) > 100,
    "device": lambda fixture, execution: fixture.found_files() == ["null"],
    "core": lambda fixture, execution: any(name.startswith("core") for name in fixture.found_files()),
    "poisoned": lambda fixture, execution: fixture.root is not None and (fixture.root / RUNNER.lstrip("/")).read_bytes().endswith(POISON),
    "survivor": lambda fixture, execution: fixture.found_survivor(),
    "lingers": lambda fixture, execution: fixture.lingers,
    "overtime": lambda fixture, execution: execution.seconds - execution.tool_seconds > fixture.limits.wall_s + LATE_SECONDS,
    "oversize": lambda fixture, execution: len(execution.stdout) > 2 * fixture.limits.output_chars,
    "flooded": lambda fixture, execution: execution.received_bytes > 2 * MAX_TOTAL_BYTES,
    "calls": lambda fixture, execution: len(execution.calls) > fixture.limits.calls,
}
"""Name -> check whether an escape succeeded, by its traces or its output."""


def load_escapes() -> list[Escape]:
    """Load all escapes, in the order of files and lines."""
    folder = resources.files("slmsearch.extensions.sandbox") / "escapes"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    tables = [table for file in files for table in tomllib.loads(file.read_text(encoding="utf-8"))["escape"]]
    return [Escape(**{**table, "layers": tuple(table["layers"])}) for table in tables]


def why_no_control(escape: Escape) -> str:
    """Return why an escape's control cannot run on this machine; empty if it can."""
    if "identity" in escape.layers and os.getuid() != 0:
        return "needs root"
    if escape.needs == "core_files" and (not CORE_PATTERN.is_file() or CORE_PATTERN.read_text().startswith(("|", "/"))):
        return "this machine writes no core files where a program crashes"
    if escape.needs == "cgroup" or escape.layers == ("cgroup",):
        groups = find_groups()
        if groups is None:
            return "no cgroup can be made here"
        groups.close()
    return ""
