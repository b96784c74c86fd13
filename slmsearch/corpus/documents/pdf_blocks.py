"""Lines of a PDF to paragraphs, list items, rows of tables and code."""

import itertools
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from statistics import median
from typing import Self
from unicodedata import bidirectional

from slmsearch.corpus.documents.pdf_lines import UNSPACED, PdfLine
from slmsearch.corpus.documents.text import escape_heading, fenced, one_line

NEW_PARAGRAPH = 1.4
"""Distance of two lines, in usual ones, from which a paragraph ends."""
USUAL = 1.15
"""Largest distance of two lines, in usual ones, that is the usual one."""
SHORT_FRAC = 0.8
"""A line shorter than this share of the usual, that ends a sentence or has room for the next word, ends its paragraph."""
STACKED = 0.7
"""Distance of two lines, in usual ones, below which they are parts of one formula."""
INDENT = 0.8
"""Distance, in font sizes, by which the first line of a paragraph begins further right, or a line of a list further left."""
OTHER_SIZE = 0.12
"""Share by which the font's size differs in another paragraph."""
NOTE_SIZE = 0.93
"""Largest size of the font of footnotes, as a share of the size of the text's font."""
ALIGNED = 2.0
"""Points by which cells of a column differ from one another at most."""
MAX_COLUMNS, ROW_CELLS = 30, 4
_NOTE = re.compile(r"(\d{1,3}|[\u00b9\u00b2\u00b3\u2070-\u2079]{1,3}|[*\u2020\u2021\u00a7])\s*\S")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_DIVIDED = re.compile(r"([^\W\d_]+)-$")
_GOES_ON = re.compile(r"[^\W\d_]+")
BULLET = re.compile(r"(?:[\u2022\u2023\u25aa\u25cf\u25e6\u2043\u2219\u00b7\u25a0*]|[-\u2013\u2014])\s+(?=\S)")
_NUMBERED = re.compile(r"\(?(?:\d{1,3}|[a-z])[.)]\s+\S")
_KIND = re.compile(r"\[[^\]]+\]")
"""Kind of what a line defines, which Texinfo sets at its end."""
_ENDS = tuple(".!?:;\u3002\uff01\uff1f")


@dataclass(frozen=True, slots=True)
class Setting:
    """Typographic measures of a document."""

    leading: float
    """Usual distance of two lines, in font sizes."""
    width: float
    """Width of usual full lines, in points."""
    size: float
    """Size of the font in which most text is set."""
    words: Mapping[str, int]
    """Number of occurrences of each word, in lower case."""

    @classmethod
    def of(cls, lines: Sequence[PdfLine]) -> Self:
        """Measure a document."""
        distances = [
            (before.bottom - line.bottom) / line.size
            for before, line in itertools.pairwise(lines)
            if before.page == line.page and line.size and 0.5 < (before.bottom - line.bottom) / line.size < 3
        ]
        widths = sorted(line.right - line.left for line in lines)
        words = Counter(word.casefold() for line in lines for word in _WORD.findall(line.text))
        width = widths[int(0.8 * len(widths))] if widths else 0.0
        return cls(median(distances) if distances else 1.2, width, body_size(lines), words)


def body_size(lines: Sequence[PdfLine]) -> float:
    """Return the size of the font in which most text is set."""
    sizes = Counter[float]()
    for line in lines:
        sizes[round(2 * line.size) / 2] += sum(map(str.isalpha, line.text))
    return sizes.most_common(1)[0][0] if sizes else 0.0


def blocks(lines: Sequence[PdfLine], setting: Setting) -> Iterator[str]:
    """Yield the blocks of lines that stand under one heading, as Markdown; notes follow the paragraph that they cut."""
    lines = _without_words_in_code(lines, setting)
    rows, notes = _rows(lines, setting), _notes(lines, setting)
    waiting: list[int] = []
    cut: list[int] = []
    for number in range(len(lines)):
        if number in notes:
            cut.append(number)
            continue
        if waiting and _ends_before(number, waiting, lines, rows, setting):
            yield _block([lines[at] for at in waiting], waiting[0] in rows, setting)
            yield from _cut_notes(cut, lines, setting)
            waiting, cut = [], []
        waiting.append(number)
    if waiting:
        yield _block([lines[at] for at in waiting], waiting[0] in rows, setting)
    yield from _cut_notes(cut, lines, setting)


