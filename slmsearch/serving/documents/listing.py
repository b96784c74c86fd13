"""Contents of a folder of documents at one moment: its files, by which a later look sees what changed.

The folder is listed again and again. Notices of the system (inotify) end with the folder that is mounted or swapped in place of another,
never come from network file systems, and overflow; a listing of 400 files takes milliseconds.
"""

from dataclasses import dataclass
from pathlib import Path

from slmsearch.corpus.documents.folder import list_folder
from slmsearch.corpus.documents.skipped import Reason, printable
from slmsearch.errors import CorpusError


@dataclass(frozen=True, slots=True)
class Listing:
    """Files of a folder; equal if no file changed."""

    files: frozenset[tuple[str, int, int]]
    """Path from the folder, time of change in nanoseconds, and size of each file that may be read."""
    there: frozenset[str]
    """Printable paths of everything that is there, read or not."""
    closed: tuple[str, ...]
    """Paths of folders that cannot be read, with `/` at their ends."""

    def holds(self, path: str) -> bool:
        """Return True if a file is there, as far as that can be known."""
        return path in self.there or path.startswith(self.closed)


def list_documents(folder: Path) -> Listing | None:
    """List a folder; None if it is not there, cannot be read, or holds no document, as the mount point of a disk that is not mounted."""
    files, there, closed = set[tuple[str, int, int]](), set[str](), list[str]()
    try:
        entries = list_folder(folder)
    except (CorpusError, OSError):
        return None
    for entry in entries:
        if entry.reason is not Reason.BROKEN_LINK:  # what it led to is gone
            there.add(printable(entry.place))
        if entry.reason is Reason.UNREADABLE and entry.place.endswith("/"):
            closed.append(printable(entry.place))
        if entry.reason in (None, Reason.EMPTY, Reason.UNREADABLE, Reason.LARGE):
            try:
                found = entry.path.stat()
            except OSError:
                continue
            files.add((printable(entry.place), found.st_mtime_ns, found.st_size))
    if all(entry.reason is not None for entry in entries):
        return None
    return Listing(frozenset(files), frozenset(there), tuple(closed))
