"""The lines of a PDF in reading order, with what tells headings, paragraphs, code and running heads apart: place, size, font.

PDFium gives the characters in the order in which the file draws them, which is that of reading nearly always. What it calls a line may run
across columns, so a line is made anew here of the pieces that no wide gap divides.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_int, create_string_buffer
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import hypot, inf
from unicodedata import bidirectional, normalize

import pypdfium2.raw as pdfium
from pypdfium2 import PdfTextPage

WIDE_GAP = 1.2
"""Space between two characters, in font sizes, from which they stand in two cells or columns."""
SHARED_HEIGHT = 0.5
"""Share of the lower of two characters' heights that they have in common, if they stand on one line."""
SET_APART, OTHER_SIZE = 0.5, 0.04
"""Space, in font sizes, and difference of size from which what follows may be a note in the margin."""
GLUED, SPREAD_FRAC = 0.17, 0.3
"""Space between two letters, in font sizes, from which they belong to two words; share of letters with it from which it is the style."""
SMALLER, RAISED = 0.85, 0.15
"""Size and height of a note's mark, in sizes of the character before it."""
FEWEST_LINES, EDGE_FRAC = 6, 0.2
"""Lines, and share of all pieces of a page, that end at the same place where its text has an edge."""
COMBINING = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327\u0328"
_HYPHEN = 2
"""Character code that PDFium returns for a hyphen at the end of a line."""
_ITEM = re.compile(r"[^\w`'\"\u2018\u201c]|\(?(?:[A-Z]?\d+(?:\.\d+)*|[A-Za-z])[.)]?")
"""Mark or number before an item of a list or a heading; the gap after it separates no cell."""
_BOLD = re.compile(r"bold|black|heavy|semibold|demi|[-,]bd|-medi\b|cmbx|(?:^|\+)(?:sf)?[bs]x\d", re.IGNORECASE)
_FIXED = re.compile(
    r"mono|courier|typewriter|consol|menlo|cmtt|sltt|nimbusmon|cmsltt|(?:^|\+)(?:ec|la|sf)?tt\d|(?:^|\+)(?:t1|tc|ot1|ly1)x?b?tt|inconsolata|terminal"
    r"|mplus\d*m|monaco|lettergothic|txtt|(?<!uni)(?<!bar)code",
    re.IGNORECASE,
)

_FIGURE = re.compile(r"[^\w\s]+|[^\w\s.,%+-]\S*\d\S*|\S*\d\S*[^\w\s.,%+-]|[a-z]\d+[.,]\d+")
"""A piece of code that may be set in another font: a sign, or a price with one."""
_GOES_ON = re.compile(r"\w\W*\s[\u2190-\u21ff\u2900-\u297f]-?$")
"""An arrow in another font, by which a line of code goes on."""

UNSPACED = re.compile(r"[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff00-\uff60]")
"""Chinese and Japanese, which put no space between words."""
_ACCENTS = dict(zip("\u02cb\u00b4\u02c6\u02dc\u00af\u02d8\u02d9\u00a8\u02da\u02dd\u02c7\u00b8\u02db", COMBINING, strict=True))
"""Accents that are drawn over the next letter, as marks that join it."""

_LIGATURES = ("ff", "fi", "fl", "ffi", "ffl")
_CODES = dict(zip(range(27, 32), _LIGATURES, strict=True)) | dict(
    zip(range(16, 23), "\u201c\u201d\u201e\u00ab\u00bb\u2013\u2014", strict=True)
)
"""Letters of TeX's fonts (T1) in files that do not say which letters they are; other such characters are signs of unknown fonts."""

Box = tuple[float, float, float, float]
"""Left, bottom, right, top in points from the lower left corner of the page."""


@dataclass(slots=True)
class PdfLine:
    """A line of text; places in points from the lower left corner of its page."""

    page: int
    """From 0."""
    text: str
    left: float
    bottom: float
    right: float
    top: float
    size: float
    """Size of the font of most of its characters."""
    bold: bool = False
    fixed: bool = False
    """All characters have the same width, as in code."""
    cells: tuple[tuple[float, float, str], ...] = ()
    """Left, right and text of its parts, where wide gaps divide it."""
    is_item: bool = False
    """A mark or number stands before the text, with a gap after it."""
    is_aside: bool = False
    """The line is a note in the margin."""
    key: str = field(default="", init=False)
    """Its letters and digits in lower case, for comparisons."""

    def __post_init__(self) -> None:
        self.key = key_of(self.text)

    @property
    def parts(self) -> tuple[tuple[float, float, str], ...]:
        """Return the line's cells, or all of it as one."""
        return self.cells or ((self.left, self.right, self.text),)


def key_of(text: str) -> str:
    """Return the letters and digits of a text, lower case."""
    return "".join(filter(str.isalnum, text.casefold()))


