"""A server process as its supervisor holds it: through a guard that ends it when the supervisor is gone."""

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slmsearch.errors import ServiceError
from slmsearch.serve import guard

GRACE_SECONDS = 15.0
"""Time a server has to end in order when it is stopped."""
GUARD_KILLED = -1000
"""Exit code of a server whose guard was killed; no signal has that number."""


def apart() -> dict[str, Any]:
    """Return the arguments of `Popen` that keep a terminal's signals from a child."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"start_new_session": True}


class ServerProcess:
    """A running server. Nothing of it survives `stop`, nor the death of this process."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path, grace_s: float = GRACE_SECONDS) -> None:
        """Start it.

        Args:
            command: program and arguments.
            environment: variables added to those of this process.
            log: file that takes its output.
            grace_s: time it has to end in order when it is stopped.

        Raises:
            ServiceError: the program cannot be run.
        """
        self.mark = uuid.uuid4().hex
        self.pid = 0
        self._grace_s = grace_s
        self._code: int | None = None
        self._started, self._ended = threading.Event(), threading.Event()
        self._failure = "its guard ended without a word"
        told = {"command": list(command), "environment": dict(environment), "log": str(log), "mark": self.mark, "grace_s": grace_s}
        with log.open("ab") as file:
            self._guard = subprocess.Popen(
                [sys.executable, "-P", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="utf-8",
                **apart(),  # Ctrl-C is for the supervisor, which then stops the server in order
            )
        self._say(json.dumps(told))
        threading.Thread(target=self._listen, daemon=True).start()
        self._started.wait()
        if not self.pid:
            self._guard.wait()
            raise ServiceError(f"{command[0]} cannot be run ({self._failure}); see {log}")

    @property
    def guard_pid(self) -> int:
        """Process id of the guard."""
        return self._guard.pid

    def poll(self) -> int | None:
        """Return the server's exit code, negative for a signal, or None while it runs."""
        if not self._ended.is_set():
            return None
        if self._code is None:
            guard.kill_belongings(self.mark, self.pid)
            self._code = GUARD_KILLED
        return self._code

    def stop(self) -> None:
        """Ask it to end, and make sure that it and all it started have; does nothing where it ended already."""
        self._say(guard.STOP)
        if not self._ended.wait(self._grace_s + 10.0):
            self._guard.kill()
        self._ended.wait()
        self._guard.wait()
        with suppress(OSError):
            self._guard.stdin.close()  # type: ignore[union-attr]
        self.poll()

    def _say(self, line: str) -> None:
        assert self._guard.stdin is not None
        with suppress(OSError, ValueError):  # it has ended
            self._guard.stdin.write(line + "\n")
            self._guard.stdin.flush()

    def _listen(self) -> None:
        assert self._guard.stdout is not None
        for line in self._guard.stdout:
            told: dict[str, Any] = json.loads(line)
            self.pid = told.get("pid", self.pid)
            self._code = told.get("code", self._code)
            self._failure = told.get("error", self._failure)
            self._started.set()
        self._ended.set()
        self._started.set()
