"""What tests of the child process call in it."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from slmsearch.errors import IndexUnusableError, SlmSearchError


class UnpicklableError(Exception):
    """Takes two arguments and passes on one, so that pickle cannot make it again."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} at {where}")


def count_to(number: int, progress: Callable[[int, int], None]) -> dict[str, int]:
    """Say each number."""
    for i in range(1, number + 1):
        progress(i, number)
    return {"pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0)}


def load_torch() -> int:
    """Load what a stage that uses a model loads."""
    import torch

    return int(torch.zeros(1 << 20).numel())


def fill(megabytes: int) -> int:
    """Take memory in pieces of a megabyte, and free it."""
    pieces = [bytearray(1 << 20) for _ in range(megabytes)]
    return len(pieces)


def has_loaded(module: str) -> bool:
    """Say whether a module is imported."""
    return module in sys.modules


def variable(name: str) -> str | None:
    """Return a variable of the environment."""
    return os.environ.get(name)


def fail(how: str) -> None:
    """Fail in a way of a child."""
    if how == "told":
        raise IndexUnusableError("index gone: build it again")
    if how == "bug":
        raise KeyError("nobody foresaw it")
    if how == "unpicklable":
        raise UnpicklableError("lost", "sea")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(4)


def warn() -> None:
    """Log as the library does."""
    try:
        raise SlmSearchError("it is late")
    except SlmSearchError:
        logging.getLogger("slmsearch.far").warning("%s o'clock", 3, exc_info=True)


def say_and_wait(progress: Callable[[str], None]) -> None:
    """Say the process id and never end."""
    progress(str(os.getpid()))
    signal.pause()


def write_and_be_killed(path: str, cpu: bool, bodies: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Be killed in the midst of the turns that llama.cpp writes: with the first that is written."""
    import httpx

    from slmsearch.sampling.llamacpp import write_turns

    post = httpx.Client.post

    def post_and_be_killed(*args: Any, **kwargs: Any) -> None:
        assert post(*args, **kwargs).status_code == 200
        os.kill(os.getpid(), signal.SIGKILL)

    httpx.Client.post = post_and_be_killed  # type: ignore[method-assign, assignment]
    return write_turns(path, cpu, bodies)