def read_pieces(page: PdfTextPage, number: int) -> list[PdfLine]:
    """Read the pieces of a page's lines, in the order in which it draws them; no wide gap is within one."""
    found = [piece for piece in _pieces(page, number) if piece.text]
    edge = right_edge(found)
    pieces: list[PdfLine] = []
    for piece in found:
        before = pieces[-1] if pieces else None
        is_near = (
            before is not None
            and on_one_line(before, piece)
            and -0.2 < (piece.left - before.right) / max(before.size, piece.size, 1.0) < WIDE_GAP
        )
        if before is not None and is_near and not (piece.left > edge >= before.right - 1 and _differs(piece.size, before.size)):
            pieces[-1] = join_pieces([before, piece], " ")
        else:
            pieces.append(piece)
    return pieces


def right_edge(pieces: Sequence[PdfLine]) -> float:
    """Return where the text of a page ends on the right, a point added; infinity where its lines end at no common place."""
    edge, count = Counter(round(piece.right) for piece in pieces).most_common(1)[0] if pieces else (0, 0)
    return edge + 1.0 if count >= max(FEWEST_LINES, EDGE_FRAC * len(pieces)) else inf


def _differs(size: float, other: float) -> bool:
    return abs(size - other) > OTHER_SIZE * max(size, other)


def on_one_line(one: PdfLine, other: PdfLine) -> bool:
    """Say whether two pieces stand at the same height of a page."""
    lower = min(one.top - one.bottom, other.top - other.bottom)
    return min(one.top, other.top) - max(one.bottom, other.bottom) > 0.5 * lower


def join_pieces(pieces: list[PdfLine], between: str = "  ") -> PdfLine:
    """Join pieces to a line; its cells are the pieces, where a wide gap divides them."""
    if between != " " and len(pieces) > 1 and _ITEM.fullmatch(pieces[0].text):
        pieces = [replace(join_pieces(pieces[:2], " "), is_item=True), *pieces[2:]]
    if len(pieces) == 1:
        return pieces[0]
    main = max(pieces, key=lambda piece: len(piece.text))
    coded = pieces[pieces[0].text.isdigit() :] if between != " " else []  # numbers of lines of code are set as text
    coded = [piece for piece in coded if not _FIGURE.fullmatch(piece.text)]
    is_fixed = all(piece.fixed for piece in coded) if coded else main.fixed
    lefts, bottoms, rights, tops = zip(*((piece.left, piece.bottom, piece.right, piece.top) for piece in pieces), strict=True)
    is_bold = all(piece.bold for piece in pieces)
    cells = tuple(part for piece in pieces for part in piece.parts) if between == "  " and len(pieces) > 1 else ()
    text = between.join(piece.text for piece in pieces)
    return PdfLine(main.page, text, min(lefts), min(bottoms), max(rights), max(tops), main.size, is_bold, is_fixed, cells)


def _pieces(text_page: PdfTextPage, number: int) -> Iterator[PdfLine]:
    page, turn = text_page.raw, _turning(text_page)
    rect = pdfium.FS_RECTF()
    text: list[str] = []
    boxes: list[Box] = []
    sizes: list[float] = []
    wide: list[int] = []
    first = last = high = 0
    size, asked = 0.0, (0.0, 0.0)
    count = pdfium.FPDFText_CountChars(page)
    for index in range(count + 1):
        code = pdfium.FPDFText_GetUnicode(page, index) if index < count else 10
        drawn = code < 32 and index < count and not pdfium.FPDFText_IsGenerated(page, index) and not pdfium.FPDFText_IsHyphen(page, index)
        if code in (10, 13, _HYPHEN) and not drawn:
            if boxes:
                yield _piece(page, number, _spaced(text, wide) + ("-" if code == _HYPHEN else ""), boxes, sizes, first, last)
            text, boxes, sizes, wide = [], [], [], []
            continue
        if 0xD800 <= code < 0xDC00:
            high = code
            continue
        if 0xDC00 <= code < 0xE000:
            code, high = (0x10000 + ((high - 0xD800) << 10) + code - 0xDC00 if high else 0xFFFD), 0
        letter = chr(code)
        if drawn:
            beside = (text[-1:] or [""])[0] + chr(pdfium.FPDFText_GetUnicode(page, index + 1))
            letter = _CODES.get(code, " ") if any(map(str.isalpha, beside)) else " "
        elif letter == "\u0300" and (not text or text[-1] == " "):
            letter = "`"  # PDFium's reading of a quotation mark
        if letter.isspace() or not pdfium.FPDFText_GetLooseCharBox(page, index, byref(rect)):
            text.append(" " if letter.isspace() else letter)
            continue
        box = (rect.left, rect.bottom, rect.right, rect.top)
        box = turn(box) if turn else box
        if not boxes or text[-1] == " " or (box[1], box[3]) != asked:  # the size changes nowhere else, and asking takes time
            asked = (box[1], box[3])
            size = pdfium.FPDFText_GetFontSize(page, index) * _scale(page, index)
        if boxes and (
            _ends_piece(boxes[-1], box, max(size, sizes[-1], 1.0), letter[0])
            or (box[0] - boxes[-1][2] > SET_APART * size and _differs(size, sizes[-1]))
        ):
            yield _piece(page, number, _spaced(text, wide), boxes, sizes, first, last)
            text, boxes, sizes, wide = [], [], [], []
        if not boxes:
            first = index
            text = []
        elif text[-1] in _ACCENTS and box[0] < (boxes[-1][0] + boxes[-1][2]) / 2 < box[2]:
            text[-1] = normalize("NFC", {"\u0131": "i", "\u0237": "j"}.get(letter, letter) + _ACCENTS[text[-1]])
            continue
        elif _is_mark(text[-1], letter, boxes[-1], box, sizes[-1], size) or _is_mark(letter, text[-1], box, boxes[-1], size, sizes[-1]):
            text.append(" ")
        elif box[0] - boxes[-1][2] > GLUED * size and text[-1] != " " and letter.isalnum() and not UNSPACED.match(letter):
            wide.append(len(text))
        text.append(letter)
        boxes.append(box)
        sizes.append(size)
        last = index


