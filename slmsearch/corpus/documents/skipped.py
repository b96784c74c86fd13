"""Files of a folder that were left out, in whole or in part, with the reason."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Reason to leave a file out."""

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
"""Reasons that are normal and need no action."""
PASSING = frozenset({Reason.UNREADABLE, Reason.SLOW, Reason.MEMORY, Reason.CRASHED})
"""Reasons that may have been the machine's, not the file's."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """File or folder that was left out."""

    path: str
    """Path from the configured folder, with unprintable characters escaped."""
    reason: str
    """Value of a `Reason`."""
    detail: str = ""
    """Message of a library, in one line; may be empty."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Part of a file's text that was left out on purpose: a menu, a hidden sheet, a notice on every page."""

    path: str
    """Path from the folder; empty for a block that many pages repeat."""
    kind: str
    text: str
    """Start of the text."""
    pages: int = 1


class NotTakenError(Exception):
    """Error of a document that is left out; readers catch it for each document, and users never see it."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        """Set the reason; `detail` is shortened to one line."""
        super().__init__(reason)
        self.reason = reason
        self.detail = " ".join(printable(detail).split())[:200]


def printable(text: str) -> str:
    """Escape characters that cannot be printed on a line or encoded in UTF-8: control characters and undecodable bytes of file names."""
    whole = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in whole)
