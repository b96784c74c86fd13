"""Causes and remedies of a server's end, from its exit code and the last lines of its log."""

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from slmsearch.processes.child import WATCHDOG_KILLED

TAIL_BYTES = 65_536
"""Size of the end of a log that is searched for a cause."""
SHOWN_LINES = 3
_SHOWN_CHARS = 200
_SHELL_SIGNAL = 128
"""Base of a shell's exit code for a program that a signal ended: this plus its number."""
_OUT_OF_MEMORY = (
    r"out of memory|OutOfMemory|\bOOM\b|bad_alloc|\bMemoryError\b|[Cc]annot allocate memory|failed to allocate|unable to allocate"
    r"|No available memory for the cache blocks|less than desired GPU memory utilization|larger than the available KV cache memory"
    r"|requires more system memory|insufficient memory|ErrorOutOfDeviceMemory"
)
_ADDRESS_IN_USE = r"[Aa]ddress already in use|couldn't bind (HTTP )?server socket|only one usage of each socket address|EADDRINUSE"
_NOISE = re.compile(r"^[\s\-=*_.|+#]*$|^\s+(at|File) |^Traceback|resource_tracker|leaked semaphore|Ctrl-?C|Press CTRL", re.IGNORECASE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def explain_end(title: str, code: int, log: Path, remedies: Mapping[str, str], memory_advice: str) -> str:
    """Explain in one line why a server ended: how, the end of its log, the remedy, the path of the log.

    Args:
        title: the engine's name.
        code: exit code, negative for a signal.
        log: its output.
        remedies: the engine's own (see `ServerEngine.remedies`), tried in order, after the memory and the port.
        memory_advice: remedy for a lack of memory; names the settings.
    """
    lines = read_tail(log)
    advice, words = find_remedy(lines, code, remedies, memory_advice)
    parts = [f"{title} {describe_code(code)}: {words or 'it said nothing'}", advice, f"log: {log}"]
    return "; ".join(part for part in parts if part)


def find_remedy(lines: Sequence[str], code: int, remedies: Mapping[str, str], memory_advice: str) -> tuple[str, str]:
    """Return the remedy, "" if none is known, and the lines that show the cause."""
    known = {_OUT_OF_MEMORY: f"out of memory: {memory_advice}", _ADDRESS_IN_USE: "choose another port with --port", **remedies}
    for pattern, advice in known.items():
        for line in reversed(lines):
            if re.search(pattern, line):
                return advice, line
    # The kernel ends by SIGKILL what takes the last of the memory.
    advice = f"most likely out of memory: {memory_advice}" if _signal_of(code) == signal.SIGKILL else ""
    return advice, " | ".join(lines[-SHOWN_LINES:])


def describe_code(code: int) -> str:
    """Describe how a process ended."""
    if code == WATCHDOG_KILLED:
        return "was stopped because its watchdog process was killed"
    number = _signal_of(code)
    if number is None:
        return f"ended with exit code {code}"
    known = {each.value: each.name for each in signal.Signals}
    return f"was killed by {known.get(number, f'signal {number}')}"


def _signal_of(code: int) -> int | None:
    if code == WATCHDOG_KILLED:
        return None
    if code < 0:
        return -code
    return code - _SHELL_SIGNAL if _SHELL_SIGNAL < code <= _SHELL_SIGNAL + 64 else None


def read_tail(log: Path) -> list[str]:
    """Return the last lines of a log that are not empty, without colours, each cut to a readable length."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    lines = [_COLOURS.sub("", line) for line in text.replace("\r", "\n").splitlines()]
    return [line.strip()[:_SHOWN_CHARS].rstrip() for line in lines if not _NOISE.search(line)]
