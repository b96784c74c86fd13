"""The lines of a PDF in reading order, with what tells headings, paragraphs, code and running heads apart: place, size, font.

PDFium gives the characters in the order in which the file draws them, which is that of reading nearly always; where a page is drawn across
two columns, row by row, its lines are put in order here.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from ctypes import byref, c_int, create_string_buffer
from dataclasses import dataclass, field
from typing import NamedTuple

import pypdfium2.raw as pdfium
from pypdfium2 import PdfTextPage

WIDE_GAP = 1.2
"""Space between two characters, in font sizes, from which they stand in two cells."""
ACROSS_FRAC = 0.3
"""Share of lines that jump between two columns, from which a page was drawn across them."""
PROSE_FRAC = 0.35
"""Share of a page's width that half of the lines of a column have at least: a table's cells are narrower."""
FONTS_ASKED = 6
"""Characters of a line whose fonts are asked for, which takes longer than all else."""
_HYPHEN = 2
"""What PDFium says for a hyphen at a line end, and for the end."""
_ITEM = re.compile(r"^(\W|\(?(?:[A-Z]?\d+(?:\.\d+)*|[A-Za-z])[.)]?) {2,}")
"""What stands before an item of a list or a heading, and the gap after it, which makes no cell."""
_BOLD = re.compile(r"bold|black|heavy|semibold|demi|[-,]bd|-medi\b|cmbx|(?:^|\+)(?:sf)?bx\d", re.IGNORECASE)
_FIXED = re.compile(
    r"mono|courier|typewriter|consol|menlo|cmtt|sltt|nimbusmon|cmsltt|(?:^|\+)(?:ec|la)?tt\d|inconsolata|terminal", re.IGNORECASE
)


class Box(NamedTuple):
    """Where a character stands."""

    left: float
    bottom: float
    right: float
    top: float


@dataclass(slots=True)
class Line:
    """A line of text; places in points from the lower left corner of its page."""

    page: int
    """From 0."""
    text: str
    """Cells of a table are two spaces apart."""
    left: float
    bottom: float
    right: float
    top: float
    size: float
    """Of its font: the one that most of its characters have."""
    bold: bool = False
    fixed: bool = False
    """Whether all characters have the same width, as in code."""
    key: str = field(default="", init=False)
    """Its letters and digits, lower case: what is compared."""

    def __post_init__(self) -> None:
        self.key = key_of(self.text)


def key_of(text: str) -> str:
    """Return the letters and digits of a text, lower case."""
    return "".join(c for c in text.casefold() if c.isalnum())


def read_lines(page: PdfTextPage, number: int) -> list[Line]:
    """Read the lines of a page."""
    cells = [cell for cell in _cells(page, number) if cell.key or cell.text.strip()]
    return _down_the_columns(cells) if _is_across(cells) else list(_whole_lines(cells))


def _cells(page: PdfTextPage, number: int) -> Iterator[Line]:
    """Yield what stands without a wide gap on one line."""
    count = pdfium.FPDFText_CountChars(page)
    rect = pdfium.FS_RECTF()
    text: list[str] = []
    boxes: list[Box] = []
    sizes: list[float] = []
    first = high = 0
    for index in range(count + 1):
        code = pdfium.FPDFText_GetUnicode(page, index) if index < count else 10
        if 0xD800 <= code < 0xDC00:
            high = code
            continue
        if 0xDC00 <= code < 0xE000:
            code, high = (0x10000 + ((high - 0xD800) << 10) + code - 0xDC00 if high else 0xFFFD), 0
        letter, box = chr(code), None
        ends = code in (10, 13, _HYPHEN)
        if not ends and not letter.isspace() and pdfium.FPDFText_GetLooseCharBox(page, index, byref(rect)):
            box = Box(rect.left, rect.bottom, rect.right, rect.top)
        size = pdfium.FPDFText_GetFontSize(page, index) if box else 0.0
        if boxes and (ends or (box and _begins_anew(box, boxes[-1], max(size, 1.0)))):
            yield _cell(number, "".join(text) + ("-" if code == _HYPHEN else ""), boxes, sizes, _fonts(page, first, index))
            text, boxes, sizes = [], [], []
        if box:
            first, text = (first, text) if boxes else (index, [])
            boxes.append(box)
            sizes.append(size)
        if not ends:
            text.append(" " if letter.isspace() else letter)


def _begins_anew(box: Box, before: Box, size: float) -> bool:
    """Say whether a character stands in another cell, or on another line, than the one before."""
    is_far = box.left - before.right > WIDE_GAP * size
    goes_back = box.left < before.right and abs(box.bottom - before.bottom) > 0.5 * size
    return is_far or goes_back


def _cell(number: int, text: str, boxes: Sequence[Box], sizes: list[float], names: list[str]) -> Line:
    size = max(set(sizes), key=sizes.count)
    lefts, bottoms, rights, tops = zip(*boxes, strict=True)
    whole = text.encode("utf-8", "replace").decode().strip()
    is_bold, is_fixed = (bool(names) and all(mark.search(name) for name in names) for mark in (_BOLD, _FIXED))
    return Line(number, whole, min(lefts), min(bottoms), max(rights), max(tops), size, is_bold, is_fixed)


def _whole_lines(cells: Sequence[Line]) -> Iterator[Line]:
    """Put together what stands on one line, cells two spaces apart."""
    waiting: list[Line] = []
    for cell in cells:
        if waiting and not (cell.left > waiting[-1].right and abs(cell.bottom - waiting[-1].bottom) < 0.4 * max(cell.size, 1.0)):
            yield _whole_line(waiting)
            waiting = []
        waiting.append(cell)
    if waiting:
        yield _whole_line(waiting)


def _whole_line(cells: Sequence[Line]) -> Line:
    text = _ITEM.sub(r"\1 ", "  ".join(cell.text for cell in cells))
    longest = max(cells, key=lambda cell: len(cell.text))
    left, bottom = (min(values) for values in ((cell.left for cell in cells), (cell.bottom for cell in cells)))
    right, top = (max(values) for values in ((cell.right for cell in cells), (cell.top for cell in cells)))
    is_bold, is_fixed = all(cell.bold for cell in cells), all(cell.fixed for cell in cells)
    return Line(longest.page, text, left, bottom, right, top, longest.size, is_bold, is_fixed)


def _fonts(page: PdfTextPage, first: int, end: int) -> list[str]:
    """Return the names of the fonts of some of a line's characters."""
    step = max(1, (end - first) // FONTS_ASKED)
    return [name for index in range(first, end, step) if (name := _font_name(page, index))]


def _font_name(page: PdfTextPage, index: int) -> str:
    """Return the name of a character's font; empty where it has none."""
    buffer, flags = create_string_buffer(128), c_int()
    length = pdfium.FPDFText_GetFontInfo(page, index, buffer, 128, byref(flags))
    return buffer.raw[: max(length - 1, 0)].decode("utf-8", "replace") if length <= 128 else ""


def _is_across(lines: Sequence[Line]) -> bool:
    """Say whether a page of two columns was drawn row by row."""
    if len(lines) < 12:
        return False
    left, right = min(line.left for line in lines), max(line.right for line in lines)
    middle, width = (left + right) / 2, right - left
    sides = [0 if line.right <= middle else 1 if line.left >= middle else None for line in lines]
    columns = [sorted(line.right - line.left for line, side in zip(lines, sides, strict=True) if side == wanted) for wanted in (0, 1)]
    if sides.count(None) > len(lines) / 4 or not all(columns):
        return False
    if any(widths[len(widths) // 2] < PROSE_FRAC * width for widths in columns):
        return False
    jumps = sum(one is not None and other is not None and one != other for one, other in itertools.pairwise(sides))
    return jumps > ACROSS_FRAC * len(lines)


def _down_the_columns(lines: Sequence[Line]) -> list[Line]:
    """Order lines by what stands across both columns, and between that, down the left column, then the right one."""
    left, right = min(line.left for line in lines), max(line.right for line in lines)
    middle = (left + right) / 2
    ordered: list[Line] = []
    columns: tuple[list[Line], list[Line]] = ([], [])
    for line in sorted(lines, key=lambda line: -line.top):
        if line.right <= middle or line.left >= middle:
            columns[line.left >= middle].append(line)
            continue
        ordered += [*columns[0], *columns[1], line]
        columns = ([], [])
    return [*ordered, *columns[0], *columns[1]]
