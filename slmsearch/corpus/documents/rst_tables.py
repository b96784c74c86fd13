"""Tables of reStructuredText as rows of cells: grid tables, simple tables, and those of directives.

A cell that spans rows or columns is repeated in all of them, under its headers.
"""

import csv
import re
from collections.abc import Sequence
from itertools import pairwise

Rows = list[list[str]]
MOST_BORDERS = 3
"""Maximum number of borders of a simple table: above it, under its headers, and below it."""
_ITEM = re.compile(r"([*-])\s+([*-])\s?(.*)$|(\s+)([*-])\s?(.*)$")
_DRAWN = re.compile(r"\+(?:[-=]+\+)+\s*")
_SIMPLE = re.compile(r"=+(?: +=+)+\s*")
_RULED = re.compile(r"-[- ]*")
_SPAN = re.compile(r"[=-]+")


def read_table(lines: Sequence[str], at: int) -> tuple[int, Rows, int] | None:
    """Read a table that begins with a line.

    Returns:
        The number of the line after it, its rows, and the number of header rows; None if no table begins here.
    """
    indent = len(lines[at]) - len(lines[at].lstrip())
    is_drawn = _DRAWN.fullmatch(lines[at], indent) is not None
    if not is_drawn and not _SIMPLE.fullmatch(lines[at], indent):
        return None
    if is_drawn:
        end = next((number for number in range(at, len(lines)) if lines[number][indent : indent + 1] not in ("+", "|")), len(lines))
        return (end, *_drawn([line[indent:] for line in lines[at:end]])) if end > at + 2 else None
    borders = [at]
    for number in range(at + 1, len(lines)):
        if _SIMPLE.fullmatch(lines[number], indent):
            borders.append(number)
            if number + 1 == len(lines) or not lines[number + 1].strip() or len(borders) == MOST_BORDERS:
                break
    rows = _simple([line[indent:] for line in lines[at + 1 : borders[-1]]], [mark.span() for mark in _SPAN.finditer(lines[at][indent:])])
    return (borders[-1] + 1, *rows) if rows is not None else None


def _drawn(lines: Sequence[str]) -> tuple[Rows, int]:
    """Return the cells of a grid table, and the number of its header rows."""
    bounds = sorted({at for line in lines for at, mark in enumerate(line) if mark == "+" and {*line[max(at - 1, 0) : at + 2]} & {"-", "="}})
    columns = list(pairwise(bounds))
    now: list[list[str]] = [[] for _ in columns]
    rows: list[list[list[str]]] = []
    headers = 0
    for line in lines:
        ruled = [bool(re.fullmatch("-+|=+", line[start + 1 : end])) for start, end in columns]
        if any(ruled):
            headers = len(rows) if "=" in line and set(line.strip()) <= {"=", "+"} and rows else headers
            now = [[] if is_ruled else cell for is_ruled, cell in zip(ruled, now, strict=True)]
            rows.append(now)
        first = 0
        for number, (_, end) in enumerate(columns):
            if number + 1 < len(columns) and line[end : end + 1] not in ("|", "+"):
                now[number + 1] = now[first]
                continue
            if not ruled[number]:
                now[first].append(line[columns[first][0] + 1 : end].strip())
            first = number + 1
    return [[" ".join(filter(None, cell)) for cell in row] for row in rows[:-1]], headers


def _simple(lines: Sequence[str], columns: Sequence[tuple[int, int]]) -> tuple[Rows, int] | None:
    """Return the rows between the borders of a simple table, and the number of header rows; None if a text crosses its columns."""
    found: list[tuple[list[str], Sequence[tuple[int, int]]]] = []
    headers, is_new = 0, True
    for line in lines:
        if _SIMPLE.fullmatch(line):
            headers, is_new = len(found), True
        elif _RULED.fullmatch(line) and found:  # gives the columns that the row above spans
            found[-1] = (found[-1][0], [mark.span() for mark in _SPAN.finditer(line)])
            is_new = True
        elif line.strip() and (is_new or line[slice(*columns[0])].strip()):
            found.append(([line], columns))
            is_new = False
        elif line.strip():
            found[-1][0].append(line)
    rows: Rows = []
    for texts, spans in found:
        starts = [start for start, _ in spans[1:]]
        if any(text[end:start].strip() for text in texts for (_, end), start in zip(spans, starts, strict=False)):
            return None
        cells = [" ".join(filter(None, (text[span].strip() for text in texts))) for span in map(slice, [0, *starts], [*starts, None])]
        under = [max((at for at, (start, _) in enumerate(spans) if start <= column), default=0) for column, _ in columns]
        rows.append([cells[at].removesuffix("\\") if len(cells[at]) == 1 else cells[at] for at in under])
    return (rows, headers) if rows else None


def read_csv(options: dict[str, str], body: list[str]) -> tuple[Rows, int]:
    """Return the rows of a csv-table, and the number of its header rows."""
    head = list(csv.reader([options["header"]], skipinitialspace=True)) if options.get("header") else []
    delimiter = {"tab": "\t", "space": " "}.get(options.get("delim", ""), options.get("delim", ",")) or ","
    text = "\n".join(body).strip("\n").split("\n")
    rows = [row for row in csv.reader(text, skipinitialspace=True, delimiter=delimiter[0]) if row]
    return head + rows, len(head) + int(options.get("header-rows") or 0)


def read_list(options: dict[str, str], body: list[str]) -> tuple[Rows, int]:
    """Return the rows of a list of lists, and the number of its header rows."""
    rows: Rows = []
    for line in body:
        found = _ITEM.match(line)
        if found and found[1]:
            rows.append([found[3]])
        elif found and rows and len(found[4]) <= 3:
            rows[-1].append(found[6])
        elif rows and line.strip():
            rows[-1][-1] += f" {line.strip()}"
    return rows, int(options.get("header-rows") or 0)
