"""Cache of a folder's parsed documents between readings; a killed reading resumes where it stopped.

The file has one line for the key of the parsers, then one line per document: the name of its content, a tab and the document as JSON. Each
is added as soon as it and those before it are parsed; a line that a kill cut off is parsed again.
"""

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from slmsearch.artifacts.files import replace_file
from slmsearch.corpus.documents.reader import Document
from slmsearch.errors import CorpusError


class ParsedDocuments:
    """Documents by the name of their content, read from the file one by one to save memory; for use by several threads."""

    def __init__(self, path: Path | None, parsers: str) -> None:
        """Open the file, or start it again if other parsers wrote it; without a path, cache nothing.

        Raises:
            CorpusError: the file cannot be written.
        """
        self._path, self._first = path, parsers.encode() + b"\n"
        self._at: dict[str, tuple[int, int]] = {}
        self._file, self._lock = None, threading.Lock()
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not self._find_rows(path):
                with replace_file(path) as file:
                    file.write(self._first)
            path.touch()  # housekeeping goes by the last use
            self._file = path.open("a+b", buffering=0)
            if self._file.tell() and self._byte_before_end() != b"\n":
                self._file.write(b"\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def get(self, name: str) -> Document | None:
        """Return the document of a content; None if it is unknown or its line is damaged."""
        if self._file is None or name not in self._at:
            return None
        start, length = self._at[name]
        try:
            with self._lock:
                self._file.seek(start)
                row = self._file.read(length)
            return Document(*json.loads(row))
        except (OSError, ValueError, TypeError):
            return None

    def add(self, name: str, document: Document) -> None:
        """Add a document to the cache.

        Raises:
            CorpusError: the file cannot be written.
        """
        if self._file is None:
            return
        dropped = [list(item) for item in document.dropped]
        row = json.dumps([document.title, document.content, dict(document.metadata), dropped, document.full_title])
        line = name.encode() + b"\t" + row.encode() + b"\n"
        try:
            with self._lock:
                self._file.write(line)
                self._at[name] = (self._file.tell() - len(row) - 1, len(row))
        except OSError as error:
            raise self._unwritable(error) from error

    def keep_only(self, names: Iterable[str]) -> None:
        """Remove all documents but those of these contents.

        Raises:
            CorpusError: the file cannot be written.
        """
        wanted = self._at.keys() & set(names)
        if self._file is None or self._path is None or wanted == self._at.keys():
            return
        try:
            with replace_file(self._path) as file:
                file.write(self._first)
                for name, (start, length) in self._at.items():
                    if name not in wanted:
                        continue
                    self._file.seek(start)
                    file.write(name.encode() + b"\t" + self._file.read(length) + b"\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def _find_rows(self, path: Path) -> bool:
        """Index the positions of the documents; False if the file is missing or of other parsers."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return False
        with file:
            if file.readline() != self._first:
                return False
            at = len(self._first)
            for line in file:
                name, tab, row = line.rstrip(b"\n").partition(b"\t")
                if tab and line.endswith(b"\n"):
                    self._at[name.decode("ascii", "replace")] = (at + len(name) + 1, len(row))
                at += len(line)
        return True

    def _byte_before_end(self) -> bytes:
        assert self._file is not None
        self._file.seek(-1, 2)
        return self._file.read(1)

    def _unwritable(self, error: OSError) -> CorpusError:
        return CorpusError(f"{self._path} cannot be written ({error}); free disk space or set paths.data_dir")
