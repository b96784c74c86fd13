"""The parent-death watchdog: a process dies with its starter, and so do all descendants of a server.

Run as a script, this file reads one line of JSON from its standard input, so that a secret stands on no command line, and becomes
one of two things. With arguments, it ties itself to its parent and turns into Python with these arguments: the tie survives `exec`.
Without, it stands between a supervisor and a server, starts the server and waits for one of four things: the word `stop`, the end of
its input (the supervisor has died, for any reason), a signal, or the server's own end. Then it ends the server and everything the
server started. Two lines of JSON on standard output carry the server's process id and its exit code.

It finds a server's processes in three ways, as each has a hole: by descent (on Linux the watchdog adopts orphans, elsewhere they are lost),
by session (a process may start one of its own) and by a mark in the environment (programs that change their title overwrite it). It imports
nothing of this project.
"""

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from slmsearch.processes.processor import count_cores

ENV_STARTER = "_SLMSEARCH_STARTER"
"""Environment variable of a tied process with its starter's process id. Settings, checked by name, have another prefix."""
MARK = "SLMSEARCH_SERVER"
"""Environment variable of a server and all its descendants."""
STOP = "stop"
"""Line on standard input that asks for an orderly end."""
ORPHAN_GRACE_SECONDS = 1.5
"""Time limit for a server to end by itself once its supervisor has died."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of Linux's prctl: signal this process when the thread that started it ends, also after `exec`; let it adopt orphans."""
_POLL_SECONDS = 1.0
_REAP_SECONDS = 2.0
_KILL_SECONDS = 5.0


def die_with_starter() -> None:
    """Have this process killed as soon as its parent, or the starter of the first of its line with `ChildProcess`, has died.

    Linux does it at once, during any work; elsewhere a thread checks every second. An untied process stays free.
    """
    starter = int(os.environ.pop(ENV_STARTER, 0))
    if not starter:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if sys.platform != "linux":
        threading.Thread(target=_watch, args=(starter,), daemon=True).start()
    if not psutil.pid_exists(starter):  # it died before the tie was there
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _watch(starter: int) -> None:
    while psutil.pid_exists(starter):
        time.sleep(_POLL_SECONDS)
    os._exit(1)


