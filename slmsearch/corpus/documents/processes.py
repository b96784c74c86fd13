"""The process that parses documents, watched from outside: started when first needed, killed when it takes too long, started again."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from slmsearch.corpus.documents import reader
from slmsearch.corpus.documents.reader import Document
from slmsearch.corpus.documents.skipped import NotTakenError, Reason

START_S = 60.0
"""Added to the time of a process' first document, for its own start on a busy machine."""


class ReadingProcess:
    """Reads documents one after the other in another process; used by one thread."""

    def __init__(self, timeout_s: float) -> None:
        """Take the time one document may take; nothing is started yet."""
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def read(self, path: Path, root: Path) -> Document:
        """Read a document of a folder.

        Raises:
            NotTakenError: it cannot be read, or reading it took too long or brought the process down.
        """
        timeout_s = self._timeout_s
        if self._process is None or self._process.poll() is not None:
            self.stop()
            command = [sys.executable, "-P", "-m", reader.__name__]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            timeout_s += START_S
        assert self._process.stdin is not None and self._process.stdout is not None
        told = " ".join(os.fsencode(place.absolute()).hex() for place in (path, root))
        started, line = time.monotonic(), b""
        killer = threading.Timer(timeout_s, self._process.kill)
        killer.start()
        try:
            self._process.stdin.write(told.encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            pass
        finally:
            killer.cancel()
        late = time.monotonic() - started >= timeout_s
        if late or not line.endswith(b"\n"):
            self.stop()
            raise NotTakenError(Reason.SLOW if late else Reason.CRASHED)
        answer = json.loads(line)
        if "reason" in answer:
            raise NotTakenError(Reason(answer["reason"]), answer["detail"])
        return Document(**answer)

    def stop(self) -> None:
        """Kill the process, if it runs; the next document starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):  # what it has not read is still to be written
                        stream.close()
        self._process = None
