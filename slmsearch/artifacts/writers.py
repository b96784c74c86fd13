"""Writers of staged files: the mark in a staged name, and whether its writer has ended."""

import functools
import os
import time
from pathlib import Path
from zlib import crc32

import psutil

LONGEST_S = 86_400.0
"""Age from which a staged file counts as abandoned where its writer cannot be looked for, in seconds."""


@functools.cache
def pid_scope() -> str:
    """Return the scope of process ids: this boot of the kernel and the process namespace; empty without `/proc`."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink().name.strip('pid:[]')}"
    except OSError:
        return ""


def writer_mark() -> str:
    """Return the end of the names that this process stages under: containers that share a folder may have the same process ids."""
    return f"{os.getpid()}@{crc32(pid_scope().encode()):08x}"


def is_abandoned(staged: Path) -> bool:
    """Return whether the writer of a staged file or directory has ended; one of another scope has after `LONGEST_S`."""
    pid, _, scope = staged.name.rpartition("-")[2].partition("@")
    if not pid.isdecimal():
        return False
    try:
        if scope and scope != writer_mark().partition("@")[2]:
            return time.time() - staged.stat().st_mtime > LONGEST_S
        return not psutil.pid_exists(int(pid))
    except (OSError, OverflowError):
        return False
