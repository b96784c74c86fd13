"""Tables in a grid of cells: where one ends and the next begins, which rows are headers, and which are text around it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

HEADER_CHARS = 80
"""Longest cell of a header where only words tell headers from data."""
LONGEST_HEADER = 300
"""Longest cell of any header."""
_YEAR = re.compile(r"(?:1[89]|20)\d\d(?:[-/](?:\d\d|\d{4}))?")
_NAME = re.compile(r"([^\W\d_]+)[-. ^]{0,2}(?:\d{1,2}(?:[-/ ]{1,2}(?:\d\d){1,2})?|\d{4})|\d{1,2}([./])\d{1,2}\2\d{4}|\d{4}-\d\d-\d\d")
"""A value that may name a column: a quarter, month, week or day (Q1, Jan-24, KW 12, 31.12.2024), a formula (CO2), a unit (m^2)."""
_VALUE = re.compile(r"[^\W\d_]{0,3}[\W_]*\d[\d\W_]*(?:[^\W\d_]{1,3})?|(?:[^\w#%$\u20ac\u00a3]|_)+|\[[a-z]{1,3}\]")
"""A number with its unit or currency, a date, a mark for no value; `#`, `%` and a currency alone name a column."""
_NOTES_BESIDE = 3
_FIRST_ROWS = 8
"""Most rows at the top of a table that are notes above its headers, or headers."""


class Cell(NamedTuple):
    """A cell as it is seen."""

    text: str
    is_value: bool = False
    """A number, a date or true or false; a text that only looks like one is none."""
    is_strong: bool = False
    """Bold or shaded."""
    range: int = 0
    """Number of the merged cells that it is part of; 0 for a cell of its own."""


EMPTY = Cell("")


@dataclass(slots=True)
class SheetBlock:
    """A table with the lines above and below it; without rows only lines."""

    above: list[str] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    headers: int = 0
    below: list[str] = field(default_factory=list)
    left: int = 0
    """Column in which it begins."""
    numbers: list[int] = field(default_factory=list)
    """Number of each row in the grid, from 0."""
    top: int = 0
    """Row in which it begins, with the lines above."""
    caption: str = ""
    """The first of the lines above; empty where notes stand beside each other there."""
    lead: int = -1
    """Column of the line above a table without headers."""
    is_caption: bool = False
    """The block holds lines alone, bold or shaded: they are the caption of the block below."""


def guess_value(text: str) -> bool:
    """Say whether a text is a number, a date or a mark for no value, as the cells of csv files are."""
    return len(text) <= HEADER_CHARS and _VALUE.fullmatch(text) is not None


def find_blocks(rows: Sequence[Sequence[Cell]], has_names: bool = False) -> list[SheetBlock]:
    """Find the tables of a grid, from above, and those beside each other from the left.

    Empty rows end a table, unless what follows goes on without headers of its own. An empty column ends one where what stands to the
    right has labels of its own.

    Args:
        rows: rows of cells.
        has_names: whether the first row of a table is one of headers where nothing speaks against it.
    """
    blocks: list[SheetBlock] = []
    end = 0
    for start, region in _regions(rows):
        before = blocks[-1] if blocks and start - end <= 1 else None
        parts = _beside(region)
        for block in (block for left, top, part in parts for block in _peel(part, left, start + top, before)):
            if before is not None and len(parts) == 1 and _goes_on(before, block):
                _join(before, block)
            elif before is not None and before.is_caption and block.rows and not block.above:
                block.above, block.top, block.caption = before.above, before.top, before.caption
                blocks[-1] = block
            else:
                blocks.append(block)
            before = blocks[-1] if len(parts) == 1 else None
        end = start + len(region)
    for block in blocks:
        block.headers = count_headers(block.rows)
        is_alone = len(block.rows) == 1  # as the headers of an empty table are
        if not block.headers and block.rows and is_alone != has_names:
            block.headers = int(all(cell.text and not cell.is_value for cell in block.rows[0]))
        block.rows = _without_repeats(block.rows)
    return blocks


def _regions(rows: Sequence[Sequence[Cell]]) -> list[tuple[int, list[Sequence[Cell]]]]:
    """Return the regions between empty rows, each with the number of its first row."""
    found: list[tuple[int, list[Sequence[Cell]]]] = []
    goes_on = False
    for number, row in enumerate(rows):
        if not any(cell.text for cell in row):
            goes_on = False
        elif goes_on:
            found[-1][1].append(row)
        else:
            found.append((number, [row]))
            goes_on = True
    return found


def _beside(region: Sequence[Sequence[Cell]]) -> list[tuple[int, int, list[list[Cell]]]]:
    """Return the tables that stand beside each other, each with its first column and row."""
    width = max(map(len, region))
    rows = [[*row, *[EMPTY] * (width - len(row))] for row in region]
    full = [any(row[column].text for row in rows) for column in range(width)]
    starts = [column for column in range(width) if full[column] and (column == 0 or not full[column - 1])]
    cuts = [starts[0], *(column for column in starts[1:] if _has_labels([row[column:] for row in rows]))]
    parts = []
    for left, right in zip(cuts, [*cuts[1:], width], strict=True):
        part = [row[left:right] for row in rows]
        full_rows = [number for number, row in enumerate(part) if any(cell.text for cell in row)]
        parts.append((left, full_rows[0], part[full_rows[0] : full_rows[-1] + 1]))
    return parts


def _has_labels(rows: Sequence[Sequence[Cell]]) -> bool:
    """Say whether a part of a table reads alone: words in its first column, values beside them."""
    own = [row for row in rows if len([cell for cell in row if cell.text]) > 1]
    body = own[1:]
    labelled = [row for row in body if row[0].text and not row[0].is_value]
    return bool(body) and len(labelled) > 0.8 * len(body) and any(cell.is_value for row in body for cell in row[1:])


def _is_line(row: Sequence[Cell]) -> bool:
    """Say whether a row holds one cell alone, merged or not."""
    full = [cell for cell in row if cell.text]
    return len(full) == 1 or (bool(full) and full[0].range > 0 and all(cell.range == full[0].range for cell in full))


def _first(row: Sequence[Cell]) -> int:
    return next(column for column, cell in enumerate(row) if cell.text)


def _line(row: Sequence[Cell]) -> str:
    return row[_first(row)].text


def _peel(part: list[list[Cell]], left: int, top: int, before: SheetBlock | None) -> Iterator[SheetBlock]:
    """Yield the table of a part with the lines around it; several where lines inside stand over what follows as the first line does."""
    first = next((at for at, row in enumerate(part) if not _is_line(row)), len(part))
    lead = _first(part[first - 1]) if first else before.lead - left if before is not None else -1
    if not 0 <= lead < len(part[0]) or count_headers(part[first + _count_notes(part[first:]) :]):
        lead = -1
    for start, end in pairwise([0, *_find_captions(part, first, lead), len(part)]):
        yield _read_block(part[start:end], left, top + start, lead)


def _find_captions(part: Sequence[Sequence[Cell]], first: int, lead: int) -> list[int]:
    """Return the rows inside a table that are lines in the column of captions, over rows that leave this column empty."""
    found: list[int] = []
    is_over = False
    for at in range(len(part) - 1, first, -1) if lead >= 0 else ():
        if not _is_line(part[at]):
            is_over = not part[at][lead].text
        elif is_over and _first(part[at]) == lead:
            if found and found[-1] == at + 1:
                found.pop()  # of several lines the first counts
            found.append(at)
    return found[::-1]


def _read_block(part: list[list[Cell]], left: int, top: int, lead: int) -> SheetBlock:
    first, last = 0, len(part)
    while first < last and _is_line(part[first]):
        first += 1
    caption = _line(part[0]) if first else ""
    is_caption = first == last and all(_is_strong(row) for row in part)
    first += _count_notes(part[first:])
    longest = max((len(row[0].text) for row in part[first:] if not _is_line(row)), default=0)
    while last > first and _is_line(part[last - 1]) and len(_line(part[last - 1])) > longest:
        last -= 1  # a note; a shorter line may be a row whose other cells are empty
    rows = [_single(row) if _is_line(row) else row for row in part[first:last]]
    numbers = list(range(top + first, top + last))
    below = [_line(row) for row in part[last:]]
    return SheetBlock(
        list(_texts(part[:first])), rows, 0, below, left, numbers, top, caption, left + lead if rows and lead >= 0 else -1, is_caption
    )


def _texts(rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Yield the texts of rows, that of a merged cell once."""
    seen: set[int] = set()
    for cell in (cell for row in rows for cell in row if cell.text):
        if cell.range not in seen:
            yield cell.text
        seen |= {cell.range} - {0}


