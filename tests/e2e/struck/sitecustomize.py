"""Kills a command at an exact moment: Python imports this in every process of a command that has this folder in PYTHONPATH.

`STRIKE_AT` is `EVENT PATTERN`: at the first audit event of this name in any process of the command one of whose arguments matches, the
command's own process gets SIGKILL, before what the event announces is done. `STRUCK` is a file that is made then.
"""

import os
import re
import signal
import sys

EVENT, _, PATTERN = os.environ.get("STRIKE_AT", "").partition(" ")
VICTIM = int(os.environ.setdefault("STRIKE_VICTIM", str(os.getpid())))


def strike(event: str, arguments: tuple[object, ...]) -> None:
    """Kill the command at its moment; once."""
    if event != EVENT or not any(isinstance(value, str | os.PathLike) and re.search(PATTERN, os.fspath(value)) for value in arguments):
        return
    try:
        os.close(os.open(os.environ["STRUCK"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(VICTIM, signal.SIGKILL)


if EVENT:
    sys.addaudithook(strike)
