"""Cache of verdicts on disk, so that no judge answers the same question twice.

The cache is one SQLite file in WAL mode, shared by processes; stored verdicts survive a kill. Outages are never stored. The file must be on
a local disk: WAL does not work over a network file system.
"""

import json
import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from math import inf
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from slmsearch.errors import JudgeError

R = TypeVar("R")

FILE = Path("judge") / "verdicts.sqlite"
"""Path of the file under the data directory."""
BUSY_S = 30.0
"""Maximum wait for another writing process, in seconds."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    key TEXT PRIMARY KEY,
    correct INTEGER NOT NULL CHECK (correct IN (0, 1)),
    judge TEXT NOT NULL,
    question TEXT NOT NULL,
    answers TEXT NOT NULL,
    answer TEXT NOT NULL,
    at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID
"""
_NOW = "CAST(strftime('%s', 'now') AS INTEGER)"


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """Verdict with its key and the texts that a person needs to read the file."""

    key: str
    correct: bool
    judge: str
    """Model digest."""
    question: str
    answers: str
    """Accepted answers as a JSON list."""
    answer: str


class VerdictCache:
    """Verdicts by content key; safe to use from several threads and processes.

    Every method raises a `JudgeError` if the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        """Set the path of the file; the first use creates it."""
        self.path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def find(self, keys: Sequence[str]) -> dict[str, bool]:
        """Return the stored verdicts, in one query; unknown keys are left out."""
        if not keys:
            return {}
        query = "SELECT key, correct FROM verdicts WHERE key IN (SELECT value FROM json_each(?))"
        rows = self._run(lambda connection: connection.execute(query, (json.dumps(list(keys)),)).fetchall())
        return {key: bool(correct) for key, correct in rows}

    def store(self, verdicts: Sequence[StoredVerdict]) -> None:
        """Store verdicts; existing ones are kept."""
        insert = (
            "INSERT INTO verdicts (key, correct, judge, question, answers, answer, at) "
            f"VALUES (?, ?, ?, ?, ?, ?, {_NOW}) ON CONFLICT (key) DO NOTHING"
        )

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany(insert, map(astuple, verdicts))

        self._run(write)

    def count(self, before_s: float = inf) -> int:
        """Count the verdicts given before a time, in seconds since the epoch."""
        query = "SELECT count(*) FROM verdicts WHERE at < ?"
        return int(self._run(lambda connection: connection.execute(query, (before_s,)).fetchone()[0]))

    def forget(self, before_s: float) -> None:
        """Delete the verdicts given before a time, in seconds since the epoch, and free their space."""

        def delete(connection: sqlite3.Connection) -> None:
            with connection:
                connection.execute("DELETE FROM verdicts WHERE at < ?", (before_s,))
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        self._run(delete)

    def _run(self, work: Callable[[sqlite3.Connection], R]) -> R:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                    weakref.finalize(self, self._connection.close)
                return work(self._connection)
            except (sqlite3.Error, OSError, Timeout, UnicodeEncodeError) as error:
                remedy = "check disk and permissions, or delete the file if it is damaged"
                raise JudgeError(f"verdict cache {self.path}: {error}; {remedy}") from error

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Switching a new file to WAL does not wait for other processes that do the same.
        with FileLock(self.path.with_suffix(".lock"), timeout=BUSY_S):
            connection = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                with connection:
                    connection.execute(_SCHEMA)
                    if "at" not in {column[1] for column in connection.execute("PRAGMA table_info(verdicts)")}:  # older file
                        connection.execute("ALTER TABLE verdicts ADD COLUMN at INTEGER NOT NULL DEFAULT 0")
                        connection.execute(f"UPDATE verdicts SET at = {_NOW}")
            except sqlite3.Error:
                connection.close()
                raise
            return connection
