"""Pages that are withdrawn from a version of a folder of documents: their files went after the version was read.

Another file at the path of one that went does not bring the former text back: the page stays withdrawn until a version was read that holds
the new one.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.serving.documents.listing import Listing

SHOWN = 5
"""Number of withdrawn pages that a line of the log names."""
log = logging.getLogger(__name__)


class Withdrawal:
    """Times at which files went and versions were read, in seconds since the epoch. One thread looks, one notes versions, all may ask."""

    def __init__(self, file: Path) -> None:
        """Load what went before a restart.

        Args:
            file: keeps the times at which files went, by path.
        """
        self._file = file
        self._went: dict[str, float] = read_json(file)
        self._read: dict[str, float] = {}
        self._same: tuple[str, float, frozenset[str]] = ("", 0.0, frozenset())
        """See `note_same`."""
        self._oldest = 0.0
        """Time at which the version that plays was read."""
        self.listing: Listing | None = None
        """Last listing of the folder with documents in it."""
        self.told = frozenset[str]()
        """Pages of the version that plays which were withdrawn at the last look."""

    def note_read(self, digest: str, when: float) -> None:
        """Note the time at which the reading of a version began."""
        self._read = {**self._read, digest: when}

    def note_same(self, digest: str, when: float, pages: frozenset[str]) -> None:
        """Note the pages of the version that plays which a later reading, begun at a time, found as they are."""
        self._same = digest, when, pages

    def note_played(self, digest: str) -> None:
        """Forget versions that were read before the one that plays."""
        self._oldest = self.read_at(digest)
        self._read = {other: when for other, when in self._read.items() if when >= self._oldest}

    def read_at(self, digest: str) -> float:
        """Return the time at which the reading of a version began; 0.0 if it is not known."""
        return self._read.get(digest, 0.0)

    def look(self, found: Listing, paths: Iterable[str]) -> None:
        """Take a new listing; note which files went since the last one.

        Args:
            found: the listing.
            paths: files of versions, which go for those of the last listing where that does not know all: at first, and in a closed folder.
        """
        before, now = self.listing, time.time()
        known = before.there if before is not None and not before.closed else {*paths, *(before.there if before is not None else ())}
        gone = {path for path in known - found.there if path and not found.holds(path) and (before is None or before.holds(path))}
        if gone:
            self._went = {**{path: when for path, when in self._went.items() if when >= self._oldest}, **dict.fromkeys(gone, now)}
        self.listing = found
        if gone:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                replace_json(self._file, self._went)
            except OSError as error:  # it is known here
                log.warning("%s cannot be written, which a restart would miss: %s", self._file, error)

    def find_gone(self, digest: str, files: Mapping[str, str]) -> frozenset[str]:
        """Return the pages of a version whose files went after it was read, or are not there.

        Args:
            digest: corpus of the version.
            files: path of each of its pages, by id; empty where a page is no document.
        """
        listing, went, read, (later, read_again, same) = self.listing, self._went, self.read_at(digest), self._same
        if listing is None:
            return frozenset()
        same = same if digest == later else frozenset()
        gone = (page for page, path in files.items() if path and went.get(path, 0.0) > (read_again if page in same else read))
        return frozenset(page for page, path in files.items() if path and not listing.holds(path)).union(gone)

    def tell(self, digest: str, files: Mapping[str, str]) -> None:
        """Log the pages of the version that plays which were not withdrawn before; see `find_gone`."""
        gone = self.find_gone(digest, files)
        if new := sorted(gone - self.told):
            more = f" and {len(new) - SHOWN} more" if len(new) > SHOWN else ""
            log.warning("documents: withdrawn, because their files are gone: %s%s", ", ".join(new[:SHOWN]), more)
        self.told = gone
