"""Excel workbooks and csv files as Markdown: a section for every sheet, and tables whose cells say what people see.

Hidden sheets, rows and columns are left out, and named; folded groups of rows and what a filter does not show are read.
"""

import csv
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

from openpyxl.utils import range_boundaries

from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.formulas import DOWN, UP, raise_marked
from slmsearch.corpus.documents.grids import EMPTY, Cell, SheetBlock, find_blocks, guess_value
from slmsearch.corpus.documents.office import check_package, is_title, read_properties
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.tables import head_piece, split_table
from slmsearch.corpus.documents.text import escape_heading, one_line

MAX_SLOTS = 5_000_000
"""Cells of a sheet, empty ones counted; what lies beyond is not read, and said."""
_GENERIC = re.compile(r"(?i)(?:sheet|tabelle|feuil|hoja|foglio|blad|ark|list|planilha|\u5de5\u4f5c\u8868|\u043b\u0438\u0441\u0442)\s?1?")
"""Names that programs give to the only sheet."""
_CAPTION_CHARS = 80
_NOTE_LINES = 3
"""Most lines alone that belong to the table above them; more are a list of their own."""
_SHOWN_CHARS = 200
_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 200
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\n', re.IGNORECASE)
_NO_FORMULA_VALUE = re.compile(rb"</f>(?:<v></v>|<v/>)?</c>|<f>[^<]*</f>\s*</c>")


