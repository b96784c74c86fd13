"""Grids of cells as Markdown tables, and where tables lie in a sheet."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from slmsearch.corpus.documents.text import escape_heading, one_line

Grid = Sequence[Sequence[str]]
LONG_ROWS = 60
"""Rows from which a table is divided, each part under its headers: a section is to be readable."""
PART_ROWS = 40
MAX_HEADERS = 3
_BAR = re.compile(r"(?<!\\)\|")
_NUMBER = re.compile(r"[^A-Za-z]*\d[^A-Za-z]*|TRUE|FALSE")


class Region(NamedTuple):
    """A part of a sheet with nothing around it."""

    rows: list[list[str]]
    first_row: int
    """From 0, in its sheet."""


def table_to_markdown(rows: Grid, headers: int) -> str:
    """Return a grid as a Markdown table; several rows of headers become one, and without any an empty one stands above.

    Args:
        rows: cells as text; a row may be short.
        headers: rows at the top that are headers.
    """
    width = max(map(len, rows), default=0)
    cells = [[_cell(text) for text in [*row, *[""] * (width - len(row))]] for row in rows]
    if not any(any(row) for row in cells):
        return ""
    head = [" ".join(dict.fromkeys(row[column] for row in cells[:headers] if row[column])) for column in range(width)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * width, *cells[headers:]])


def _cell(text: str) -> str:
    return _BAR.sub(r"\\|", one_line(text))


def find_regions(grid: Grid) -> Iterator[Region]:
    """Divide a sheet at empty rows, and what lies between them at empty columns."""
    start = 0
    for end in range(len(grid) + 1):
        if end < len(grid) and any(grid[end]):
            continue
        if end > start:
            yield from _side_by_side(grid[start:end], start)
        start = end + 1


def _side_by_side(rows: Grid, first_row: int) -> Iterator[Region]:
    width = max(map(len, rows))
    filled = [any(column < len(row) and row[column] for row in rows) for column in range(width)]
    start = 0
    for end in range(width + 1):
        if end < width and filled[end]:
            continue
        if end > start:
            part = [[*row, *[""] * width][start:end] for row in rows]
            kept = [number for number, row in enumerate(part) if any(row)]
            yield Region(part[kept[0] : kept[-1] + 1], first_row + kept[0])
        start = end + 1


def count_headers(rows: Grid, bold: Sequence[bool] = ()) -> int:
    """Return how many rows at the top are headers: words, over at least one column of something else, or set in bold.

    Args:
        rows: a region.
        bold: whether all cells of each row are bold, where that is known.
    """
    if len(rows) < 2:
        return 0
    if any(bold) and not all(bold[: len(rows)]):
        return min(next((number for number, is_bold in enumerate(bold) if not is_bold), 0), MAX_HEADERS)
    first = [text for text in rows[0] if text]
    if not first or any(_NUMBER.fullmatch(text) for text in first) or len(set(first)) < len(first):
        return 0
    is_whole = len(first) >= len(rows[0]) - 1  # the corner may be empty
    below = [[row[column] for row in rows[1:] if column < len(row) and row[column]] for column in range(len(rows[0]))]
    has_numbers = any(column and all(_NUMBER.fullmatch(text) for text in column) for column in below)
    return int(is_whole and len(rows[0]) > 1 and (has_numbers or all(len(text) <= 40 for text in first)))


def region_to_markdown(region: Region, headers: int, level: int, name: str) -> Iterator[str]:
    """Yield the blocks of a region: a single cell as text, a long table in parts with headings of a level that name their rows."""
    rows = region.rows
    while rows and sum(map(bool, rows[0])) == 1 and len(rows[0]) > 1 and len(rows) > 1 and rows[0][0]:
        yield escape_heading(one_line(rows[0][0]))  # the caption of what is below
        rows, headers, region = rows[1:], max(headers - 1, 0), Region(rows[1:], region.first_row + 1)
    if max(map(len, rows)) == 1:
        yield from (escape_heading(one_line(row[0])) for row in rows if row[0])
    elif len(rows) - headers <= LONG_ROWS:
        yield table_to_markdown(rows, headers)
    else:
        for start in range(headers, len(rows), PART_ROWS):
            part = rows[start : start + PART_ROWS]
            numbers = f"{region.first_row + start + 1} to {region.first_row + start + len(part)}"
            yield f"{'#' * level} {name}, rows {numbers}" if name else f"{'#' * level} Rows {numbers}"
            yield table_to_markdown([*rows[:headers], *part], headers)
