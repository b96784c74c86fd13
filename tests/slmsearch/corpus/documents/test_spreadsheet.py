"""Workbooks and separated values: what a person sees in each cell, and which header it stands under."""

import datetime
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import Workbook
from openpyxl.styles import Font

from slmsearch.corpus.documents.skipped import NotTakenError
from slmsearch.corpus.documents.spreadsheet import ReadSheets, separated_to_markdown, show_value, workbook_to_markdown
from slmsearch.corpus.documents.tables import count_headers, find_regions, table_to_markdown

DAY = datetime.datetime(2024, 3, 1)


def saved(book: Workbook) -> ReadSheets:
    out = io.BytesIO()
    book.save(out)
    return workbook_to_markdown(out.getvalue())


def sheet_of(rows: list[list[object]]) -> ReadSheets:
    book = Workbook()
    for row in rows:
        book.active.append(row)
    return saved(book)


@pytest.mark.parametrize(
    ("value", "number_format", "shown"),
    [
        (None, "General", ""),
        ("007", "@", "007"), (7, "000", "007"), (True, "General", "TRUE"),
        (DAY, "dd/mm/yyyy", "2024-03-01"), (DAY.replace(hour=14, minute=30), "d.m.yy h:mm", "2024-03-01 14:30"),
        (datetime.time(9, 30), "h:mm", "09:30:00"), (datetime.timedelta(hours=26), "[h]:mm:ss", "26:00:00"),
        (9780131103627.0, "General", "9780131103627"), (9780131103627, "0", "9780131103627"), (3.0, "General", "3"),
        (0.1 + 0.2, "General", "0.3"), (1e-7, "General", "0.0000001"), (float("nan"), "General", ""),
        (0.256, "0.0%", "25.6%"), (1234.5, "#,##0.00", "1,234.50"), (1234, "#,##0 [$\u20ac-407]", "1,234 \u20ac"), (5, '0 "km"', "5 km"),
        (-3.5, "0.0;(0.0)", "(3.5)"), (-3.5, "0.0", "-3.5"), (-1234.5, "$#,##0.00", "-$1,234.50"),
        ("NA", "General", "NA"), ("None", "General", "None"), ("null", "General", "null"), ("Python 3.0", "General", "Python 3.0"),
        ("two\nlines", "General", "two lines"),
    ],
)  # fmt: skip
def test_values_are_shown_as_people_see_them(value: object, number_format: str, shown: str) -> None:
    assert show_value(value, number_format) == shown


def test_an_empty_cell_bends_no_number_beside_it() -> None:
    read = sheet_of([["book", "isbn", "copies"], ["Mills", 9780131103627, 3], ["Wheels", None, None], ["NA", 9780131103634, 12]])
    assert read.content == (
        "| book | isbn | copies |\n| --- | --- | --- |\n| Mills | 9780131103627 | 3 |\n| Wheels |  |  |\n| NA | 9780131103634 | 12 |"
    )


def test_merged_cells_stand_in_each_of_their_places() -> None:
    book = Workbook()
    sheet = book.active
    for row in (
        [None, "Weekday", None, "Sunday"],
        ["Port", "out", "back", "out"],
        ["Ostrevik", "17:05", "18:00", "9:00"],
        [None, "19:05", "20:00", "-"],
    ):
        sheet.append(row)
    for cell in (*sheet[1], *sheet[2]):
        cell.font = Font(bold=True)
    sheet.merge_cells("B1:C1")
    sheet.merge_cells("A3:A4")
    assert saved(book).content.split("\n") == [
        "| Port | Weekday out | Weekday back | Sunday out |", "| --- | --- | --- | --- |", "| Ostrevik | 17:05 | 18:00 | 9:00 |",
        "| Ostrevik | 19:05 | 20:00 | - |",
    ]  # fmt: skip


def test_several_tables_of_a_sheet_stand_apart_with_their_captions() -> None:
    tables = [["Prices of 2024"], ["part", "price", None, "port", "ships"], ["wheel", 700, None, "Halden", 4]]
    rows = [*tables, [None] * 5, ["A note that stands alone."], [None] * 5, ["north", 1], ["south", 2]]
    blocks = sheet_of(rows).content.split("\n\n")
    assert blocks[0] == "Prices of 2024"
    assert blocks[1] == "| part | price |\n| --- | --- |\n| wheel | 700 |"
    assert blocks[2] == "| port | ships |\n| --- | --- |\n| Halden | 4 |"
    assert blocks[3] == "A note that stands alone."
    assert blocks[4] == "|  |  |\n| --- | --- |\n| north | 1 |\n| south | 2 |", "no row of it is a header"


def test_hidden_sheets_are_left_out_and_said() -> None:
    book = Workbook()
    book.active.title = "Prices"
    book.active.append(["wheel", 700])
    book.create_sheet("Ports").append(["Halden", 4])
    for state in ("hidden", "veryHidden"):
        book.create_sheet(state).append(["secret"])
        book[state].sheet_state = state
    book.properties.title = "Halden in numbers"
    read = saved(book)
    assert (read.title, read.metadata["sheets"]) == ("Halden in numbers", ["Prices", "Ports"])
    assert read.dropped == [("hidden sheet", "hidden"), ("hidden sheet", "veryHidden")]
    assert "## Prices" in read.content and "## Ports" in read.content and "secret" not in read.content
    with pytest.raises(NotTakenError):
        saved(Workbook())


def test_a_long_table_is_divided_under_its_headers() -> None:
    read = sheet_of([["part", "price"], *([f"part {n}", n] for n in range(100))])
    parts = read.content.split("\n\n")
    assert parts[0::2] == ["## Rows 2 to 41", "## Rows 42 to 81", "## Rows 82 to 101"]
    assert parts[3].startswith("| part | price |\n| --- | --- |\n| part 40 | 40 |\n")


@pytest.mark.parametrize(
    ("text", "suffix", "content"),
    [
        ("part;price\nwheel;7,5\n", ".csv", "| part | price |\n| --- | --- |\n| wheel | 7,5 |"),
        ('part,note\nwheel,"oak, old"\n', ".csv", "| part | note |\n| --- | --- |\n| wheel | oak, old |"),
        ("part\tprice\n007\t1\n", ".tsv", "| part | price |\n| --- | --- |\n| 007 | 1 |"),
        ("a|b\n1|2\n", ".csv", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        ("alone\nand more\n", ".csv", "alone\n\nand more"),
    ],
)
def test_separated_values_are_a_table(text: str, suffix: str, content: str) -> None:
    assert separated_to_markdown(text, suffix).content == content


def test_bars_and_line_breaks_stay_in_their_cell() -> None:
    assert table_to_markdown([["a | b", "c\nd"], ["e", "\\|"]], 1) == "| a \\| b | c d |\n| --- | --- |\n| e | \\| |"


CELLS = st.sampled_from(["", "wheel", "7", "TRUE", "a | b", "\u6c34"])


@given(st.lists(st.lists(CELLS, max_size=5), max_size=6))
def test_regions_hold_every_value_once(grid: list[list[str]]) -> None:
    regions = list(find_regions(grid))
    held = sorted(cell for region in regions for row in region.rows for cell in row if cell)
    assert held == sorted(cell for row in grid for cell in row if cell)
    assert all(0 <= count_headers(region.rows) <= 3 for region in regions)


@given(st.text("ab,;\t\"'\n|1 ", max_size=60), st.sampled_from([".csv", ".tsv"]))
def test_any_text_is_read_as_values(text: str, suffix: str) -> None:
    found = separated_to_markdown(text, suffix).content
    assert all(found.count(letter) >= min(1, text.count(letter)) for letter in "ab")