def workbook_to_markdown(data: bytes) -> Document:
    """Convert an Excel workbook; formulas give the values that were last computed.

    Raises:
        NotTakenError: it is no such workbook, or no sheet that is shown has a value.
    """
    check_package(data)
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(data), data_only=True, keep_links=False, rich_text=True)
    parts, dropped = [], []
    for sheet in book.worksheets:
        if sheet.sheet_state != "visible":
            text = " ".join(str(cell.value) for cell in sheet._cells.values() if cell.value is not None)
            dropped.append(("hidden sheet", f"{sheet.title}: {text}"[:_SHOWN_CHARS]))
            continue
        rows, numbers, hidden = _read_sheet(sheet)
        dropped += hidden
        is_named = len(book.worksheets) > 1 or not _GENERIC.fullmatch(sheet.title)
        name = one_line(sheet.title) if is_named else ""
        text = blocks_to_markdown(find_blocks(rows), numbers, name, 3 if name else 2)
        if text:
            parts.append(f"## {name}\n\n{text}" if name and not text.startswith("### ") else text[bool(name) :])
    if not parts:
        raise NotTakenError(Reason.NO_TEXT, "no sheet that is shown has a value")
    dropped += _formulas_without_values(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        title, facts = read_properties(archive)
    facts["sheets"] = [sheet.title for sheet in book.worksheets if sheet.sheet_state == "visible"]
    return Document(title if is_title(title) else "", "\n\n".join(parts), facts, dropped)


def separated_to_markdown(text: str, suffix: str) -> Document:
    """Convert separated values; the separator is that of the suffix, or the one that the first line names, or found."""
    delimiter = "\t" if suffix == ".tsv" else ""
    named = _SEPARATOR_LINE.match(text)
    if named is not None:
        text, delimiter = text[named.end() :], named[1]
    rows = [[_guessed(one_line(value)) for value in row] for row in _split(text, delimiter or _find_delimiter(text))]
    return Document("", blocks_to_markdown(find_blocks(rows, has_names=True), range(1, len(rows) + 1), "", 2), {}, [])


def blocks_to_markdown(blocks: Sequence[SheetBlock], numbers: Sequence[int], name: str, level: int) -> str:
    """Return the tables of a sheet and the lines around them; long tables get sections of the given level.

    Args:
        blocks: tables and lines of the sheet.
        numbers: numbers of its rows, as people see them.
        name: the sheet's name.
        level: level of the headings.
    """
    parts: list[str] = []
    is_divided = False
    for block in blocks:
        grid = [[cell.text for cell in row] for row in block.rows]
        caption = one_line(block.caption if 0 < len(block.caption) <= _CAPTION_CHARS else name)
        rows = [numbers[at] for at in block.numbers]
        pieces = list(split_table(grid, block.headers, rows, caption, level)) if grid else []
        lines = _lines(block.above)
        if len(pieces) > 1 and any(parts):
            parts += [pieces[0], lines, *pieces[1:]]
        elif is_divided and (pieces or len(block.above) > _NOTE_LINES):  # else it would stand under the rows of the table before
            rows = rows[block.headers :] or rows or [numbers[block.top], numbers[block.top + len(block.above) - 1]]
            parts += [head_piece(caption if pieces else name, rows[0], rows[-1], level), lines, *pieces]
        else:
            parts += [lines, *pieces]
        parts.append(_lines(block.below))
        is_divided = is_divided or len(pieces) > 1
    return "\n\n".join(filter(None, parts))


def _lines(texts: Sequence[str]) -> str:
    return "\n".join(escape_heading(line) for text in texts for line in text.split("\n"))


def _read_sheet(sheet: Any) -> tuple[list[list[Cell]], list[int], list[tuple[str, str]]]:
    """Return the cells of a sheet that people see, the numbers of their rows, and what people do not see."""
    filled = [(cell.row, cell.column) for cell in sheet._cells.values() if cell.value is not None]  # others only have a look
    last, width = max(filled, default=(1, 1))[0], max((column for _, column in filled), default=1)
    width += any(area.max_col > width for area in sheet.merged_cells.ranges)  # one column more shows that its cells are merged
    height = min(last, MAX_SLOTS // width)
    ranges = _merged(sheet, height, width)
    hidden_columns = _hidden_columns(sheet)
    hidden_rows = _hidden_rows(sheet)
    rows: list[list[Cell]] = []
    numbers: list[int] = []
    lost: dict[str, list[str]] = {"hidden row": [], "hidden column": [], "beyond": []}
    for number, row in enumerate(sheet.iter_rows(max_row=height, max_col=width), start=1):
        seen = []
        for column, found in enumerate(row, start=1):
            number_of_range, source = ranges.get((number, column), (0, found))
            cell = _cell(source, number_of_range)
            if number in hidden_rows or column in hidden_columns:
                if cell.text and source is found:
                    lost["hidden row" if number in hidden_rows else "hidden column"].append(cell.text)
            else:
                seen.append(cell)
        if number not in hidden_rows:
            rows.append(seen)
            numbers.append(number)
    if height < last:
        lost["beyond"].append(f"rows after {height} of {last}")
    said = [(kind, f"{sheet.title}: {', '.join(texts)}"[:_SHOWN_CHARS]) for kind, texts in lost.items() if texts]
    return rows, numbers, said


def _merged(sheet: Any, height: int, width: int) -> dict[tuple[int, int], tuple[int, Any]]:
    """Return for every cell of merged ones the number of their range and the cell whose value they show."""
    found = {}
    for number, area in enumerate(sheet.merged_cells.ranges, start=1):
        source = sheet.cell(area.min_row, area.min_col)
        if source.value is None:
            continue
        for row in range(area.min_row, min(area.max_row, height) + 1):
            for column in range(area.min_col, min(area.max_col, width) + 1):
                found[row, column] = (number, source)
    return found


def _hidden_rows(sheet: Any) -> set[int]:
    """Return the rows that somebody hid; a folded group or a filter only shows less for now."""
    hidden = {number for number, row in sheet.row_dimensions.items() if row.hidden and not row.outlineLevel}
    if hidden and sheet.auto_filter.ref and sheet.auto_filter.filterColumn:
        _, first, _, last = range_boundaries(sheet.auto_filter.ref)
        hidden -= set(range(first or 1, (last or sheet.max_row) + 1))
    return hidden


def _hidden_columns(sheet: Any) -> set[int]:
    hidden: set[int] = set()
    for dimension in sheet.column_dimensions.values():
        if dimension.hidden and not dimension.outlineLevel:
            hidden |= set(range(dimension.min or 1, min(dimension.max or 0, sheet.max_column) + 1))
    return hidden


def _cell(found: Any, number_of_range: int) -> Cell:
    from slmsearch.corpus.documents.cell_formats import show_value

    value = found.value
    if value is None:
        return EMPTY
    if isinstance(value, list):  # texts and blocks with a font
        value = raise_marked("".join(f"{UP}{part}{DOWN}" if _is_raised(part) else str(part) for part in value))
    text = show_value(value, found.number_format)
    is_value = not isinstance(value, str) or guess_value(text)
    return Cell(text, is_value, bool(found.has_style and (found.font.b or _is_shaded(found.fill))), number_of_range)


def _is_raised(part: Any) -> bool:
    return not isinstance(part, str) and part.font.vertAlign == "superscript"


def _is_shaded(fill: Any) -> bool:
    """Say whether a cell has a colour of its own; white is none."""
    if fill.fill_type != "solid":
        return False
    color = fill.fgColor
    is_white = (color.type == "rgb" and color.rgb.endswith("FFFFFF")) or (color.type == "theme" and color.theme == 0 and not color.tint)
    return not is_white


def _formulas_without_values(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield what says that formulas have no values: a program wrote the file that does not calculate."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [name for name in archive.namelist() if name.startswith("xl/worksheets/sheet")]
        count = sum(len(_NO_FORMULA_VALUE.findall(archive.read(name))) for name in names)
    if count:
        yield "formula", f"{count} formulas whose values the file does not hold; open and save it in a spreadsheet program"


def _split(text: str, delimiter: str) -> list[list[str]]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True))


def _find_delimiter(text: str) -> str:
    """Return the delimiter that gives most lines of the beginning the same number of fields, more than one."""
    lines = text.split("\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
    best, best_score = ",", (0.0, 0)
    for delimiter in _DELIMITERS:
        widths = [len(row) for row in _split("\n".join(lines), delimiter) if row]
        wide = [width for width in widths if width > 1]
        if wide:
            usual = max(set(wide), key=lambda width: (wide.count(width), width))
            score = (round(wide.count(usual) / len(widths), 2), usual)
            if score > best_score:
                best, best_score = delimiter, score
    return best


def _guessed(text: str) -> Cell:
    return Cell(text, guess_value(text)) if text else EMPTY
