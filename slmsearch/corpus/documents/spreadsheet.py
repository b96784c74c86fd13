"""Excel workbooks and files of separated values as Markdown: values as people see them, a section a sheet, a table a region.

Hidden sheets are left out, and named. A merged cell stands in each of its places, so that what is below it has its header.
"""

import csv
import datetime
import io
import re
from typing import Any, NamedTuple

from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.tables import Region, count_headers, find_regions, region_to_markdown
from slmsearch.corpus.documents.text import one_line

MAX_CELLS = 3_000_000
"""Of a sheet's area; some programs write formats to the last row there is."""
MAX_FIELD = 20_000_000
SNIFFED_CHARS = 20_000
DELIMITERS = ",;\t|"
_LITERAL = re.compile(r'"([^"]*)"|\[\$([^\]-]*)(?:-[^\]]*)?\]|\\(.)|[_*].|\[[^\]]*\]')
_WRITTEN = re.compile(r'"([^"]*)"|\[\$([^\]-]*)(?:-[^\]]*)?\]|\\(.)|_.|\*.|\[[^\]]*\]|([ ()$\u20ac\u00a3\u00a5])')
_DECIMALS = re.compile(r"[0#?]\.([0#?]+)")
_ZEROS = re.compile(r"^0{2,}$")
_GENERIC = re.compile(r"(?i)(?:sheet|tabelle|feuil|hoja|foglio|blad|ark|list|planilha|\u5de5\u4f5c\u8868|\u043b\u0438\u0441\u0442)\s?1?")


class ReadSheets(NamedTuple):
    """What a workbook says; see `reader.Document`."""

    title: str
    content: str
    metadata: dict[str, Any]
    dropped: list[tuple[str, str]]


def workbook_to_markdown(data: bytes) -> ReadSheets:
    """Read an Excel workbook; formulas give the value that was last computed.

    Raises:
        NotTakenError: it has no text.
    """
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(data), data_only=True)
    parts: list[str] = []
    dropped: list[tuple[str, str]] = []
    shown = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
    dropped += [("hidden sheet", sheet.title) for sheet in book.worksheets if sheet.sheet_state != "visible"]
    for sheet in shown:
        grid, bold = _grid(sheet)
        is_named = len(shown) > 1 or not _GENERIC.fullmatch(sheet.title)
        if blocks := list(_blocks(grid, bold, sheet.title if is_named else "")):
            parts += [f"## {one_line(sheet.title)}", *blocks] if is_named else blocks
    if not parts:
        raise NotTakenError(Reason.NO_TEXT, "no sheet that is shown has a value")
    facts = book.properties
    metadata: dict[str, Any] = {"sheets": [sheet.title for sheet in shown]}
    metadata |= {"author": facts.creator} if facts.creator and facts.creator != "openpyxl" else {}
    return ReadSheets(one_line(facts.title or ""), "\n\n".join(parts), metadata, dropped)


def separated_to_markdown(text: str, suffix: str) -> ReadSheets:
    """Read separated values; the separator is that of the suffix, or found."""
    sample = text[:SNIFFED_CHARS]
    try:
        dialect: Any = csv.Sniffer().sniff(sample, "\t" if suffix == ".tsv" else DELIMITERS)
        delimiter = dialect.delimiter
    except csv.Error:
        delimiter = "\t" if suffix == ".tsv" else ","
    csv.field_size_limit(MAX_FIELD)  # for all of the process
    rows = [[one_line(cell) for cell in row] for row in csv.reader(io.StringIO(text), delimiter=delimiter)]
    blocks = list(_blocks(rows, [], ""))
    return ReadSheets("", "\n\n".join(blocks), {}, [])


def _blocks(grid: list[list[str]], bold: list[bool], name: str) -> list[str]:
    blocks: list[str] = []
    for region in find_regions(grid):
        rows = region.rows
        is_bold = bold[region.first_row : region.first_row + len(rows)]
        blocks += region_to_markdown(region, _headers(region, is_bold), 3 if name else 2, one_line(name))
    return [block for block in blocks if block.strip()]


