"""What of a folder was not taken, or not whole, and why."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a file was not taken."""

    HIDDEN = "hidden"
    KIND = (
        "of a kind that is not read (.md, .txt, .rst, .html, .pdf, .docx, .pptx, .xlsx, .csv, .tsv, .epub, .ipynb, .info and man pages are)"
    )
    LINK = "a link to a folder, which is not followed"
    OUTSIDE = "a link to a file outside the folder or to a hidden one, which is not followed"
    BROKEN_LINK = "a broken link"
    SPECIAL = "neither file nor folder"
    UNREADABLE = "unreadable; check permissions"
    LARGE = "larger than 50 MB"
    LONG = "too much text for one page; split it"
    EMPTY = "empty"
    BINARY = "not what the suffix says"
    NO_TEXT = "without text; a scanned PDF needs OCR first"
    INDEX = "an index, a search form or a list of links, without text of its own"
    SOURCE = "what another page of the folder was made from"
    ENCRYPTED = "encrypted; save it without a password"
    BROKEN = "broken"
    NESTED = "nested too deeply"
    SLOW = "not read within 120 s"
    MEMORY = "needs too much memory to read"
    CRASHED = "crashed its reader"


ORDINARY = frozenset({Reason.HIDDEN, Reason.KIND, Reason.LINK, Reason.INDEX, Reason.SOURCE})
"""Reasons that say nothing bad about a file."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder that was not taken."""

    path: str
    """From the configured folder, with what cannot be printed escaped."""
    reason: str
    """One of `Reason`."""
    detail: str = ""
    """What a library said, in one line; may be empty."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What was left out of a file's text on purpose: a menu, a hidden sheet, a notice on every page."""

    path: str
    """From the folder; empty for what many pages repeat."""
    kind: str
    text: str
    """Its beginning."""
    pages: int = 1


class NotTakenError(Exception):
    """A document is left out; caught where documents are read one by one, never seen by a user."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        """Say why; `detail` is brought to one short line."""
        super().__init__(reason)
        self.reason = reason
        self.detail = " ".join(printable(detail).split())[:200]


def printable(text: str) -> str:
    """Escape what has no place on a line or in UTF-8: control characters and undecodable bytes of file names."""
    whole = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in whole)
