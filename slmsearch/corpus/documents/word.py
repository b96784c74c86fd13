"""Word documents as Markdown: headings by styles and outline levels, numbers of list items and headings as Word shows them, full tables.

A note stands below the paragraph that refers to it. Tables of contents, hidden text, comments and what stands at the top and bottom of
pages is left out, and named.
"""

import io
import posixpath
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from lxml import etree

from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.grids import Cell, count_headers, guess_value
from slmsearch.corpus.documents.office import check_package, is_title, parse_xml, read_properties
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.tables import grid_to_markdown
from slmsearch.corpus.documents.text import CONTENTS_LABEL, escape_heading, one_line
from slmsearch.corpus.documents.word_cover import find_cover_title
from slmsearch.corpus.documents.word_styles import WORD, Numbering, Styles, is_on, value
from slmsearch.corpus.documents.word_text import Inline, read_inline

MAX_HEADING_CHARS = 300
"""A longer paragraph is text, whatever its style."""
_SHOWN_CHARS = 200
_DEEPEST = 6
_CONTENTS = "\x00"
"""Mark at the place of a dropped table of contents; no text holds it."""
_CONTENTS_HEADING_CHARS = 40
_TRANSPARENT = {f"{WORD}{name}" for name in ("customXml", "ins", "moveTo", "smartTag", "sdtContent")}
_PARTS = {"header": "running head", "footer": "running head", "comments": "comment"}


class _Cell(NamedTuple):
    blocks: list[str]
    across: int
    goes_on: bool
    """The cell continues the one above it."""


