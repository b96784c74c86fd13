"""Memory limits of control groups, which containers and batch systems set and `psutil` does not know."""

from math import inf
from pathlib import Path


def left_in_cgroup(home: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Return the bytes that this process's control groups still allow (version 2, Linux); infinity without a limit that can be read."""
    left = inf
    try:
        named = own.read_text(encoding="ascii").strip().rpartition("::")[2].lstrip("/")
        for group in (home / named, *(home / named).parents):
            if not group.is_relative_to(home) or not (group / "memory.max").is_file():
                continue
            limit = (group / "memory.max").read_text(encoding="ascii").strip()
            if limit != "max":
                facts = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
                used = int((group / "memory.current").read_text(encoding="ascii")) - int(facts["inactive_file"])
                left = min(left, float(max(0, int(limit) - used)))
    except (OSError, ValueError, KeyError):
        pass
    return left