def _headers(region: Region, bold: list[bool]) -> int:
    """Count the rows of headers below captions, which have one cell."""
    captions = 0
    while captions < len(region.rows) - 1 and sum(map(bool, region.rows[captions])) == 1 and len(region.rows[captions]) > 1:
        captions += 1
    return captions + count_headers(region.rows[captions:], bold[captions:])


def _grid(sheet: Any) -> tuple[list[list[str]], list[bool]]:
    """Return the cells of a sheet as text, and whether each row is all bold; merged cells are filled."""
    if (sheet.max_row or 0) * (sheet.max_column or 0) > MAX_CELLS:
        raise NotTakenError(Reason.LONG, f"sheet {sheet.title} has {sheet.max_row} rows of {sheet.max_column} cells")
    grid, bold = [], []
    for row in sheet.iter_rows():
        grid.append([show_value(cell.value, cell.number_format) for cell in row])
        marks = [bool(cell.font and cell.font.b) for cell in row if cell.value is not None]
        bold.append(bool(marks) and all(marks))
    for merged in sheet.merged_cells.ranges:
        top, left = merged.min_row - 1, merged.min_col - 1
        is_banner = merged.max_col - left >= len([1 for column in range(len(grid[top])) if any(row[column] for row in grid)]) > 1
        for number in range(top, min(merged.max_row, len(grid))):
            for column in range(left, min(merged.max_col, len(grid[number]))):
                if not is_banner or column == left:
                    grid[number][column] = grid[top][left]
    while grid and not any(grid[-1]):
        grid.pop()
    return grid, bold


def show_value(value: object, number_format: str = "General") -> str:
    """Return a value as people see it in its cell; dates and times in the form of ISO 8601."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime.datetime):
        pattern = _LITERAL.sub("", number_format).lower()
        has_time = "h" in pattern or (value.time() != datetime.time() and "d" not in pattern and "y" not in pattern)
        return value.strftime("%Y-%m-%d %H:%M") if has_time else value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    if isinstance(value, int | float):
        return _show_number(value, number_format or "General")
    return one_line(str(value))


def _show_number(value: float, number_format: str) -> str:
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return ""
    sections = number_format.split(";")
    pattern = sections[1] if value < 0 and len(sections) > 1 and sections[1].strip() else sections[0]
    if pattern in ("General", "@", "") or "E+" in pattern or "?/" in pattern:
        return _plain_number(value)
    bare = _LITERAL.sub("", pattern)
    if not re.search(r"[0#?]", bare):
        return _plain_number(value)
    if _ZEROS.match(bare) and float(value).is_integer():
        number = f"{int(abs(value)):0{len(bare)}d}"
    else:
        percent = bare.count("%")
        decimals = _DECIMALS.search(bare)
        places = len(decimals[1]) if decimals else 0
        whole = abs(value) * 100**percent / 1000 ** (len(bare.rstrip("%) ")) - len(bare.rstrip("%) ").rstrip(",")))
        number = f"{whole:{',' if re.search('[0#?],[0#?]', bare) else ''}.{places}f}"
        if decimals and "#" in decimals[1] and "0" not in decimals[1]:
            number = number.rstrip("0").rstrip(".")
        number += "%" * percent
    before, after = _literals(pattern)
    sign = "-" if value < 0 and not (len(sections) > 1 and pattern == sections[1] and ("-" in before or "(" in before)) else ""
    return one_line(f"{sign}{before}{number}{after}")


def _literals(pattern: str) -> tuple[str, str]:
    """Return what a format writes before and after the number: currencies, units, brackets."""
    masked = _LITERAL.sub(lambda mark: "\x00" * len(mark[0]), pattern)
    places = [number for number, c in enumerate(masked) if c in "0#?"]
    before, after = (_WRITTEN.findall(part) for part in (pattern[: places[0]], pattern[places[-1] + 1 :]))
    return tuple("".join(a or b or c or d for a, b, c, d in side) for side in (before, after))  # type: ignore[return-value]


def _plain_number(value: float) -> str:
    """Return a number without a format: whole where it is whole, else with the digits that it means."""
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e16):
        return str(int(value))
    text = f"{value:.11g}"
    return text if "e" not in text else f"{value:.15f}".rstrip("0") if 1e-9 < abs(value) < 1e16 else text
