"""A process that has loaded the libraries of a training process and forks itself for each that the suite starts: see `sitecustomize.py`.

python server.py SOCKET    # until its standard input ends
"""

import array
import fcntl
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from sitecustomize import at_import

BEFORE = dict(os.environ)
"""Libraries set variables of their own when they are loaded."""
MAX_FDS = 250
HEADER_BYTES = 8


def load() -> None:
    import trl.trainer.grpo_trainer
    import trl.trainer.sft_trainer  # noqa: F401


class Server:
    """Forks on request; the fork leaves `wait_for_fork`."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ, self.accept)
        self.selector.register(0, selectors.EVENT_READ, self.end)
        self.forks: dict[int, socket.socket] = {}
        self.forked: dict[str, Any] | None = None

    def wait_for_fork(self) -> dict[str, Any]:
        """Serve; return in a fork only, with what it is to run."""
        while self.forked is None:
            for key, _ in self.selector.select():
                key.data(key.fileobj)
                if self.forked is not None:
                    break
        return self.forked

    def end(self, _: object) -> None:
        for pid in self.forks:
            self.kill(pid)
        os._exit(0)

    def accept(self, _: object) -> None:
        line, _address = self.listener.accept()
        told, fds = receive(line)
        if told is None or at_import(told["environment"]) != at_import(BEFORE):
            line.close()
        elif pid := os.fork():
            self.forks[pid] = line
            with suppress(OSError):
                line.sendall(f"{pid}\n".encode())
            self.selector.register(line, selectors.EVENT_READ, lambda _: self.kill(pid))
            self.selector.register(os.pidfd_open(pid), selectors.EVENT_READ, lambda fd: self.reap(pid, fd))
        else:
            self.leave(line)
            self.forked = {**told, "received": fds}
            return
        for fd in fds:
            os.close(fd)

    def kill(self, pid: int) -> None:
        """Kill a fork and what it started: who it stands for is gone."""
        with suppress(KeyError):
            self.selector.unregister(self.forks[pid])
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)

    def reap(self, pid: int, pidfd: int) -> None:
        self.selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        line = self.forks.pop(pid)
        with suppress(KeyError):
            self.selector.unregister(line)
        with suppress(OSError):
            line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        line.close()

    def leave(self, line: socket.socket) -> None:
        """Close in a fork what is the server's."""
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, int) and key.fileobj:
                os.close(key.fileobj)
        for other in (line, self.listener, *self.forks.values()):
            other.close()
        self.selector.close()


def receive(line: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    fds = array.array("i")
    header, ancillary, _, _ = line.recvmsg(HEADER_BYTES, socket.CMSG_SPACE(MAX_FDS * fds.itemsize))
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data)
    with line.makefile("rb") as file:
        message = file.read(int.from_bytes(header, "big"))
    return (json.loads(message) if message else None), list(fds)


def settle(told: dict[str, Any]) -> None:
    """Give a fork the descriptors, environment and directory of the process it stands for."""
    os.setsid()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 512) for fd in told["received"]]  # out of the way of the numbers that they shall have
    for fd in (fd for fd in told["received"] if fd not in told["fds"]):
        os.close(fd)
    for fd, number in zip(high, told["fds"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    set_by_libraries = {name: value for name, value in os.environ.items() if name not in BEFORE}
    os.environ.clear()
    os.environ.update({**set_by_libraries, **told["environment"]})
    os.chdir(told["directory"])
    os.umask(told["umask"])
    sys.path[:] = told["path"]
    sys.argv[:] = told["arguments"]
    if "PYTHONUNBUFFERED" in os.environ:
        sys.stdout.reconfigure(write_through=True)


if __name__ == "__main__":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(64)
    load()
    gc.collect()
    gc.freeze()
    told = Server(listener).wait_for_fork()
    settle(told)
    del listener
    module = told["arguments"][0]
    for name in ("sitecustomize", "server"):
        sys.modules.pop(name, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