def _is_next(before: PdfLine, line: PdfLine, setting: Setting) -> bool:
    """Say whether a line stands directly below another."""
    return line.page == before.page and 0 < before.bottom - line.bottom < NEW_PARAGRAPH * setting.leading * line.size


def _without_words_in_code(lines: Sequence[PdfLine], setting: Setting) -> list[PdfLine]:
    """Take a line that is one word of code, such as an address, for a part of the paragraph that it ends or goes on with."""
    made = list(lines)
    for number, (before, line) in enumerate(itertools.pairwise(lines), 1):
        is_alone = line.fixed and not before.fixed and not (number + 1 < len(lines) and lines[number + 1].fixed)
        goes_on = (
            before.text[-1] not in _ENDS
            and abs(line.left - before.left) < ALIGNED
            and before.right - before.left > SHORT_FRAC * setting.width
        )
        if _is_next(before, line, setting) and is_alone and goes_on and " " not in line.text:
            made[number] = replace(line, fixed=False)
    return made


def _cut_notes(numbers: Sequence[int], lines: Sequence[PdfLine], setting: Setting) -> Iterator[str]:
    waiting: list[PdfLine] = []
    for number in numbers:
        if waiting and (_NOTE.match(lines[number].text) or lines[number].is_aside or waiting[-1].is_aside):
            yield _block(waiting, False, setting)
            waiting = []
        waiting.append(lines[number])
    if waiting:
        yield _block(waiting, False, setting)


def _notes(lines: Sequence[PdfLine], setting: Setting) -> set[int]:
    """Return the lines of notes: in the margin, or the last ones of their page, in a smaller font, the first with a mark."""
    found = {number for number, line in enumerate(lines) if line.is_aside}
    for _, numbers in itertools.groupby(range(len(lines)), key=lambda number: lines[number].page):
        small: list[int] = []
        for number in reversed(list(numbers)):
            if lines[number].size > NOTE_SIZE * setting.size or lines[number].fixed:
                break
            small.append(number)
        while small and not _NOTE.match(lines[small[-1]].text):
            small.pop()
        found.update(small)
    return found


def moved_notes(lines: Sequence[PdfLine], starts: Sequence[int], setting: Setting) -> dict[int, list[int]]:
    """Return the lines of notes at the foot of a page by the section of that page, from 0 for the first, that alone has their mark.

    Args:
        lines: all lines of the document.
        starts: numbers of the lines with which its sections begin, without the first section.
        setting: measures of the document.
    """
    found, moved = _notes(lines, setting), defaultdict[int, list[int]](list)
    sections = [bisect_right(starts, number) for number in range(len(lines))]
    by_page: dict[int, list[int]] = defaultdict(list)
    for number in range(len(lines)):
        by_page[lines[number].page].append(number)
    for numbers in by_page.values():
        notes = [number for number in numbers if number in found and not lines[number].is_aside]
        target = -1
        for number in notes if sections[numbers[0]] != sections[numbers[-1]] else ():
            if mark := _NOTE.match(lines[number].text):
                sought = re.compile(rf"[^\s\d_] ?(?<![A-Z\d]\.){re.escape(mark[1])}(?![\w.]\w|\w)")
                having = {sections[other] for other in numbers if other not in found and sought.search(lines[other].text)}
                target = having.pop() if len(having) == 1 else -1
            if target not in (-1, sections[number]):
                moved[target].append(number)
    return moved


def _rows(lines: Sequence[PdfLine], setting: Setting) -> set[int]:
    """Return the rows of tables: lines of many cells, or of cells that stand below those of the line before or above the next one's.

    A line below a row that begins where one of its cells does goes on with that cell.
    """
    found = {
        number
        for number, line in enumerate(lines)
        if len(line.cells) >= ROW_CELLS and not line.fixed and (_is_beside_cells(number, lines) or not _is_stretched(line, setting))
    }
    above: int | None = None
    for number, line in enumerate(lines):
        if line.cells and not line.fixed:
            found |= {above, number} if above is not None and _are_aligned(lines[above], line) else set()
            above = number
        elif above is not None and not _goes_on_in(lines[above], lines[number - 1], line, setting):
            above = None
    row = None
    for number, line in enumerate(lines):
        if number in found:
            row = line
        elif row is not None and number - 1 in found and _goes_on_in(row, lines[number - 1], line, setting):
            found.add(number)
    return found


