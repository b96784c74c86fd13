"""The text of a PDF as Markdown: headings from its outline, else from the sizes of its fonts, else each page is a section.

A heading of the outline stands where the page prints it, with the number that it has there. Lines are joined to paragraphs; a word that is
divided at a line end is joined where the document has it whole elsewhere. Running heads, page numbers and tables of contents are dropped.
No OCR: a PDF of pictures has no text.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from pypdfium2 import PdfDocument, PdfiumError

from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.pdf_blocks import Setting, blocks, moved_notes
from slmsearch.corpus.documents.pdf_columns import in_reading_order
from slmsearch.corpus.documents.pdf_headings import Heading, find_headings, find_title, place_headings, without_title
from slmsearch.corpus.documents.pdf_lines import PdfLine, key_of, read_pieces
from slmsearch.corpus.documents.pdf_running import drop_running
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import checked_text, one_line

MAX_OUTLINE = 5000
"""Entries of an outline that are read; a broken one may go in circles."""
DEEPEST = 6
FEWEST_CHARS, BEGIN_CHARS = 12, 40
"""Characters of the words by which the beginning of a page is found again."""
_JUNK_TITLE = re.compile(
    r"untitled|^microsoft |\.(docx?|odt|pdf|tex|indd|pptx?|xlsx?|dvi|qxd)$|^\W*$|^\(anonymous\)$|^title$"
    r"|^(book|document|presentation|slide)\W*\d*$|^powerpoint presentation$",
    re.IGNORECASE,
)
_NO_TITLE = re.compile(r"(?:table of )?contents|introduction|preface|abstract|index", re.IGNORECASE)
_DATE = re.compile(r"D:(\d{4})(\d\d)(\d\d)")


def pdf_to_markdown(data: bytes) -> Document:
    """Read the text of a PDF; its metadata lists the page of each heading (`section_pages`) and the first words of each (`page_begins`).

    Pages are numbered from 1.

    Raises:
        NotTakenError: it is encrypted, or has no text.
    """
    if not data.strip():
        raise NotTakenError(Reason.EMPTY)
    if b"%PDF-" not in data[:1024]:
        raise NotTakenError(Reason.BINARY, "it is no PDF")
    try:
        document = PdfDocument(data)
    except PdfiumError as error:
        encrypted = "password" in str(error).lower()
        raise NotTakenError(Reason.ENCRYPTED if encrypted else Reason.BROKEN, "" if encrypted else str(error)) from error
    with document:
        pages, broken = _read_pages(document)
        outline, facts = _outline(document), dict[str, str]()
        for name in PdfDocument.METADATA_KEYS:
            with suppress(ValueError):  # it is not in UTF-16
                facts[name] = document.get_metadata_value(name)
    if not any(line.key for lines in pages for line in lines):
        raise NotTakenError(Reason.NO_TEXT, f"{len(pages)} pages")
    given = _sane_title(facts.get("Title", ""))
    kept = drop_running(pages, {heading.text for heading in outline})
    title, lines = (given, without_title(kept.lines, given)) if given else find_title(kept.lines, outline)
    title = "" if _NO_TITLE.fullmatch(title) or _JUNK_TITLE.search(title) else title
    setting = Setting.of(lines)
    gone = {*kept.contents, (0, key_of(title))}
    outline = [heading for heading in outline if (heading.page, key_of(heading.text)) not in gone]
    headings = (place_headings(lines, outline, setting) if outline else find_headings(lines, setting)) or (
        _by_page(lines) if len(pages) > 1 else []
    )
    content = checked_text("\n\n".join(_parts(lines, headings, setting)))
    found = {"section_pages": [[heading.text, heading.page + 1] for heading in headings], "page_begins": _find_begins(lines)}
    metadata = found if headings else {}
    return Document(title, f"# {title}\n\n{content}" if title else content, {**metadata, **_facts(facts)}, kept.dropped + broken)


def _find_begins(lines: Sequence[PdfLine]) -> list[list[object]]:
    """Return each page and the words of the first of its lines that no other line begins with; a page without one is left out."""
    words = [_first_words(line) for line in lines]
    counts = Counter(words)
    begins = {
        line.page + 1: begin
        for line, begin in reversed([*zip(lines, words, strict=True)])
        if len(begin) >= FEWEST_CHARS and counts[begin] == 1
    }
    return sorted(map(list, begins.items()))


def _first_words(line: PdfLine) -> str:
    """Return the beginning of a line without bullet, and without its last word, which may be divided."""
    text = line.cells[0][2] if line.cells else line.text.rpartition(" ")[0]
    return re.sub(r"^\W+", "", text)[:BEGIN_CHARS].strip()


def _read_pages(document: PdfDocument) -> tuple[list[list[PdfLine]], list[tuple[str, str]]]:
    """Read the lines of all pages; name those that are broken.

    Raises:
        NotTakenError: all are.
    """
    pages, broken = [], []
    for number in range(len(document)):
        try:
            page = document[number]
            text = page.get_textpage()
            pages.append(in_reading_order(read_pieces(text, number)))
            text.close()
            page.close()
        except PdfiumError as error:
            pages.append([])
            broken.append(("broken page", f"page {number + 1}: {error}"))
    if pages and len(broken) == len(pages):
        raise NotTakenError(Reason.BROKEN, broken[0][1])
    return pages, broken


def _sane_title(given: str) -> str:
    title = one_line(given).encode("utf-8", "ignore").decode()
    is_name = " " not in title and re.search(r"[_\d]", title)
    is_odd = 2 * sum(map(str.isalpha, title)) < len(title)
    return "" if is_name or is_odd or _JUNK_TITLE.search(title) or not 3 <= len(title) <= 200 or not title.isprintable() else title


def _facts(facts: dict[str, str]) -> dict[str, str]:
    made = _DATE.match(facts.get("CreationDate", ""))
    found = {"author": one_line(facts.get("Author", "")), "date": "-".join(made.groups()) if made else ""}
    return {name: value for name, value in found.items() if value}


def _outline(document: PdfDocument) -> list[Heading]:
    """Return the headings of the outline; none where there is no outline or it cannot be followed."""
    found: list[Heading] = []
    try:
        for entry in document.get_toc(max_depth=DEEPEST):
            if len(found) == MAX_OUTLINE:
                break
            target = entry.get_dest()
            page = target.get_index() if target is not None else None
            title = one_line(entry.get_title()).encode("utf-8", "ignore").decode()
            is_again = found and (found[-1].page, key_of(found[-1].text)) == (page, key_of(title))
            if page is not None and any(c.isalnum() for c in title) and not is_again:
                view = target.get_view()[1]
                left, height = view[:2] if len(view) > 1 else (None, None)
                found.append(Heading(min(entry.level + 2, DEEPEST), title, page, height, left))
    except (PdfiumError, ValueError, IndexError):  # a broken outline; the text is what matters
        return []
    return found


def _by_page(lines: Sequence[PdfLine]) -> list[Heading]:
    """Make each page a section."""
    firsts = {line.page: number for number, line in reversed(list(enumerate(lines)))}
    return [Heading(2, f"Page {page + 1}", page, None, line=firsts[page]) for page in sorted(firsts)]


def _parts(lines: Sequence[PdfLine], headings: Sequence[Heading], setting: Setting) -> Iterator[str]:
    """Yield headings, and the blocks under them."""
    at, moved = 0, moved_notes(lines, [heading.line for heading in headings], setting)
    gone = {number for numbers in moved.values() for number in numbers}
    for section, heading in enumerate([*headings, None]):
        numbers = [number for number in range(at, heading.line if heading else len(lines)) if number not in gone]
        yield from blocks([lines[number] for number in (*numbers, *moved.get(section, ()))], setting)
        if heading:
            at = max(at, heading.line + heading.taken)
            yield f"{'#' * heading.level} {heading.text}"