def _count_notes(rows: Sequence[Sequence[Cell]]) -> int:
    """Return how many rows are a few notes beside each other: one is a sentence, and headers of twice as many columns are below."""
    widest, has_sentence = 0, False
    for count, row in enumerate(rows[:_FIRST_ROWS]):
        texts = list(_texts([row]))
        if has_sentence and 2 * widest <= len(texts) and widest <= _NOTES_BESIDE and count_headers(rows[count:]):
            return count
        widest = max(widest, len(texts))
        has_sentence = has_sentence or any(len(text) > HEADER_CHARS for text in texts)
    return 0


def _without_repeats(rows: list[list[Cell]]) -> list[list[Cell]]:
    """Return rows without the columns that only merged cells reach into."""
    width = max(map(len, rows), default=0)
    padded = [[*row, *[EMPTY] * (width - len(row))] for row in rows]
    keep = [
        column
        for column in range(width)
        if any(row[column].text and not (column and _are_merged(row[column - 1], row[column])) for row in padded)
    ]
    return [[row[column] for column in keep] for row in padded]


def _single(row: Sequence[Cell]) -> list[Cell]:
    """Return a row of one merged cell with its text once: it speaks of the rows below it, not of each column."""
    at = _first(row)
    return [cell if column == at else EMPTY for column, cell in enumerate(row)]


