"""The text of a PDF as Markdown: its outline gives the headings, where it has one, else each page is a section.

Lines are joined to paragraphs, words divided at a line end are fixed, and what repeats at the top or foot of most pages (running
titles, page numbers) is left out. No OCR: a PDF of pictures has no text.
"""

import io
import re
from collections import Counter, defaultdict
from typing import Any

from pypdf import PdfReader

from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import checked_text, escape_heading, one_line

EDGE_LINES = 2
"""Lines at the top and at the foot of a page among which running titles are looked for."""
MIN_PAGES = 4
"""On fewer pages nothing counts as repeated."""
SHORT_FRAC = 0.75
"""A line shorter than this share of the longest, that ends a sentence, ends its paragraph."""
MAX_OUTLINE = 2000
"""Entries of an outline that are read; a broken one may go in circles."""
_DIVIDED = re.compile(r"(?<=[a-z\u00df-\u00ff])-\n(?=[a-z\u00df-\u00ff])")
_DIGITS = re.compile(r"\d+")
_JUNK_TITLE = re.compile(r"(?i)untitled|^microsoft |\.(docx?|odt|pdf|tex|indd|pptx?|xlsx?|dvi|qxd)$|^\W*$|^\(anonymous\)$|^title$")

Heading = tuple[int, str]
"""Level from 2, and text."""


def pdf_to_markdown(data: bytes) -> tuple[str, str]:
    """Read the text of a PDF.

    Returns:
        Its title, empty where it has none, and its Markdown.

    Raises:
        NotTakenError: it is encrypted, or has no text.
    """
    if not data.strip():
        raise NotTakenError(Reason.EMPTY)
    if b"%PDF-" not in data[:1024]:
        raise NotTakenError(Reason.BINARY, "it is no PDF")
    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise NotTakenError(Reason.ENCRYPTED)
    pages = _without_running_lines([_lines(page.extract_text()) for page in reader.pages])
    if not any(any(c.isalnum() for c in line) for page in pages for line in page):
        raise NotTakenError(Reason.NO_TEXT, f"{len(pages)} pages")
    title = _title(reader)
    headings = _outline(reader)
    parts = [_page_text(page, headings.get(number, []), None if headings else number) for number, page in enumerate(pages)]
    text = checked_text("\n\n".join(part for part in parts if part))
    return title, f"# {title}\n\n{text}" if title else text


def _lines(text: str) -> list[str]:
    # Half surrogate pairs come out of broken character maps.
    whole = text.encode("utf-8", "replace").decode()
    return [line.strip() for line in _DIVIDED.sub("", whole).split("\n")]


def _without_running_lines(pages: list[list[str]]) -> list[list[str]]:
    """Leave out the lines at the edges of pages that stand on most of them, whatever numbers they hold."""
    if len(pages) < MIN_PAGES:
        return pages
    counts = Counter(line for page in pages for line in {_DIGITS.sub("0", page[number]) for number in _edges(page)})
    running = {line for line, count in counts.items() if count > len(pages) / 2}
    trimmed = []
    for page in pages:
        edges = _edges(page)
        trimmed.append([line for number, line in enumerate(page) if not (number in edges and _DIGITS.sub("0", line) in running)])
    return trimmed


def _edges(page: list[str]) -> set[int]:
    filled = [number for number, line in enumerate(page) if line]
    return {*filled[:EDGE_LINES], *filled[-EDGE_LINES:]}


def _title(reader: PdfReader) -> str:
    try:
        title = one_line(str((reader.metadata and reader.metadata.title) or ""))
    except Exception:  # broken metadata raise whatever pypdf stumbles on; the text is what matters
        return ""
    title = title.encode("utf-8", "ignore").decode()
    return "" if _JUNK_TITLE.search(title) or not 3 <= len(title) <= 200 or not title.isprintable() else title


def _outline(reader: PdfReader) -> dict[int, list[Heading]]:
    """Return the headings of each page; none where there is no outline or it cannot be followed."""
    found: dict[int, list[Heading]] = defaultdict(list)
    try:
        waiting: list[tuple[Any, int]] = [(entry, 2) for entry in reversed(reader.outline)]
        for _ in range(MAX_OUTLINE):
            if not waiting:
                break
            entry, level = waiting.pop()
            if isinstance(entry, list):
                waiting += [(child, level + 1) for child in reversed(entry)]
                continue
            number = reader.get_destination_page_number(entry)
            title = one_line(str(entry.title or "")).encode("utf-8", "ignore").decode()
            if number is not None and number >= 0 and any(c.isalnum() for c in title):
                found[number].append((min(level, 6), title))
    except Exception:  # as for the title
        return {}
    return dict(found)


def _page_text(lines: list[str], headings: list[Heading], number: int | None) -> str:
    """Put a page together: headings before the lines that repeat them, those that none repeats at the top.

    Args:
        lines: its text.
        headings: of the outline that point to it, in order.
        number: of the page, from 0, where it is a section of its own.
    """
    names = [_key(line) for line in lines]
    places: dict[int, list[Heading]] = defaultdict(list)
    start = 0
    for level, title in headings:
        # A heading may take two or three lines; its first line is enough to find it.
        at = next((i for i in range(start, len(names)) if names[i] and _key(title).startswith(names[i]) and len(names[i]) > 2), None)
        places[start if at is None else at].append((level, title))
        start = start if at is None else at
    parts: list[str] = [f"## Page {number + 1}"] if number is not None and any(lines) else []
    waiting: list[str] = []
    for i, line in enumerate(lines):
        if i in places:
            parts += [*_paragraphs(waiting), *(f"{'#' * level} {title}" for level, title in places.pop(i))]
            waiting = [] if any(_key(part.lstrip("# ")) == names[i] for part in parts[-1:]) else [line]
        else:
            waiting.append(line)
    parts += _paragraphs(waiting)
    parts += [f"{'#' * level} {title}" for rest in places.values() for level, title in rest]
    return "\n\n".join(parts)


def _key(line: str) -> str:
    return "".join(c for c in line.casefold() if c.isalnum())


def _paragraphs(lines: list[str]) -> list[str]:
    """Join lines; a blank line, or a short line that ends a sentence, ends a paragraph."""
    longest = max(map(len, lines), default=0)
    paragraphs, waiting = list[str](), list[str]()
    for line in lines:
        if line:
            waiting.append(line)
        if waiting and (not line or (line[-1] in ".!?:" and len(line) < SHORT_FRAC * longest)):
            paragraphs.append(" ".join(waiting))
            waiting = []
    paragraphs += [" ".join(waiting)] if waiting else []
    return [escape_heading(one_line(paragraph)) for paragraph in paragraphs]
