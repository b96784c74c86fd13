"""Grids of cells as Markdown tables; long ones in pieces with their headers repeated."""

from collections.abc import Iterator, Sequence

from slmsearch.corpus.documents.text import escape_heading, one_line

MAX_CHARS = 3000
"""Most characters of a table in one section; a longer table is split into sections of this length."""
_NAME_CHARS = 30
"""Longest first cell that helps to name such a section."""
_DISTINCT_FRAC = 0.8
"""Share of rows whose first cell differs from all others, above which rows are known by it."""

Grid = Sequence[Sequence[str]]
"""Rows of equal length; an empty cell is an empty text."""


def grid_to_markdown(grid: Grid, headers: int) -> str:
    """Return a grid as a Markdown table; several rows of headers become one, no row of headers an empty one.

    Empty rows and columns go. One column alone is lines of text.
    """
    keep = [column for column in range(max(map(len, grid), default=0)) if any(cell_at(row, column).strip() for row in grid)]
    rows = [[_escape(cell_at(row, column)) for column in keep] for row in grid]
    if len(keep) == 1:
        return "\n".join(escape_heading(one_line(cell_at(row, keep[0]))) for row in grid if cell_at(row, keep[0]).strip())
    top = [" ".join(dict.fromkeys(filter(None, names))) for names in zip(*rows[:headers], strict=True)] or [""] * len(keep)
    shown = [top, ["---"] * len(keep), *(row for row in rows[headers:] if any(row))]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown) if keep else ""


def cell_at(row: Sequence[str], column: int) -> str:
    """Return a cell of a row; empty where the row is shorter."""
    return row[column] if column < len(row) else ""


def _escape(cell: str) -> str:
    return one_line(cell).replace("\\|", "|").replace("|", "\\|")


def split_table(grid: Grid, headers: int, numbers: Sequence[int], name: str, level: int) -> Iterator[str]:
    """Yield a grid as blocks of Markdown: one table, or for a long one several, each with the headers under a heading with its rows.

    Args:
        grid: rows of cells.
        headers: rows of headers on top of it.
        numbers: numbers of its rows, as people count them.
        name: stands before the numbers of rows in headings; may be empty.
        level: level of the headings.
    """
    top, body = grid[:headers], [pair for pair in zip(numbers, grid, strict=True) if any(cell.strip() for cell in pair[1])][headers:]
    pieces: list[list[tuple[int, Sequence[str]]]] = [[]]
    length = 0
    for number, row in body:
        chars = sum(map(len, row)) + 3 * len(row)
        if pieces[-1] and length + chars > MAX_CHARS:
            pieces.append([])
            length = 0
        pieces[-1].append((number, row))
        length += chars
    if len(pieces) == 1:
        yield grid_to_markdown(grid, headers)
        return
    names_rows = len({cell_at(row, 0) for _, row in body}) > _DISTINCT_FRAC * len(body)
    for piece in pieces:
        named = _name_piece([row for _, row in piece]) if names_rows else ""
        yield f"{head_piece(name, piece[0][0], piece[-1][0], level)}{named}"
        yield grid_to_markdown([*top, *(row for _, row in piece)], headers)


def head_piece(name: str, first: int, last: int, level: int) -> str:
    """Return the heading of some rows of a table; the name may be empty."""
    rows = f"row {first}" if first == last else f"rows {first} to {last}"
    return f"{'#' * level} {name}, {rows}" if name else f"{'#' * level} {rows.capitalize()}"


def _name_piece(piece: Grid) -> str:
    """Return the first cells of the first and the last row, where they are short enough to find rows by them."""
    ends = [one_line(cell_at(row, 0)) for row in (piece[0], piece[-1])]
    return f" ({ends[0]} to {ends[1]})" if all(0 < len(end) <= _NAME_CHARS for end in ends) and ends[0] != ends[1] else ""