def _goes_on(before: SheetBlock, block: SheetBlock) -> bool:
    if not before.rows or not block.rows or before.below or block.above or count_headers(block.rows):
        return False
    ends = (before.left + max(map(len, before.rows)), block.left + max(map(len, block.rows)))
    return before.left <= block.left and ends[1] <= ends[0] and 2 * (ends[1] - block.left) > ends[0] - before.left


def _join(before: SheetBlock, block: SheetBlock) -> None:
    shift = [EMPTY] * (block.left - before.left)
    before.rows += [[*shift, *row] for row in block.rows]
    before.numbers += block.numbers
    before.below = block.below


def count_headers(rows: Sequence[Sequence[Cell]]) -> int:
    """Return how many of the first rows are headers of the others; none where nothing tells them from data."""
    if len(rows) < 2 or not _may_be_headers(rows):
        return 0
    if count := _count_to_strong(rows):
        return count
    if not _differs(rows):
        return 0
    count = 1
    while count < len(rows) - 1 and _may_be_headers(rows[count:]) and _belongs(rows[count - 1], rows[count], rows[count + 1]):
        count += 1
    is_form = count == len(rows) - 1 and _are_merged(rows[-2][0], rows[-1][0])
    return count + is_form


def _count_to_strong(rows: Sequence[Sequence[Cell]]) -> int:
    """Return how many rows end with the only bold or shaded one of the first, where the first row names nothing; 0 where none does."""
    strong = [number for number, row in enumerate(rows[:_FIRST_ROWS]) if _is_strong(row)]
    names = [cell.text for cell in rows[0] if cell.text]
    if len(strong) != 1 or not 0 < strong[0] < len(rows) - 1 or len(set(names)) > 1:
        return 0
    return strong[0] + 1 if all(_may_be_headers(rows[at:]) for at in range(strong[0] + 1)) else 0


