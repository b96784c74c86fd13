"""Who owns a run, whether that process still lives, and whether a server answers at all."""

import os
import socket
import urllib.error
import urllib.request

import psutil

from slmsearch.errors import ServiceError

START_TOLERANCE_S = 2.0
"""Difference of two readings of a process's start below which it is the same process."""


def owner_tag() -> str:
    """Name this process so that another one can find out later whether it still lives: host, id, start."""
    return f"{socket.gethostname()} {os.getpid()} {psutil.Process().create_time():.0f}"


def is_orphan(owner: str) -> bool:
    """Say whether the process named by `owner_tag` is known to be gone; of other machines nothing is known."""
    host, pid, started = ([*owner.split(), "", "", ""])[:3]
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        return bool(abs(psutil.Process(int(pid)).create_time() - float(started)) > START_TOLERANCE_S)
    except psutil.Error:
        return True


def require_reachable(uri: str) -> None:
    """Find out in seconds, not in minutes of retries, that an MLflow server is down.

    Raises:
        ServiceError: nothing answers.
    """
    if not uri.startswith(("http://", "https://")):
        return
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=5):
            return
    except urllib.error.HTTPError:
        return  # it answers; a missing page or permission shows in the first real call
    except (OSError, ValueError) as error:
        raise ServiceError(f"no MLflow server answers at {uri} ({one_line(error)}); start it, or unset tracking.uri") from error


def one_line(error: Exception) -> str:
    """Return an error's message as one line of bounded length."""
    return " ".join(str(error).split())[:300]
