"""HTML tables as Markdown tables: a cell that spans rows or columns is repeated in all of them, under its headers."""

from collections.abc import Callable, Sequence

from bs4 import Tag
from bs4.element import NavigableString

from slmsearch.corpus.documents.tables import grid_to_markdown

_ROWS, _CELLS = ("thead", "tbody", "tfoot", "tr"), ("td", "th", "caption", "colgroup", "col")
MAX_CELLS = 200_000
"""Maximum number of cells after spans are filled; in a larger table spans are ignored."""


def write_table(table: Tag, text_of: Callable[[Tag], str]) -> str:
    """Write a table: its caption, a header row, and the rows; a table of one row or one column becomes paragraphs."""
    captions = [" ".join(text_of(caption).split()) for caption in table.find_all("caption", recursive=False)]
    rows = _rows(table)
    titles, grid, headers = _split_titles(_fill(rows, text_of), _count_headers(rows), rows)
    width = max(map(len, grid), default=0)
    kept = [column for column in range(width) if any(row[column] for row in grid)]
    grid = [[row[column] for column in kept] for row in grid]
    filled = [[cell for cell in row if cell] for row in grid]
    if sum(map(bool, filled)) < 2 or max(map(len, filled), default=0) < 2:
        paragraphs = [" | ".join(cells) for cells in filled]
    elif not headers and "(" in grid[0] and any(")" in row for row in grid):  # an aligned signature
        paragraphs = [f"`{' '.join(cell for cells in filled for cell in cells)}`"]
    else:
        paragraphs = [grid_to_markdown(grid, headers)]
    return "\n\n".join(filter(None, (*_strays(table), *captions, *titles, *paragraphs)))


def _rows(table: Tag) -> list[list[Tag]]:
    """Return the cells of a table's own rows; cells outside of a row form one."""
    rows, waiting = [], [table]
    while waiting:
        tag = waiting.pop()
        for child in reversed(tag.find_all(["thead", "tbody", "tfoot"], recursive=False)):
            waiting.append(child)
        rows.append(tag.find_all(["td", "th"], recursive=False))
        rows += [row.find_all(["td", "th"], recursive=False) for row in tag.find_all("tr", recursive=False)]
    return [row for row in rows if row]


def _strays(table: Tag) -> list[str]:
    """Return the text in a table outside its cells, as broken pages have it."""
    found, waiting = [], [table]
    while waiting:
        for child in waiting.pop(0).children:
            if type(child) is NavigableString:
                found.append(str(child))
            elif isinstance(child, Tag) and child.name in _ROWS:
                waiting.append(child)
            elif isinstance(child, Tag) and child.name not in _CELLS:
                found.append(child.get_text(" "))
    return [" ".join(text.split()) for text in found if text.strip()]


def _count_headers(rows: Sequence[Sequence[Tag]]) -> int:
    """Return the number of header rows at the top: those of `<thead>`, else rows with header cells of columns alone."""
    count = 0
    for row in rows:
        in_head = row[0].find_parent(["thead", "tbody", "table"])
        is_head = in_head is not None and in_head.name == "thead"
        if not is_head and not all(cell.name == "th" and cell.get("scope") != "row" for cell in row):
            break
        count += 1
    return count if count < len(rows) else min(count, 1)


def _span(cell: Tag, name: str) -> int:
    text = str(cell.get(name, "1")).strip()
    return max(1, int(text)) if text.isdigit() and len(text) < 6 else 1


def _fill(rows: Sequence[Sequence[Tag]], text_of: Callable[[Tag], str]) -> list[list[str]]:
    widest = max((sum(min(_span(cell, "colspan"), 1000) for cell in row) for row in rows), default=0)
    spans = widest * len(rows) <= MAX_CELLS
    grid = [list[str | None]() for _ in rows]
    for number, row in enumerate(rows):
        column = 0
        for cell in row:
            text = " ".join(text_of(cell).split())
            while column < len(grid[number]) and grid[number][column] is not None:
                column += 1
            across = min(_span(cell, "colspan"), 1000) if spans else 1
            down = min(_span(cell, "rowspan"), len(rows) - number) if spans else 1
            for line in grid[number : number + down]:
                line.extend([None] * (column + across - len(line)))
                line[column : column + across] = [text] * across
            column += across
    width = max(map(len, grid), default=0)
    return [[text or "" for text in row] + [""] * (width - len(row)) for row in grid]


def _split_titles(grid: list[list[str]], header_rows: int, rows: Sequence[Sequence[Tag]]) -> tuple[list[str], list[list[str]], int]:
    """Split off rows of one cell across the table: above all others they are its title; below, their text is written once."""
    width = max(map(len, grid), default=0)
    titles = list[str]()
    for number, row in enumerate(rows):
        if (
            width > 1
            and len(row) == 1
            and _span(row[0], "colspan") >= width
            and _span(row[0], "rowspan") == 1
            and len(grid[number]) >= width
        ):
            grid[number][1:] = [""] * (len(grid[number]) - 1)
            if len(titles) == number:
                titles.append(grid[number][0])
    if len(titles) == len(grid):
        return titles, [], 0
    return titles, grid[len(titles) :], max(0, header_rows - len(titles))