def _are_aligned(line: PdfLine, other: PdfLine) -> bool:
    """Say whether a cell of the second line stands below one of the first, the left one aside: by its left, its right, or its middle."""
    starts = [start for start, _, _ in other.cells[1:]] + [end for _, end, _ in other.cells[1:]]
    edges = [start for start, _, _ in line.cells[1:]] + [end for _, end, _ in line.cells[1:]]
    middles = [[(start + end) / 2 for start, end, _ in row.cells[1:]] for row in (line, other)]
    return any(abs(one - two) < ALIGNED for one in starts + middles[1] for two in edges + middles[0])


def _is_beside_cells(number: int, lines: Sequence[PdfLine]) -> bool:
    return any(line.cells for line in (*lines[max(number - 1, 0) : number], *lines[number + 1 : number + 2]))


def _is_stretched(line: PdfLine, setting: Setting) -> bool:
    """Say whether a line is one of text that was stretched to the full width, and no row: all its gaps are alike."""
    gaps = [other[0] - one[1] for one, other in itertools.pairwise(line.cells)]
    return line.right - line.left > 0.95 * setting.width and max(gaps) - min(gaps) < 0.1 * max(gaps)


def _goes_on_in(row: PdfLine, before: PdfLine, line: PdfLine, setting: Setting) -> bool:
    """Say whether a line directly below another begins where a cell of a row does, and holds no cells of its own."""
    return (
        _is_next(before, line, setting)
        and not (line.cells or line.fixed or line.is_item)
        and any(abs(line.left - start) < ALIGNED for start, *_ in row.cells[1:])
    )


def _ends_before(number: int, waiting: Sequence[int], lines: Sequence[PdfLine], rows: Set[int], setting: Setting) -> bool:
    """Say whether a paragraph ends before a line."""
    line, before, first = lines[number], lines[waiting[-1]], lines[waiting[0]]
    if line.fixed != before.fixed or (number in rows) != (waiting[-1] in rows):
        return True
    ends_sentence = before.text.endswith(_ENDS)
    is_below = line.page == before.page and line.bottom < before.bottom
    if line.fixed or number in rows:
        return False
    is_short = before.right - before.left < SHORT_FRAC * setting.width
    goes_on = is_below and not is_short and not ends_sentence and abs(line.left - before.left) < ALIGNED
    if line.is_item or (BULLET.match(line.text) and not (goes_on and line.text[0] in "\u2013\u2014")):
        return True
    if _is_stacked(line, [lines[at] for at in waiting], setting):
        return False
    distance = before.bottom - line.bottom
    if abs(line.size - before.size) > OTHER_SIZE * max(line.size, before.size):
        return not goes_on or distance > USUAL * setting.leading * before.size
    if not is_below:  # the next column or page
        return ends_sentence or (is_short and line.bold != before.bold)
    if distance > NEW_PARAGRAPH * setting.leading * line.size:
        return True
    if _NUMBERED.match(line.text) and (ends_sentence or _NUMBERED.match(first.text)):
        return True
    if _has_room(line, [lines[at] for at in waiting]) or (line.bold != before.bold and abs(line.left - before.left) > INDENT * line.size):
        return True
    is_list = bool(first.is_item or BULLET.match(first.text) or _NUMBERED.match(first.text))
    if is_list and line.left < first.left - INDENT * line.size and (is_short or ends_sentence):  # text below the list
        return True
    if is_list and len(waiting) == 1 and not is_short and line.left > first.left + ALIGNED:
        return False
    if len(waiting) > 1 and before.left - line.left > INDENT * line.size and ends_sentence:  # an entry after one whose lines hang
        return True
    if before.cells and _KIND.fullmatch(before.cells[-1][2]):
        return True
    moved = line.left - min(lines[at].left for at in waiting)
    moved = abs(moved) > INDENT * line.size and (moved > 0 or len(waiting) > 1 or is_list)
    return ends_sentence and (moved or is_short) and len(waiting) + is_short + moved > 1