def make_environment(present: dict[str, str], variables: dict[str, str], num_processes: int | None, import_from: str) -> dict[str, str]:
    """Make the environment of a tied process.

    Python in it and in its children never imports from the current folder, where a module `tasks` or `flows` may be the user's own.

    Args:
        present: the environment of the starter.
        variables: added, over present ones.
        num_processes: training processes that share this machine; None leaves threads and devices as the starter has them.
        import_from: directory in which Python looks for packages first; empty for none.
    """
    environment = {**present, "PYTHONSAFEPATH": "1", **variables}
    if import_from:
        environment["PYTHONPATH"] = os.pathsep.join([import_from, *filter(None, [present.get("PYTHONPATH")])])
    if num_processes is not None:  # without a number of threads, `accelerate launch` sets one
        environment.setdefault("OMP_NUM_THREADS", str(max(1, count_cores() // num_processes)))
    if num_processes == 1:
        # With several devices in sight and one process, transformers would wrap the model in DataParallel, which TRL refuses.
        environment["CUDA_VISIBLE_DEVICES"] = present.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    return environment


def find_belongings(mark: str, session: int | None = None) -> list[psutil.Process]:
    """Find the processes of a server that still run.

    Args:
        mark: value of `MARK` in their environment.
        session: process id of the server, which is its session's id too; None looks at the mark alone. Only for a server
            that ran a moment ago: ids are used again.
    """
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _belongs(process, mark, session)]


def _belongs(process: psutil.Process, mark: str, session: int | None) -> bool:
    try:
        in_session = session is not None and os.getsid(process.pid) == session
        return _is_running(process) and (in_session or process.environ().get(MARK) == mark)
    except (psutil.Error, OSError):
        return False


def kill_belongings(mark: str, session: int | None = None) -> list[int]:
    """Kill the processes of a server until none is left; return the ids of those that survive."""
    return _kill_all(lambda: find_belongings(mark, session))


def _kill_all(find: Callable[[], list[psutil.Process]]) -> list[int]:
    deadline = time.monotonic() + _KILL_SECONDS
    while left := find():
        if time.monotonic() > deadline:
            return [process.pid for process in left]
        _each(left, "kill")
        psutil.wait_procs(left, timeout=0.5)
    return []


def _each(processes: Iterable[psutil.Process], method: str) -> None:
    for process in processes:
        with suppress(psutil.Error):
            getattr(process, method)()


class Watchdog:
    """One server and the reasons to end it."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path, mark: str) -> None:
        """Start the server in a session of its own."""
        self._mark = mark
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        with log.open("ab") as file:
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONSAFEPATH": "1", **environment, MARK: mark},
                start_new_session=True,
                # Against a killed watchdog: the server goes with it, the supervisor finds the rest.
                preexec_fn=(lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)) if sys.platform == "linux" else None,
            )
        self.pid = self._server.pid

    def watch(self, grace_s: float) -> int:
        """Wait for a reason to end the server, end it and its descendants, and return its exit code, negative for a signal.

        Args:
            grace_s: time limit to end in order.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._events.put(STOP))
        for target in (self._read, self._wait):
            threading.Thread(target=target, daemon=True).start()
        graces = {STOP: grace_s, "orphaned": min(grace_s, ORPHAN_GRACE_SECONDS), "ended": ORPHAN_GRACE_SECONDS}
        self._end(graces[self._next_event()])
        return self._server.wait()

    def _read(self) -> None:
        for line in sys.stdin:
            if line.strip() == STOP:
                self._events.put(STOP)
        self._events.put("orphaned")

    def _wait(self) -> None:
        self._server.wait()
        self._events.put("ended")

    def _next_event(self) -> str:
        while True:
            with suppress(queue.Empty):
                return self._events.get(timeout=_REAP_SECONDS)
            self._reap()

    def _reap(self) -> None:
        """Reap adopted processes that ended, which would otherwise stay in the process table as long as the server runs."""
        if sys.platform == "linux":
            for child in psutil.Process().children():
                with suppress(psutil.Error, OSError):
                    if child.pid != self.pid and child.status() == psutil.STATUS_ZOMBIE:
                        os.waitpid(child.pid, os.WNOHANG)

    def _end(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        if self._server.poll() is None:
            self._server.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(grace_s)
        left = self._left()
        _each(left, "terminate")
        psutil.wait_procs(left, timeout=max(0.0, deadline - time.monotonic()))
        self._server.kill()
        _kill_all(self._left)

    def _left(self) -> list[psutil.Process]:
        """Return the processes that the server left behind; its own handle waits for the server itself."""
        with suppress(psutil.Error):
            found = {*psutil.Process().children(recursive=True), *find_belongings(self._mark, self.pid)}
            return [process for process in found if process.pid != self.pid and _is_running(process)]
        return []


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _tell(**fact: int | str) -> None:
    with suppress(OSError):  # the supervisor has ended
        print(json.dumps(fact), flush=True)


def _become(variables: dict[str, str], starter: int | None, end_signal: int, num_processes: int | None, import_from: str) -> None:
    """Turn into Python with this process' arguments, tied to `starter` if there is one."""
    os.environ.pop(ENV_STARTER, None)
    if starter is not None:
        _prctl(_PR_SET_PDEATHSIG, end_signal)
        variables = {**variables, ENV_STARTER: str(starter)}
        if not psutil.pid_exists(starter):  # it died before the tie was there
            os._exit(1)
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], make_environment(dict(os.environ), variables, num_processes, import_from))


def _serve(command: list[str], environment: dict[str, str], log: str, mark: str, grace_s: float) -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        watchdog = Watchdog(command, environment, Path(log), mark)
    except OSError as error:
        _tell(error=f"{error.strerror}: {error.filename}")
        return
    _tell(pid=watchdog.pid)
    _tell(code=watchdog.watch(grace_s))


def main() -> None:
    """Carry out the order in the first line of standard input."""
    if sys.argv[1:]:
        with open(0, "rb", buffering=0, closefd=False) as stdin:  # byte by byte: the rest is for the program
            _become(**json.loads(stdin.readline()))
    _serve(**json.loads(sys.stdin.readline()))


if __name__ == "__main__":
    main()