def word_to_markdown(data: bytes) -> Document:
    """Convert a Word document.

    Raises:
        NotTakenError: it is no such document.
    """
    check_package(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        given, facts = read_properties(archive)
        given = given if is_title(given) else ""
        reader = _Reader(archive, has_title=bool(given))
        body = reader.root.find(f"{WORD}body")
        blocks = list(reader.read_blocks(body)) if body is not None else []
    title = reader.title or given
    return Document(title, "\n\n".join(_without_contents(blocks)), facts, reader.dropped)


def _without_contents(blocks: list[str]) -> Iterator[str]:
    """Yield the blocks without the marks of contents, and without headings and labels that stood over contents alone."""
    full = [block for block in blocks if block]
    for number, block in enumerate(full):
        following = full[number + 1] if number + 1 < len(full) else ""
        heads = block.startswith("#") or CONTENTS_LABEL.fullmatch(block.strip("*_: "))
        if block != _CONTENTS and not (following == _CONTENTS and heads and len(block) <= _CONTENTS_HEADING_CHARS):
            yield block


class _Reader:
    def __init__(self, archive: zipfile.ZipFile, has_title: bool) -> None:
        self._archive = archive
        names = set(archive.namelist())
        main = next((name for name in sorted(names) if name.startswith("word/document") and name.endswith(".xml")), None)
        if main is None:
            raise NotTakenError(Reason.BINARY, "it is no Word document")
        self.root = parse_xml(archive.read(main))
        self._folder = posixpath.dirname(main)
        self._styles = Styles(self._part("styles"))
        self._numbering = Numbering(self._part("numbering"), self._styles)
        self._notes = {kind: self._read_notes(f"{kind}s") for kind in ("footnote", "endnote")}
        self.dropped: list[tuple[str, str]] = []
        for name in sorted(names):
            stem = posixpath.basename(name).rstrip("0123456789.xml") if name.startswith(f"{self._folder}/") else ""
            if stem in _PARTS and name.endswith(".xml"):
                self._drop(_PARTS[stem], _all_text(parse_xml(archive.read(name))))
        self.title = ""
        self._lines: list[str] = []  # of the title on the cover, so far
        # The title stands above headings, which then begin one level below.
        paragraphs = self.root.iter(f"{WORD}p")
        is_styled = any(self._styles.is_title(self._style(each.find(f"{WORD}pPr"))) and _all_text(each).strip() for each in paragraphs)
        self._cover = [] if is_styled or has_title else find_cover_title(self.root, self._styles)
        self._shift = int(is_styled or bool(self._cover))

    def _part(self, name: str) -> etree._Element | None:
        try:
            return parse_xml(self._archive.read(f"{self._folder}/{name}.xml"))
        except KeyError:
            return None

    def _read_notes(self, name: str) -> dict[str, etree._Element]:
        root = self._part(name)
        return {} if root is None else {note.get(f"{WORD}id", ""): note for note in root if note.get(f"{WORD}type") in (None, "normal")}

    def _drop(self, kind: str, text: str) -> None:
        text = one_line(text)[:_SHOWN_CHARS]
        if any(c.isalnum() for c in text) and (kind, text) not in self.dropped:
            self.dropped.append((kind, text))

    def _style(self, properties: Any) -> str:
        return value(properties, "pStyle") or self._styles.default

    def read_blocks(self, parent: Any) -> Iterator[str]:
        """Yield the paragraphs, headings and tables of a body, cell, box or note as Markdown; items of a list are one block."""
        items: list[str] = []
        for element in _children(parent):
            if element.tag == f"{WORD}tbl":
                yield "\n".join(items)
                items = []
                yield from self._read_table(element)
                continue
            if element.tag == f"{WORD}sdt":
                self._drop("contents", _all_text(element))
                yield "\n".join(items)
                yield _CONTENTS
                items = []
                continue
            text, is_item, after = self._read_paragraph(element)
            if not is_item or after:
                yield "\n".join([*items, *([text] if is_item else [])])
                items = []
            elif text:
                items.append(text)
            if not is_item:
                yield text
            yield from after
        yield "\n".join(items)

    def _read_paragraph(self, element: Any) -> tuple[str, bool, list[str]]:
        """Return a paragraph, whether it is an item of a list, and what hangs on it: its notes and text boxes."""
        properties = element.find(f"{WORD}pPr")
        style = self._style(properties)
        inline = Inline(self._styles)
        read_inline(element, inline)
        for text in inline.hidden:
            self._drop("hidden text", text)
        text = inline.text().strip()
        if self._styles.is_contents(style):
            self._drop("contents", text)
            return _CONTENTS, False, []
        after = [block for box in inline.boxes for block in self.read_blocks(box)]
        for number, kind, key in inline.notes:
            note = self._notes[kind].get(key)
            if note is not None:
                after.append(f"[{number}] {' '.join(filter(None, self.read_blocks(note)))}")
        if element in self._cover:
            self._lines.append(one_line(text))
            return self._read_title(" ".join(self._lines)) if element is self._cover[-1] else "", False, after
        level = self._level(properties, style)
        mark, depth = self._mark(properties, style) if text else (None, 0)
        if self._styles.is_title(style) and text:
            return self._read_title(one_line(text)), False, after
        if level and text and len(text) <= MAX_HEADING_CHARS:
            numbered = f"{mark} {text}" if mark and mark != "-" else text
            return f"{'#' * min(level + self._shift, _DEEPEST)} {one_line(numbered)}", False, after
        if mark:
            return f"{'  ' * depth}{mark} {one_line(text)}", True, after
        return "\n".join(escape_heading(line.strip()) for line in text.split("\n")), False, after

    def _read_title(self, text: str) -> str:
        if self.title:
            return escape_heading(text)
        self.title = text
        return f"# {text}"

    def _level(self, properties: Any, style: str) -> int:
        own = value(properties, "outlineLvl")
        if own is not None and own.isdecimal():
            return int(own) + 1 if int(own) < 9 else 0
        return self._styles.level(style)

    def _mark(self, properties: Any, style: str) -> tuple[str | None, int]:
        by_style = self._styles.number(style)
        key, level = (value(properties, f"numPr/{name}") for name in ("numId", "ilvl"))
        key = by_style[0] if key is None else key
        level = by_style[1] if level is None else level
        depth = int(level) if level and level.isdecimal() else 0
        return (self._numbering.mark(key, depth) if key else None), depth

    def _read_table(self, table: Any) -> Iterator[str]:
        rows = [row for row in _children(table, "tr") if not is_on(row, "trPr/del") and row.find(f"{WORD}trPr/{WORD}del") is None]
        cells = [[self._read_cell(cell) for cell in _children(row, "tc")] for row in rows]
        if all(len(row) <= 1 for row in cells) or any(_has_section(cell) for row in cells for cell in row):
            yield from (block for row in cells for cell in row if not cell.goes_on for block in cell.blocks)
            return
        befores = [int(value(row, "trPr/gridBefore") or 0) for row in rows]
        grid: list[list[str]] = []
        banners: list[str] = []
        for before, row in zip(befores, cells, strict=True):
            line = [""] * before
            for cell in row:
                above = grid[-1][len(line)] if cell.goes_on and grid and len(line) < len(grid[-1]) else ""
                text = above if cell.goes_on else " ".join(one_line(block.lstrip("#").strip()) for block in cell.blocks if block)
                line += [text] * min(cell.across, 63)
            heading = next((cell.blocks[0] for cell in row if len(row) == 1 and len(cell.blocks) == 1), "")
            if heading.startswith("#") and not grid:
                banners.append(heading)
            else:
                grid.append(line if len(row) > 1 else [line[-1] if line else ""])
        yield from banners
        yield grid_to_markdown(grid, self._count_headers(table, rows, grid))

    def _read_cell(self, cell: Any) -> _Cell:
        merge = value(cell, "tcPr/vMerge")
        blocks = [block for block in self.read_blocks(cell) if block]
        span = value(cell, "tcPr/gridSpan") or "1"
        return _Cell(blocks, int(span) if span.isdecimal() else 1, merge is not None and merge != "restart")

    def _count_headers(self, table: Any, rows: list[Any], grid: list[list[str]]) -> int:
        """Return how many rows are headers: those that Word repeats on every page, else those that look so, else by the table's style."""
        marked = 0
        for row in rows:
            if not is_on(row, "trPr/tblHeader"):
                break
            marked += 1
        if 0 < marked < len(rows):
            return min(marked, len(grid))
        strong = [all(_is_strong(cell) for cell in _children(row, "tc")) for row in rows]
        seen = [[Cell(text, guess_value(text), is_strong) for text in line] for line, is_strong in zip(grid, strong, strict=False)]
        if not strong[0] and not any(any(line[1:]) for line in grid[1:]) and any(line[0] for line in grid[1:]):
            return 0  # a form to be filled in: labels alone
        look = table.find(f"{WORD}tblPr/{WORD}tblLook")
        bits = "" if look is None else look.get(f"{WORD}val", "")
        is_styled = look is not None and (look.get(f"{WORD}firstRow") in ("1", "true") or (bits != "" and int(bits, 16) & 0x20))
        return count_headers(seen) or int(is_styled and len(grid) > 1 and len(grid[0]) > 1 and all(grid[0][1:]))


def _is_strong(cell: Any) -> bool:
    """Say whether a cell is shaded or bold."""
    shade = cell.find(f"{WORD}tcPr/{WORD}shd")
    if shade is not None and shade.get(f"{WORD}fill", "auto").upper() not in ("AUTO", "FFFFFF"):
        return True
    runs = [run for run in cell.iter(f"{WORD}r") if "".join(run.itertext(f"{WORD}t")).strip()]
    return bool(runs) and all(is_on(run, "rPr/b") for run in runs)


def _all_text(element: Any) -> str:
    return " ".join("".join(paragraph.itertext(f"{WORD}t")) for paragraph in element.iter(f"{WORD}p"))


def _has_section(cell: _Cell) -> bool:
    """Say whether a cell holds a heading with text below it: the table only places things beside each other."""
    at = next((number for number, block in enumerate(cell.blocks) if block.startswith("#")), None)
    return at is not None and at + 1 < len(cell.blocks)


def _children(parent: Any, name: str = "") -> Iterator[Any]:
    """Yield the paragraphs and tables of a body, or the rows or cells of a table; what only groups them is entered."""
    wanted = (f"{WORD}{name}",) if name else (f"{WORD}p", f"{WORD}tbl")
    for child in parent:
        if child.tag in wanted:
            yield child
        elif child.tag == f"{WORD}sdt":
            gallery = child.find(f"{WORD}sdtPr/{WORD}docPartObj/{WORD}docPartGallery")
            if gallery is not None and gallery.get(f"{WORD}val", "").startswith(("Table of", "Bibliograph_none")):
                yield child
            else:
                yield from _children(child, name)
        elif child.tag in _TRANSPARENT:
            yield from _children(child, name)
