"""The pieces of a PDF page as lines in reading order: down the columns of text, along the rows of tables."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from statistics import mode

from slmsearch.corpus.documents.pdf_lines import PdfLine, join_pieces, on_one_line, right_edge

STEP = 2.0
"""Points: width of the strips of a page in which white is looked for."""
GUTTER = 6.0
"""Points between two columns, at least."""
CROSSING_FRAC = 0.25
"""Share of the usual number of pieces at a place that may cross a gutter: headings and tables over all columns."""
FEWEST_LINES = 6
"""Fewest lines of a column."""
FULL_FRAC = 0.6
"""Share of a column's width that at least half of its lines reach; the cells of tables are narrower."""
NARROW_FRAC = 0.08
"""Share of the text's width up to which a strip is no column: line numbers, notes printed up the margin."""
WORDS = 4
"""Number of words that at least half of a column's lines have; the cells of tables have fewer."""
ACROSS_FRAC = 0.2
"""Share of lines that are drawn out of their column's order, from which a page was drawn across its columns."""


MARGIN_FRAC, MARGIN_SIZE = 0.35, 0.95
"""Width of a margin with notes, in that of the text, and size of their font, in that of the text, at most."""


def in_reading_order(pieces: Sequence[PdfLine]) -> list[PdfLine]:
    """Return the lines of a page; a note in the margin follows the line that it is printed beside."""
    asides = _asides(pieces)
    beside = {id(piece) for aside in asides for piece in aside}
    lines = _in_columns([piece for piece in pieces if id(piece) not in beside])
    for aside in asides:
        above = [line for line in lines if line.bottom >= aside[0].bottom - 0.5 * aside[0].size and not line.is_aside]
        at = lines.index(min(above, key=lambda line: line.bottom)) + 1 if above else 0
        lines.insert(at, replace(join_pieces(aside, " "), is_aside=True))
    return lines


def _asides(pieces: Sequence[PdfLine]) -> list[list[PdfLine]]:
    """Return the pieces of each note in the right margin: smaller than the text, and nothing else stands there."""
    edge = right_edge(pieces)
    ending = [piece for piece in pieces if edge - 2 <= piece.right <= edge]
    if not ending:
        return []
    top, bottom, left = max(p.top for p in ending), min(p.bottom for p in ending), min(p.left for p in ending)
    beyond = [piece for piece in pieces if piece.left > edge and bottom <= piece.top and piece.bottom <= top]
    size = mode(piece.size for piece in ending)
    if any(piece.size > MARGIN_SIZE * size or piece.right - edge > MARGIN_FRAC * (edge - left) for piece in beyond):
        return []
    asides: list[list[PdfLine]] = []
    for piece in beyond:
        last = asides[-1][-1] if asides else None
        if last is not None and (on_one_line(last, piece) or 0 < last.bottom - piece.bottom < 2 * piece.size):
            asides[-1].append(piece)
        else:
            asides.append([piece])
    return [aside for aside in asides if any(c.isalpha() for piece in aside for c in piece.text)]


def _in_columns(pieces: Sequence[PdfLine]) -> list[PdfLine]:
    gutters = _gutters(pieces)
    if not gutters:
        return _rows(pieces)
    sides = [_side(piece, gutters) for piece in pieces]
    known = [side for side in sides if side is not None]
    jumps = sum(one != other for one, other in itertools.pairwise(known))
    if jumps <= max(ACROSS_FRAC * len(known), 2 * len(gutters)):
        return _rows(pieces, sides)
    ordered = _down(pieces, sides, len(gutters) + 1)
    return _rows(ordered, [_side(piece, gutters) for piece in ordered])


def _rows(pieces: Sequence[PdfLine], sides: Sequence[int | None] = ()) -> list[PdfLine]:
    """Join pieces that follow one another at the same height, of one column each."""
    rows: list[list[PdfLine]] = []
    for number, piece in enumerate(pieces):
        before = rows[-1][-1] if rows else None
        same_side = not sides or number == 0 or sides[number] == sides[number - 1]
        if before is not None and same_side and on_one_line(before, piece) and piece.left >= before.right:
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return [join_pieces(row) if len(row) > 1 else row[0] for row in rows]


def _gutters(pieces: Sequence[PdfLine]) -> list[tuple[float, float]]:
    """Return the white between columns of prose; none where a page has one column, or its columns are those of a table."""
    if len(pieces) < 2 * FEWEST_LINES:
        return []
    left, right = min(piece.left for piece in pieces), max(piece.right for piece in pieces)
    count = min(int((right - left) / STEP) + 1, 5000)
    covering = [0] * (count + 1)
    for piece in pieces:
        for strip in range(max(int((piece.left - left) / STEP), 0), min(int((piece.right - left) / STEP), count) + 1):
            covering[strip] += 1
    usual = sorted(covering)[len(covering) // 2]
    found = []
    for is_white, group in itertools.groupby(range(count), key=lambda strip: covering[strip] <= CROSSING_FRAC * usual):
        strips = list(group)
        if is_white and strips[0] and strips[-1] < count - 1 and len(strips) * STEP >= GUTTER:
            found.append((left + strips[0] * STEP, left + (strips[-1] + 1) * STEP))
    found = _without_narrow(found, left, right)
    return found if found and _hold_prose(pieces, found, left, right) else []


def _without_narrow(gutters: list[tuple[float, float]], left: float, right: float) -> list[tuple[float, float]]:
    """Leave out the narrower of the two gutters beside a strip that is too narrow for a column."""
    bounds = [(left, left), *gutters, (right, right)]
    for number in range(1, len(bounds)):
        if bounds[number][0] - bounds[number - 1][1] < NARROW_FRAC * (right - left):
            sides = [side for side in (number - 1, number) if 0 < side < len(bounds) - 1]
            if not sides:
                return []
            gone = min(sides, key=lambda side: bounds[side][1] - bounds[side][0])
            return _without_narrow([gutter for side, gutter in enumerate(gutters, 1) if side != gone], left, right)
    return gutters


def _hold_prose(pieces: Sequence[PdfLine], gutters: Sequence[tuple[float, float]], left: float, right: float) -> bool:
    starts, ends = [left, *(end for _, end in gutters)], [*(start for start, _ in gutters), right]
    for column, (start, end) in enumerate(zip(starts, ends, strict=True)):
        lines = [piece for piece in pieces if _side(piece, gutters) == column]
        if len(lines) < FEWEST_LINES:
            return False
        half = len(lines) // 2
        if sorted(piece.right - piece.left for piece in lines)[half] < FULL_FRAC * (end - start):
            return False
        if sorted(len(piece.text.split()) for piece in lines)[half] < WORDS:
            return False
    return True


def _side(piece: PdfLine, gutters: Sequence[tuple[float, float]]) -> int | None:
    """Return the column that a piece stands in; None where it stands across several."""
    middles = [(start + end) / 2 for start, end in gutters]
    column = sum(piece.left >= middle for middle in middles)
    return column if column == sum(piece.right > middle for middle in middles) else None


def _down(pieces: Sequence[PdfLine], sides: Sequence[int | None], count: int) -> list[PdfLine]:
    """Order pieces by what stands across the columns, and between that, down each column from the left."""
    ordered: list[PdfLine] = []
    columns: list[list[PdfLine]] = [[] for _ in range(count)]
    for side, piece in sorted(zip(sides, pieces, strict=True), key=lambda pair: (-pair[1].top, pair[1].left)):
        if side is not None:
            columns[side].append(piece)
            continue
        ordered += [*itertools.chain(*columns), piece]
        columns = [[] for _ in range(count)]
    return [*ordered, *itertools.chain(*columns)]
