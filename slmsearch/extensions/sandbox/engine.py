"""Interface of engines: instances, each of which runs one program and is discarded.

There are two engines, `bubblewrap` and `docker`. Where neither works nothing is run: there is no way round this interface.

Messages to and from an instance go over two pipes, with a deadline for each and a limit on their size. The other side may send
anything, at any pace, or nothing; it may stop reading. None of that makes the server wait longer than the deadline or keep more than
the limit.
"""

import json
import marshal
import os
import select
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from slmsearch.errors import SandboxError

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
"""The isolation layers between a program and the machine. No setting and no request removes one."""
PAUSE_SECONDS = 0.01
HEADER_BYTES = 4
MAX_MESSAGE_BYTES = 256 * 1024
MAX_TOTAL_BYTES = 4 * 1024 * 1024
"""Maximum bytes of all messages of one program; far more than tool calls and the returned part of its output."""
BLOCK = 65536
MARSHAL_VERSION = 2
"""Version of marshal that every Python 3 reads; the Python in a container may differ from this one."""


class ChannelError(Exception):
    """Error of an ended conversation; the message gives the reason, in words for the model."""


class Channel:
    """One side of a conversation."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        """Take over two descriptors."""
        self.received_bytes = 0
        self.max_message_bytes, self.max_total_bytes = MAX_MESSAGE_BYTES, MAX_TOTAL_BYTES
        self._read_fd, self._write_fd = read_fd, write_fd
        self._buffer = bytearray()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)

    def receive(self, deadline: float | None) -> dict[str, object]:
        """Return the next message; `deadline` is by `time.monotonic()`, None waits for ever.

        Raises:
            ChannelError: none came in time, the other side has ended, or it sent no valid message.
        """
        length = int.from_bytes(self._take(HEADER_BYTES, deadline), "big")
        if length > self.max_message_bytes:
            raise ChannelError("stopped: it wrote to the sandbox's own channel")
        body = bytes(self._take(length, deadline))
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise ChannelError("stopped: it wrote to the sandbox's own channel")
        return message

    def send(self, message: dict[str, object], deadline: float | None) -> None:
        """Write a message: dicts, lists, tuples, strings, numbers and None.

        Raises:
            ChannelError: the other side has ended or does not read.
        """
        body = marshal.dumps(message, MARSHAL_VERSION)
        data = memoryview(len(body).to_bytes(HEADER_BYTES, "big") + body)
        while data:
            _wait_for_pipe(self._write_fd, select.POLLOUT, deadline)
            try:
                data = data[os.write(self._write_fd, data[:BLOCK]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelError("stopped: its interpreter ended") from error

    def _take(self, count: int, deadline: float | None) -> bytearray:
        while len(self._buffer) < count:
            _wait_for_pipe(self._read_fd, select.POLLIN, deadline)
            try:
                block = os.read(self._read_fd, BLOCK)
            except BlockingIOError:
                continue
            if not block:
                raise ChannelError("stopped: its interpreter ended")
            self.received_bytes += len(block)
            if self.received_bytes > self.max_total_bytes:
                raise ChannelError("stopped: it wrote too much")
            self._buffer += block
        taken = self._buffer[:count]
        del self._buffer[:count]
        return taken


def _wait_for_pipe(fd: int, event: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(fd, event)
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise ChannelError("stopped: it ran out of time")
        # A pipe whose other end is closed reports at once, too; reading or writing then says so.
        if poll.poll(None if left is None else max(1, int(left * 1000))):
            return


class Instance(ABC):
    """A sandbox with one interpreter in it that waits for its program; the pipes of one process lead to it."""

    def __init__(self, process: subprocess.Popen[bytes], engine: str, remedy: str) -> None:
        """Take over a process that was just started; if it does not come up, the error names engine and remedy."""
        assert process.stdin and process.stdout and process.stderr
        self.channel = Channel(process.stdout.fileno(), process.stdin.fileno())
        self._pipes = (process.stdin, process.stdout, process.stderr)
        self._process, self._engine, self._remedy = process, engine, remedy
        self._lock = threading.Lock()

    def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the runner reports.

        Raises:
            SandboxError: it does not; the message holds the engine's own words.
        """
        try:
            if self.channel.receive(time.monotonic() + timeout_s) != {"ready": "yes"}:
                raise ChannelError("its first word is not that it is ready")
            self._find_interpreter()
        except (ChannelError, OSError, ValueError, KeyError) as error:
            raise SandboxError(f"{self._engine} starts no program ({self._last_words() or error}); {self._remedy}") from error

    @abstractmethod
    def _find_interpreter(self) -> None:
        """Hold the interpreter once it reports; raise an error if it has ended."""

    @abstractmethod
    def is_alive(self) -> bool:
        """Return whether its interpreter runs."""

    @abstractmethod
    def kill(self) -> None:
        """End its program at once; a second call is harmless."""

    @abstractmethod
    def terminate(self) -> bool:
        """Kill it, wait for the end of its processes and free what it held; return False if one survives."""

    def _has_ended(self, timeout_s: float) -> bool:
        """Wait for the started process, and return whether it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.returncode is not None

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()

    def _last_words(self) -> str:
        self._has_ended(1.0)
        errors = self._pipes[2]
        os.set_blocking(errors.fileno(), False)
        lines = (errors.read(4096) or b"").decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


def open_process(
    command: list[str],
    environment: Mapping[str, str] | None,
    folder: str | None = None,
    pass_fds: tuple[int, ...] = (),
    close_fds: bool = True,
) -> subprocess.Popen[bytes]:
    """Start the process whose pipes lead to an instance; with `environment` None it gets all variables of this process."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=folder,
        env=environment,
        pass_fds=pass_fds,
        close_fds=close_fds,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds; return False if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


class SandboxEngine(Protocol):
    """Base class of engines, which start instances."""

    name: str
    layers: frozenset[str]
    """Keys of `LAYERS` that this machine provides."""
    notes: tuple[str, ...]
    """Notes for the user about this machine, such as a missing cgroup."""

    def start(self) -> Instance:
        """Start an instance and return without waiting for it.

        Call it from a thread that lives as long as the server: the kernel ties the instance to the thread that started it.

        Raises:
            SandboxError: it cannot be started.
        """
        ...

    def start_reaper(self) -> subprocess.Popen[bytes]:
        """Start the process that clears up if this one is killed; see `reaper.start_reaper`."""
        ...

    def close(self) -> None:
        """Remove what the engine keeps on this machine while it runs."""
        ...