def _is_stacked(line: PdfLine, above: Sequence[PdfLine], setting: Setting) -> bool:
    """Say whether a line overlaps one of those before it, as the parts of a displayed formula do."""
    near = (abs(other.bottom - line.bottom) / max(other.size, line.size, 1.0) for other in above[-4:] if other.page == line.page)
    return any(distance < STACKED * setting.leading for distance in near)


def _has_room(line: PdfLine, above: Sequence[PdfLine]) -> bool:
    """Say whether the first word of a line had room at the end of the line before it, much of which is empty."""
    before, left = above[-1], min(line.left, above[-1].left)
    right = max([line.right, *(other.right for other in above if other.page == line.page and other.left < line.right)])
    width = (len(line.text.split()[0]) + 1) * (line.right - line.left) / len(line.text)
    is_short = before.right + width < left + SHORT_FRAC * (right - left) and not before.text.endswith("-")
    return is_short and not any(bidirectional(letter) in ("R", "AL") for letter in before.text)


def _block(lines: Sequence[PdfLine], is_table: bool, setting: Setting) -> str:
    if lines[0].fixed:
        return _code(lines)
    if is_table:
        return "\n".join(escape_heading(row) for row in _table(lines, setting))
    text = joined(lines, setting)
    bullet = BULLET.match(text)
    return f"- {text[bullet.end() :]}" if bullet else escape_heading(text)


def _table(lines: Sequence[PdfLine], setting: Setting) -> Iterator[str]:
    """Yield the rows of a table, each cell under those that it stands under; an empty one stays empty, one of several lines is whole."""
    columns: list[tuple[float, float]] = []
    for left, right, _ in sorted(part for line in lines for part in line.parts):
        if columns and left < columns[-1][1]:
            columns[-1] = (columns[-1][0], max(columns[-1][1], right))
        else:
            columns.append((left, right))
    places = [[sum(part[0] >= start for start, _ in columns) - 1 for part in line.parts] for line in lines]
    is_grid = len(columns) <= MAX_COLUMNS and all(len(set(place)) == len(place) for place in places)
    rows = list[list[str]]()
    for line, place in zip(lines, places, strict=True):
        cells = [one_line(text) for _, _, text in line.parts]
        if is_grid:
            told = dict(zip(place, cells, strict=True))
            cells = [told.get(column, "") for column in range(len(columns))]
        at = place[0]
        if is_grid and rows and at and not line.cells and rows[-1][at]:
            rows[-1][at] = _joined(rows[-1][at], cells[at], setting.words)
        else:
            rows.append(cells)
    yield from (" | ".join(cells).rstrip() for cells in rows)


def joined(lines: Sequence[PdfLine], setting: Setting) -> str:
    """Join lines to one, a divided word as in `_joined`."""
    text = lines[0].text.strip()
    for line in lines[1:]:
        text = _joined(text, line.text.strip(), setting.words)
    return one_line(text)


def _joined(text: str, following: str, words: Mapping[str, int]) -> str:
    """Join two lines; a divided word is made whole where the document has it whole, and keeps its hyphen elsewhere."""
    if UNSPACED.match(text[-1:]) and UNSPACED.match(following):
        return text + following
    divided, rest = _DIVIDED.search(text), _GOES_ON.match(following)
    if divided is None or rest is None or not (rest[0][0].islower() or (divided[1] + rest[0]).isupper()):
        return f"{text} {following}"
    whole = (divided[1] + rest[0]).casefold()
    return (text[:-1] if words.get(whole) else text) + following


def _code(lines: Sequence[PdfLine]) -> str:
    """Return lines of code between fences, each as far from the left as it is printed."""
    left = min(line.left for line in lines)
    widths = [(line.right - line.left) / len(line.text.strip()) for line in lines if line.text.strip()]
    width = max(median(widths) if widths else 1.0, 0.1)
    return fenced("\n".join(" " * min(round((line.left - left) / width), 60) + line.text.strip() for line in lines))
