"""A process that cannot outlive the one that started it.

Run as a script, this file ties itself to its parent, changes its environment as told over stdin, and turns into the command in
its arguments: the tie survives `exec`, and a secret on stdin is on no command line. It imports nothing of this project.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time

ENV_STARTER = "SLMSEARCH_TRAINING_STARTER"
"""Process id of whoever called `launch.train`."""
ENV_SECRETS = "SLMSEARCH_TRAINING_SECRETS"
"""Secrets of the job as a JSON object, dotted path to value."""

BEGIN = b"begin\n"
"""What each training process finds in its standard input when it may begin."""

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 1.0


def die_with_parent(starter: int) -> None:
    """Have this process killed as soon as its parent, or the process `starter`, is gone.

    Linux does it at once and whatever this process is doing; elsewhere a thread looks every second.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(starter,), daemon=True).start()
    if not _is_alive(starter):  # it died before the tie was there
        os._exit(1)


def wait_for_begin() -> None:
    """Wait until the starter lets this process begin; end it if the starter is gone before."""
    if os.read(0, len(BEGIN)) != BEGIN:
        os._exit(1)


def _watch(starter: int) -> None:
    while _is_alive(starter):
        time.sleep(_POLL_SECONDS)
    os._exit(1)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def make_environment(present: dict[str, str], variables: dict[str, str], num_processes: int | None, import_from: str) -> dict[str, str]:
    """Make the environment of a child process.

    Args:
        present: the environment this process was started with.
        variables: added, over what is there.
        num_processes: training processes that share this machine; None leaves threads as the starter has them.
        import_from: directory in which Python looks for packages first.
    """
    environment = {**present, **variables}
    if num_processes is not None:  # without a number of threads, `accelerate launch` sets one
        environment.setdefault("OMP_NUM_THREADS", str(max(1, _num_cpus() // num_processes)))
    environment["PYTHONPATH"] = os.pathsep.join([import_from, *filter(None, [present.get("PYTHONPATH")])])
    if num_processes == 1:
        # With several devices in sight and one process, transformers would wrap the model in DataParallel, which TRL refuses.
        environment["CUDA_VISIBLE_DEVICES"] = present.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    return environment


def _num_cpus() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def main() -> None:
    """Become the command in argv, which inherits stdin; its first line holds the other arguments of `make_environment` as JSON."""
    with open(0, "rb", buffering=0, closefd=False) as stdin:  # byte by byte: what follows is not ours
        told = json.loads(stdin.readline())
    die_with_parent(int(told["variables"][ENV_STARTER]))
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], make_environment(dict(os.environ), **told))


if __name__ == "__main__":
    main()
