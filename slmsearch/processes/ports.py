"""Port checks and reservations."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

import psutil

from slmsearch.errors import ServiceError

LOOPBACK = "127.0.0.1"

_SHOWN_CHARS = 80
_PORTS = range(20_000, 32_000)
_PORTS_EACH = 97
"""Number of ports that a process gives out before it reaches those of the next process."""
_NUMBERS = count()


def require_free_port(port: int, option: str, host: str = LOOPBACK) -> None:
    """Refuse a port that is in use, and name the process that uses it.

    Args:
        port: wanted port.
        option: flag that chooses another one.
        host: address to listen on.

    Raises:
        ServiceError: the port is in use, or the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError as error:
            raise ServiceError(f"port {port} needs more rights than this process has; choose one above 1023 with {option}") from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ServiceError(f"cannot listen on {host} ({error.strerror or error}); give an address of this machine") from error
            holder = find_listener(port)
            by = f" by {describe_process(holder)}" if holder else ""
            raise ServiceError(f"port {port} is in use{by}; stop what listens there or choose another with {option}") from error


@contextmanager
def reserve_port(port: int, option: str) -> Iterator[None]:
    """Reserve a loopback port for servers of this user, also while none of them runs: another process on it would get their clients.

    Such a server uses SO_REUSEPORT. Only Linux keeps other users away from it; elsewhere the port is only checked.

    Args:
        port: wanted port.
        option: flag that chooses another one.

    Raises:
        ServiceError: the port is in use.
    """
    require_free_port(port, option)
    with socket.socket() as reservation:
        if sys.platform == "linux":
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # without SO_REUSEADDR, which would let everybody in
            try:
                reservation.bind((LOOPBACK, port))
            except OSError as error:
                raise ServiceError(f"port {port} was taken this moment, or a minute ago; choose another with {option}") from error
        yield


def bind_reserved(port: int) -> socket.socket:
    """Return a socket on a port that `reserve_port` keeps; it does not listen yet."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.platform == "linux":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((LOOPBACK, port))
    return bound


def free_port() -> int:
    """Return a free port of the loopback interface.

    Processes walk through different ports below those that systems give to connections: two callers at a time get different ones.
    """
    while True:
        port = _PORTS[(os.getpid() * _PORTS_EACH + next(_NUMBERS)) % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


def find_listener(port: int) -> psutil.Process | None:
    """Return the process that listens on a TCP port; None if there is none or it is not visible."""
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return psutil.Process(connection.pid)
    return None


def describe_process(process: psutil.Process) -> str:
    """Describe a process by its id and command line."""
    words = ""
    with suppress(psutil.Error):
        words = " ".join(process.cmdline()) or process.name()
    shown = words if len(words) <= _SHOWN_CHARS else words[:_SHOWN_CHARS] + " ..."
    return f"process {process.pid} ({shown})" if shown else f"process {process.pid}"
