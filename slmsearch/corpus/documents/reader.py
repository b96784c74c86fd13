"""Reading one document; and the program around it that reads many in a process of its own (`processes.py` starts it).

A parser may loop, use up memory or crash on a file that was made to do so, or is only broken. There it ends nothing but itself.
It is told a path and its folder a line and answers a JSON object a line.
"""

import errno
import json
import os
import stat
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import decode_text, rst_to_markdown, text_to_markdown

MARKDOWN, TEXT, RST, HTML, PDF = (".md", ".markdown"), (".txt", ".text"), (".rst",), (".html", ".htm", ".xhtml"), (".pdf",)
OFFICE = (".docx", ".pptx", ".xlsx", ".epub")
SUFFIXES = (*MARKDOWN, *TEXT, *RST, *HTML, *PDF, *OFFICE)
"""In the order in which files of the same name come to the plain page id."""
MAX_CHARS = 20_000_000
"""Of one document."""
MEMORY_BYTES = 4 << 30
"""Address space of the process that parses."""


class Document(NamedTuple):
    """What a file says."""

    title: str
    """As the format gives it; empty where it gives none, and for Markdown, whose first heading is the title."""
    content: str
    """Markdown."""


def read_inside(path: Path, root: Path) -> bytes:
    """Read a file of a folder, whatever has become of it since it was listed: what is opened lies in the folder.

    Raises:
        NotTakenError: it leads out of the folder, or is no file any more.
        OSError: it cannot be read.
    """
    inside = root.resolve()
    target = path.resolve()
    if not target.is_relative_to(inside):
        raise NotTakenError(Reason.OUTSIDE)
    with ExitStack() as opened:
        here = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, here)
        *folders, name = target.relative_to(inside).parts
        try:
            for part in folders:
                here = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
                opened.callback(os.close, here)
            # A pipe in its place would be waited for.
            file = opened.enter_context(os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here), "rb"))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):  # a link, since a moment ago
                raise NotTakenError(Reason.OUTSIDE) from error
            raise
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotTakenError(Reason.SPECIAL)
        return file.read()


def read_document(path: Path, root: Path) -> Document:
    """Read a document of a folder by its suffix.

    Raises:
        NotTakenError: it cannot be read, or holds nothing to be read.
    """
    try:
        document = _convert(read_inside(path, root), path.suffix.lower())
    except NotTakenError:
        raise
    except OSError as error:
        raise NotTakenError(Reason.UNREADABLE, error.strerror or str(error)) from error
    except MemoryError as error:
        raise NotTakenError(Reason.MEMORY) from error
    except RecursionError as error:
        raise NotTakenError(Reason.NESTED) from error
    except Exception as error:  # parsers raise whatever they stumble on; it is this file that is at fault
        raise NotTakenError(Reason.BROKEN, f"{type(error).__name__}: {error}") from error
    if len(document.content) > MAX_CHARS:
        raise NotTakenError(Reason.LONG, f"{len(document.content)} characters")
    if not any(c.isalnum() for c in document.content):
        raise NotTakenError(Reason.NO_TEXT)
    return document


def _convert(data: bytes, suffix: str) -> Document:
    if suffix in HTML:
        from slmsearch.corpus.documents.html import html_to_markdown

        return Document(*html_to_markdown(data))
    if suffix in PDF:
        from slmsearch.corpus.documents.pdf import pdf_to_markdown

        return Document(*pdf_to_markdown(data))
    if suffix in OFFICE:
        from slmsearch.corpus.documents.office import office_to_markdown

        return Document(*office_to_markdown(data, suffix))
    return convert_text(decode_text(data), suffix)


def convert_text(text: str, suffix: str) -> Document:
    """Bring decoded text to Markdown."""
    if suffix in MARKDOWN:
        return Document("", text)
    return Document("", rst_to_markdown(text) if suffix in RST else text_to_markdown(text))


def serve() -> None:
    """Answer paths on standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES if hard < 0 else min(MEMORY_BYTES, hard), hard))
    sys.setrecursionlimit(10_000)
    for line in sys.stdin.buffer:
        try:
            path, root = (Path(os.fsdecode(bytes.fromhex(place))) for place in line.decode().split())
            answer: dict[str, str] = read_document(path, root)._asdict()
        except NotTakenError as error:
            answer = {"reason": error.reason, "detail": error.detail}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    serve()