def _spaced(text: Sequence[str], wide: Sequence[int]) -> str:
    """Put spaces where letters stand apart and the file has none, unless that is the style of the line or of some words."""
    spread = {place for place in wide if {place - 1, place + 1} <= set(wide)}
    places = [place for place in wide if not spread & {place - 1, place, place + 1}] if len(wide) <= SPREAD_FRAC * len(text) else []
    return " ".join("".join(text[start:end]) for start, end in pairwise([0, *places, len(text)]))


def _turning(page: PdfTextPage) -> Callable[[Box], Box] | None:
    """Return how the places of a page that is turned for reading are turned; None for others."""
    width, height = page.page.get_size()
    turns: dict[int, Callable[[Box], Box]] = {
        90: lambda box: (box[1], height - box[2], box[3], height - box[0]),
        180: lambda box: (width - box[2], height - box[3], width - box[0], height - box[1]),
        270: lambda box: (width - box[3], box[0], width - box[1], box[2]),
    }
    return turns.get(page.page.get_rotation())


def _ends_piece(before: Box, box: Box, size: float, letter: str) -> bool:
    if box[0] - before[2] > WIDE_GAP * size:
        return True
    if box[2] < before[0] - size and bidirectional(letter) not in ("R", "AL", "AN"):
        return True
    if min(before[2], box[2]) - max(before[0], box[0]) > SHARED_HEIGHT * min(before[2] - before[0], box[2] - box[0]):
        return max(before[1], box[1]) - min(before[3], box[3]) > WIDE_GAP * size  # text that runs up or down the page
    shared = min(before[3], box[3]) - max(before[1], box[1])
    return shared < SHARED_HEIGHT * min(before[3] - before[1], box[3] - box[1])


def _is_mark(letter: str, mark: str, box: Box, raised: Box, size: float, small: float) -> bool:
    """Say whether a digit next to a letter is the mark of a note, or a power: no part of the number or word."""
    return mark.isdigit() and letter.isalnum() and small < SMALLER * size and raised[1] - box[1] > RAISED * size


def _piece(page: pdfium.FPDF_TEXTPAGE, number: int, text: str, boxes: list[Box], sizes: list[float], first: int, last: int) -> PdfLine:
    lefts, bottoms, rights, tops = zip(*boxes, strict=True)
    whole = " ".join(text.encode("utf-8", "replace").decode().split())
    asked = {(first + last) // 2, last} | (set() if text[0].isdigit() else {first})  # numbers of lines of code are set as text
    asked -= {last} if _GOES_ON.search(whole) else set()
    names = {_font_name(page, index) for index in asked} - {""}
    is_bold, is_fixed = (bool(names) and all(mark.search(name) for name in names) for mark in (_BOLD, _FIXED))
    size = max(set(sizes), key=sizes.count)
    return PdfLine(number, whole, min(lefts), min(bottoms), max(rights), max(tops), size, is_bold, is_fixed)


def _scale(page: pdfium.FPDF_TEXTPAGE, index: int) -> float:
    """Return what a character's font is enlarged by: Word and InDesign write all text in size 1 and enlarge it."""
    matrix = pdfium.FS_MATRIX()
    return (pdfium.FPDFText_GetMatrix(page, index, byref(matrix)) and hypot(matrix.b, matrix.d)) or 1.0


def _font_name(page: pdfium.FPDF_TEXTPAGE, index: int) -> str:
    """Return the name of a character's font; empty where it has none."""
    buffer, flags = create_string_buffer(128), c_int()
    length = pdfium.FPDFText_GetFontInfo(page, index, buffer, 128, byref(flags))
    return buffer.raw[: max(length - 1, 0)].decode("utf-8", "replace") if length <= 128 else ""
