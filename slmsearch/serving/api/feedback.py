"""Feedback of people on answers, kept in an append-only log of JSON Lines that survives kills."""

import fcntl
import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Literal, get_args

from slmsearch.artifacts.files import sync_directory
from slmsearch.errors import ServiceError
from slmsearch.foreign import encodable

Verdict = Literal["right", "wrong"]
MAX_LOG_BYTES = 64 << 20
"""Maximum size of the log: clients must not be able to fill the disk."""
_OPTIONAL = ("answer", "correct_answer", "source", "completion", "pages", "within")


class LogFullError(ServiceError):
    """Error of a log that has its maximum size."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback of one person on an answer."""

    question: str
    answer: str | None
    """Answer of the service; None if there was none."""
    verdict: Verdict
    correct_answer: str | None = None
    """Right answer, only with feedback on a wrong one."""
    source: str | None = None
    """Id of the section in which the right answer stands."""
    completion: str | None = None
    """Id of the completion that the feedback is about."""
    id: str = field(default_factory=lambda: f"feedback-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    """Time in seconds since the epoch."""
    pages: str | None = None
    """Source of the pages that the answer is from (`corpus.pages`); `learn` takes corrections of its own pages. None: of any."""
    within: str | None = None
    """Restrictions of the question to some pages; `learn` leaves it out, since elsewhere another answer may be right."""


@dataclass(frozen=True, slots=True)
class GivenFeedback:
    """Contents of a log."""

    records: tuple[Feedback, ...]
    """Records, the oldest first; a completion may have several."""
    places: tuple[int, ...]
    """Place in the file of each record, in bytes from its beginning."""
    unreadable: int
    """Number of lines that are no records: the beginning of one whose writer was killed before it was accepted."""


class FeedbackLog:
    """A file, one record a line; several threads and processes may add to it."""

    def __init__(self, path: Path) -> None:
        """Name the file; the first record makes it."""
        self.path = path
        self.on_append: Callable[[], None] | None = None
        """Called after each record; it must return at once."""

    def append(self, feedback: Feedback) -> None:
        """Add a record; after the return it survives a kill and a power cut.

        Raises:
            LogFullError: the log has its maximum size.
            ServiceError: the file cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                self._write(descriptor, to_line(feedback))
            finally:
                os.close(descriptor)  # ends the lock, as the end of the process does
        except OSError as error:
            raise ServiceError(f"feedback cannot be written to {self.path}: {error.strerror}") from error
        if self.on_append is not None:
            self.on_append()

    def _write(self, descriptor: int, line: bytes) -> None:
        size = os.fstat(descriptor).st_size
        if size + len(line) >= MAX_LOG_BYTES:
            raise LogFullError(f"{self.path} has {MAX_LOG_BYTES >> 20} MiB, which is all it may have: move it away")
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line  # a writer was killed: what it left stays a line of its own
        if (written := os.write(descriptor, line)) != len(line):
            os.ftruncate(descriptor, size)
            raise OSError(0, f"{written} of {len(line)} bytes were written")
        os.fsync(descriptor)
        if not size:
            sync_directory(self.path.parent)

    @property
    def size(self) -> int:
        """Return the size of the file, in bytes; 0 if there is none."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self, start: int = 0) -> GivenFeedback:
        """Read the records from a place on, while other processes may add some.

        Raises:
            ServiceError: the file exists and cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise ServiceError(f"feedback cannot be read from {self.path}: {error.strerror}") from error
        places = accumulate((len(line) + 1 for line in lines), initial=start)
        found = [(_parse(line), place) for line, place in zip(lines, places, strict=False) if line]
        whole = [(record, place) for record, place in found if record is not None]
        return GivenFeedback(tuple(record for record, _ in whole), tuple(place for _, place in whole), len(found) - len(whole))


def to_line(feedback: Feedback) -> bytes:
    """Write a record as one line, its end included."""
    return (encodable(json.dumps(asdict(feedback), ensure_ascii=False)) + "\n").encode()


def _parse(line: bytes) -> Feedback | None:
    try:
        feedback = Feedback(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    texts = [feedback.question, feedback.id, *(value for name in _OPTIONAL if (value := getattr(feedback, name)) is not None)]
    whole = all(isinstance(text, str) for text in texts) and type(feedback.created) is int
    return feedback if whole and feedback.verdict in get_args(Verdict) else None
