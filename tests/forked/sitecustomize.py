"""Read by every Python that the suite starts: one of those below is forked from a process that has loaded torch, instead of loading it.

It stays as what it is for who started it, with its process id: signals go on to the fork, the fork's end is its own, and its death is the
fork's. Python reads this file because `tests/conftest.py` puts the folder on PYTHONPATH.
"""

import gc
import os
import sys

gc.set_threshold(10_000)  # as `slmsearch.processes.processor.settle` does, also for the servers of others

SERVED = (
    "accelerate.commands.launch",
    "slmsearch.processes.call",
    "slmsearch.training.launch",
    "tests.slmsearch.training.toy_worker",
    "tests.slmsearch.training.uneven_worker",
    "tests.slmsearch.training.watched",
)
"""Modules that are run so."""
AT_IMPORT = ("HF_", "MKL_", "OMP_", "PYTHONHASHSEED", "PYTORCH_", "TORCH_", "TRANSFORMERS_", "TOKENIZERS_")
"""Variables that libraries read when they are loaded."""


def at_import(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_IMPORT)}


def find_module(arguments: list[str]) -> int:
    """Return where a command line names the module that it runs, or 0."""
    place = arguments.index("-m") + 1 if "-m" in arguments else 0
    return place if 0 < place < len(arguments) and arguments[place] in SERVED else 0


def become_fork(address: str, place: int) -> None:
    import array
    import json
    import signal
    import socket

    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(address)
        except OSError:  # it has not opened its socket yet, or the suite is over
            return
        fds = [fd for fd in map(int, os.listdir("/proc/self/fd")) if fd != line.fileno() and is_open(fd)]
        os.umask(umask := os.umask(0))
        told = {
            "arguments": sys.orig_argv[place:],
            "environment": dict(os.environ),
            "directory": os.getcwd(),
            "path": sys.path,
            "umask": umask,
            "fds": fds,
        }
        message = json.dumps(told).encode()
        line.sendmsg([len(message).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        line.sendall(message)
        heard = line.makefile("r")
        if not (pid := heard.readline()):  # its environment is not that of the server
            return
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda number, _: os.kill(int(pid), number))
        code = int(heard.readline() or -signal.SIGKILL)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


if (_address := os.environ.get("TESTS_FORK_SERVER")) and (_place := find_module(sys.orig_argv)):
    become_fork(_address, _place)