def _is_strong(row: Sequence[Cell]) -> bool:
    return all(cell.is_strong for cell in row if cell.text)


def _may_be_headers(rows: Sequence[Sequence[Cell]]) -> bool:
    """Say whether the first row may be one of headers of the others: its cells are words, or values that name columns."""
    row = rows[0]
    full = [cell for cell in row if cell.text]
    words = [cell for cell in full if not cell.is_value]
    if any(len(cell.text) > LONGEST_HEADER for cell in full):
        return False
    is_named = all(not cell.is_value or _YEAR.fullmatch(cell.text) or _is_name(rows, at) for at, cell in enumerate(row) if cell.text)
    return len(full) > 1 and is_named and (bool(words) or not row[0].text)


def _is_name(rows: Sequence[Sequence[Cell]], column: int) -> bool:
    """Say whether a value names its column: most below it are values of another kind, and the row is none of a label and its value."""
    name = _NAME.fullmatch(rows[0][column].text)
    if name is None or (rows[0][0].text and len([cell for cell in rows[0] if cell.text]) < 3):
        return False
    below = [row[column] for row in rows[1:] if column < len(row) and row[column].text]
    alike = [cell for cell in below if _NAME.fullmatch(cell.text) or (name[1] and re.match(rf"{name[1]}[\W\d]", cell.text))]
    return 2 * sum(cell.is_value and cell not in alike for cell in below) > len(below)


def _differs(rows: Sequence[Sequence[Cell]]) -> bool:
    """Say whether the first row differs from those below: by values below words, by its look, or by short words over every column."""
    top, body = rows[0], rows[1:]
    pairs = list(zip(top, body[0], strict=False))
    has_groups = any(_are_merged(one[0], two[0]) and not _are_merged(one[1], two[1]) for one, two in pairwise(pairs))
    if has_groups and len(rows) > 2 and all(_is_line(row) or any(_are_merged(*pair) for pair in pairwise(row)) for row in body[1:]):
        return False  # a form
    if has_groups or any(_are_merged(*pair) for pair in pairs[1:]):
        return True  # groups of columns above their names
    full = [cell for cell in top if cell.text]
    columns = [[row[at] for row in body if at < len(row) and row[at].text] for at in range(1, len(top)) if top[at].text]
    if any(2 * sum(cell.is_value for cell in column) >= len(column) for column in columns if column):
        return True
    strong = [_is_strong(row) for row in body if any(cell.text for cell in row)]
    if _is_strong(top) and not all(strong):
        return True
    width = max(len([cell for cell in row if cell.text]) for row in body)
    names = [cell.text.casefold() for cell in full]
    return len(rows) > 2 and len(full) >= width and len(set(names)) == len(names) and all(len(name) <= HEADER_CHARS for name in names)


def _are_merged(one: Cell, two: Cell) -> bool:
    return 0 < one.range == two.range


def _belongs(above: Sequence[Cell], row: Sequence[Cell], below: Sequence[Cell]) -> bool:
    """Say whether a row goes on with the headers above it."""
    if not row[0].text or (row[0].range and row[0].range == above[0].range):
        return True
    groups = [cell.range for cell in above if cell.range]
    is_below_groups = len(groups) > len(set(groups)) or len([c for c in above if c.text]) < len([c for c in row if c.text])
    return is_below_groups and (not above[0].text or _is_values(below)) and not _is_values(row)


def _is_values(row: Sequence[Cell]) -> bool:
    return any(cell.is_value and not _YEAR.fullmatch(cell.text) and not _NAME.fullmatch(cell.text) for cell in row[1:])
