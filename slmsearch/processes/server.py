"""A server process as its supervisor holds it: through a watchdog that ends it when the supervisor is gone."""

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slmsearch.errors import ServiceError
from slmsearch.processes import watchdog

GRACE_SECONDS = 15.0
"""Time a server has to end in order when it is stopped."""
WATCHDOG_KILLED = -1000
"""Exit code of a server whose watchdog was killed; no signal has that number."""


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
        self._grace_s = grace_s
        self._code: int | None = None
        told = {"command": list(command), "environment": dict(environment), "log": str(log), "mark": self.mark, "grace_s": grace_s}
        with log.open("ab") as file:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-P", watchdog.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is for the supervisor, which then stops the server in order
            )
        self._say(json.dumps(told))
        first = self._hear()
        self.pid = int(first.get("pid", 0))
        if not self.pid:
            self._watchdog.wait()
            raise ServiceError(f"{command[0]} cannot be run ({first.get('error', 'its watchdog ended without a word')}); see {log}")

    @property
    def watchdog_pid(self) -> int:
        """Process id of the watchdog."""
        return self._watchdog.pid

    def poll(self) -> int | None:
        """Return the server's exit code, negative for a signal, or None while it runs."""
        if self._code is None and self._watchdog.poll() is not None:
            last = self._hear()
            if "code" not in last:
                watchdog.kill_belongings(self.mark, self.pid)
            self._code = int(last.get("code", WATCHDOG_KILLED))
        return self._code

    def stop(self) -> None:
        """Ask it to end, and make sure that it and all it started have; does nothing where it ended already."""
        self._say(watchdog.STOP)
        try:
            self._watchdog.wait(self._grace_s + 10.0)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            self._watchdog.wait()
        with suppress(OSError):
            self._watchdog.stdin.close()  # type: ignore[union-attr]
        self.poll()

    def _say(self, line: str) -> None:
        assert self._watchdog.stdin is not None
        with suppress(OSError, ValueError):  # it has ended
            self._watchdog.stdin.write(line + "\n")
            self._watchdog.stdin.flush()

    def _hear(self) -> dict[str, int | str]:
        """Read the next fact that the watchdog tells; empty where it has ended without one."""
        assert self._watchdog.stdout is not None
        facts: dict[str, int | str] = json.loads(self._watchdog.stdout.readline() or "{}")
        return facts
