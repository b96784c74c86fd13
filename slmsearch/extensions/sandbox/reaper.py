"""The reaper of a killed server: a process of its own that waits for the server's end, then ends its instances.

An instance dies with its server by itself, but for two cases: `bwrap`, killed in the instant after it made its child, leaves that child
waiting for it for ever; and a container lives in Docker's daemon. Uses the standard library alone, so that it starts at once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

WATCH_SECONDS = 1.5
"""Time for which it looks for leftovers."""
PAUSE_SECONDS = 0.05


def kill_orphans(marker: str) -> list[int]:
    """Kill the children that a killed `bwrap` left waiting, and return their numbers.

    `marker` stands in the command line of every instance of ours, and of no other process.
    """
    killed = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            if not _is_orphan(path, marker):
                continue
            held = os.pidfd_open(int(path.name))
            try:
                if _is_orphan(path, marker):  # and no other process that has got its number
                    signal.pidfd_send_signal(held, signal.SIGKILL)
                    killed.append(int(path.name))
            finally:
                os.close(held)
    return killed


def _is_orphan(process: Path, marker: str) -> bool:
    arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    if not arguments[0].endswith("bwrap") or marker not in arguments:
        return False
    # After the name, which may hold anything: state, parent, group, session.
    parent, _, session = map(int, (process / "stat").read_text().rpartition(")")[2].split()[1:4])
    # bwrap's first process leads its session and is the parent of the second.
    return session not in (int(process.name), parent)


def remove_groups(parents: Iterable[Path]) -> None:
    """Remove a server's cgroups, as far as they are empty."""
    for parent in parents:
        with suppress(OSError):
            for directory in [*(child for child in parent.iterdir() if child.is_dir()), parent]:
                with suppress(OSError):
                    directory.rmdir()


def remove_containers(docker: str, prefix: str) -> None:
    """Remove the containers whose names have a prefix."""
    listed = subprocess.run([docker, "ps", "--all", "--quiet", "--filter", f"name=^{prefix}"], capture_output=True, text=True)
    if names := listed.stdout.split():
        subprocess.run([docker, "rm", "--force", *names], capture_output=True)


def start_reaper(**told: object) -> subprocess.Popen[bytes]:
    """Start the reaper with `marker` and `groups`, or `docker` and `prefix`; it acts when its standard input ends, with this process."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, json.dumps(told)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def main() -> None:
    """Wait until the server has ended, then clean up."""
    told = json.loads(sys.argv[1])
    if sys.stdin.buffer.read():  # one that ends in order says so, and has nothing left
        return
    if "docker" in told:
        remove_containers(told["docker"], told["prefix"])
        return
    groups = [Path(name) for name in told["groups"]]
    deadline = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < deadline:
        kill_orphans(told["marker"])
        remove_groups(groups)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
