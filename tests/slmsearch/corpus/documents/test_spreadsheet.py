"""Workbooks and separated values: what a person sees in each cell, and which header it stands under."""

import datetime
import io
import re
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import Workbook
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.styles import Font, PatternFill

from slmsearch.corpus.documents.cell_formats import show_value
from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.grids import EMPTY, Cell, count_headers, find_blocks, guess_value
from slmsearch.corpus.documents.skipped import NotTakenError
from slmsearch.corpus.documents.spreadsheet import separated_to_markdown, workbook_to_markdown
from slmsearch.corpus.documents.tables import grid_to_markdown
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import split_sections
from tests.slmsearch.corpus.documents.builders import make_xlsx, read

DAY = datetime.datetime(2024, 3, 1)


def saved(book: Workbook) -> Document:
    out = io.BytesIO()
    book.save(out)
    return workbook_to_markdown(out.getvalue())


def sheet_of(rows: list[list[object]]) -> Document:
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
        (datetime.time(9, 30), "h:mm", "09:30"), (datetime.timedelta(hours=26), "[h]:mm:ss", "26:00:00"),
        (9780131103627.0, "General", "9780131103627"), (9780131103627, "0", "9780131103627"), (3.0, "General", "3"),
        (2.5, "General", "2.5"),
        (0.1 + 0.2, "General", "0.3"), (1e-7, "General", "1E-07"), (float("nan"), "General", ""),
        (0.256, "0.0%", "25.6%"), (1234.5, "#,##0.00", "1,234.50"), (1234, "#,##0 [$\u20ac-407]", "1,234 \u20ac"), (5, '0 "km"', "5 km"),
        (-3.5, "0.0;(0.0)", "(3.5)"), (-3.5, "0.0", "-3.5"), (-1234.5, "$#,##0.00", "-$1,234.50"),
        ("NA", "General", "NA"), ("None", "General", "None"), ("null", "General", "null"), ("Python 3.0", "General", "Python 3.0"),
        (DAY, "mmm yyyy", "Mar 2024"), (DAY, "yyyy", "2024"), (1234567.0, '#,##0.0,,"M"', "1.2M"), (0, '0;-0;"-"', "-"),
        (2.5, "0", "3"), (0.125, "0.00", "0.13"), (-2.5, "0", "-3"), (-0.001, "0.00", "0.00"),
        (500, '[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', "500"), (5551234567, "[<=9999999]###-####;(###) ###-####", "5551234567"),
        (123456789, "000-00-0000", "123-45-6789"), (301234567, "0000 000000", "0301 234567"), (1234567.5, "# ##0.00", "1234 567.50"),
        (-1234, "#\\ ##0", "-1 234"), (5, "# ##0", "5"), (5, "0.0 0", "5"),
        (12.5, 'General" kg"', "12.5 kg"), (-5, "General;-General", "-5"), (-5, "0;General", "-5"), (5, "General 0", "5"),
    ],
)  # fmt: skip
def test_values_are_shown_as_people_see_them(value: object, number_format: str, shown: str) -> None:
    assert show_value(value, number_format) == shown


def test_an_empty_cell_bends_no_number_beside_it() -> None:
    read = sheet_of([["book", "isbn", "copies"], ["Mills", 9780131103627, 3], ["Wheels", None, None], ["NA", 9780131103634, 12]])
    assert read.content == (
        "| book | isbn | copies |\n| --- | --- | --- |\n| Mills | 9780131103627 | 3 |\n| Wheels |  |  |\n| NA | 9780131103634 | 12 |"
    )


def test_the_look_of_empty_cells_far_away_hides_no_row_and_takes_no_time() -> None:
    book = Workbook()
    for number in range(400):
        book.active.append([f"wheel {number}", number])
    for place in ("XFD1", "A1048576"):
        book.active[place].fill = PatternFill("solid", fgColor="FFFFFF00")
    started = time.process_time()
    read = saved(book)
    assert time.process_time() - started < 5
    assert "| wheel 399 | 399 |" in read.content and not read.dropped


def test_superscripts_keep_their_numbers_apart() -> None:
    up = InlineFont(vertAlign="superscript")
    power, area = CellRichText("10", TextBlock(up, "6")), CellRichText(TextBlock(InlineFont(b=True), "m"), TextBlock(up, "2"))
    assert sheet_of([["ship", "crew", area], ["Vega", power, 4], ["Anna", 12, 8]]).content == (
        "| ship | crew | m^2 |\n| --- | --- | --- |\n| Vega | 10^6 | 4 |\n| Anna | 12 | 8 |"
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


def test_an_empty_form_has_headers_and_a_row_of_long_texts_is_none() -> None:
    book = Workbook()
    for row in (["part", "size", None], ["part", "wide", "high"]):
        book.active.append(row)
    book.active.merge_cells("B1:C1")
    book.active.merge_cells("A1:A2")
    assert saved(book).content == "| part | size wide | size high |\n| --- | --- | --- |"
    assert (
        sheet_of([["Parts of 2024"], ["part", "price", "port"]]).content == "Parts of 2024\n\n| part | price | port |\n| --- | --- | --- |"
    )
    assert sheet_of([["long " * 100, "text"], ["a", 1], ["b", 2]]).content.startswith("|  |  |\n")


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
    assert read.dropped == [("hidden sheet", "hidden: secret"), ("hidden sheet", "veryHidden: secret")]
    assert "## Prices" in read.content and "## Ports" in read.content and "secret" not in read.content
    with pytest.raises(NotTakenError):
        saved(Workbook())


def test_a_long_table_is_divided_under_its_headers_by_the_rows_of_its_sheet() -> None:
    read = sheet_of([["part", "price"], *([f"part {n}", n] for n in range(700))])
    parts = read.content.split("\n\n")
    ends = [tuple(map(int, re.findall(r"\d+", part))) for part in parts[0::2]]
    assert parts[0] == f"## Rows 2 to {ends[0][1]} (part 0 to part {ends[0][1] - 2})"
    assert [first for first, *_ in ends[1:]] == [last + 1 for _, last, *_ in ends[:-1]] and ends[-1][1] == 701
    assert all(part.startswith("| part | price |\n| --- | --- |\n| part ") and len(part) < 4000 for part in parts[1::2])


def test_notes_beside_each_other_above_the_headers_are_lines() -> None:
    note = "All prices are those of the first of March, unless a part is marked, in which case ask."
    book = Workbook()
    for row in (
        ["Parts 1 to 2", None, note],
        ["All parts", None, "Weights in kg."],
        ["part", "price", "port", "weight"],
        ["wheel", 700, "Vega", 2],
    ):
        book.active.append(row)
    assert saved(book).content.split("\n\n") == [
        f"Parts 1 to 2\n{note}\nAll parts\nWeights in kg.",
        "| part | price | port | weight |\n| --- | --- | --- | --- |\n| wheel | 700 | Vega | 2 |",
    ]


def test_the_only_strong_row_is_the_last_of_the_headers_where_the_first_names_nothing() -> None:
    book = Workbook()
    for row in (["List", None, "List"], ["A", None, "B"], ["Port", None, "Ship"], ["Halden", None, "Anna"], ["Ostrevik", None, "Vega"]):
        book.active.append(row)
    for cell in book.active[3]:
        cell.font = Font(bold=True)
    assert saved(book).content == "| List A Port | List B Ship |\n| --- | --- |\n| Halden | Anna |\n| Ostrevik | Vega |"


def test_quarters_under_merged_names_are_headers_in_each_part_of_a_long_table() -> None:
    book = Workbook()
    for row in (["port", "Q1", None, "Q2", None], [None, "plan", "done", "plan", "done"], *([f"port {n}", n, 6, 7, 8] for n in range(200))):
        book.active.append(row)
    for area in ("A1:A2", "B1:C1", "D1:E1"):
        book.active.merge_cells(area)
    parts = saved(book).content.split("\n\n")
    assert len(parts) > 2 and all(part.startswith("| port | Q1 plan | Q1 done | Q2 plan | Q2 done |\n") for part in parts[1::2])


def test_a_caption_begins_the_section_of_its_own_table() -> None:
    book = Workbook()
    book.active.title = "Stock"
    book.create_sheet("Empty")
    rows = [["part", "price"], *([f"part {n}", n] for n in range(300)), [], ["Ports of the coast"], [], ["#", "ships"], [1, 41], [2, 8]]
    for row in rows:
        book["Stock"].append(row)
    book["Stock"]["A303"].font = Font(bold=True)
    sections = [(found.heading, found.text) for found in split_sections(Page("p", "P", saved(book).content))]
    assert [heading.split(" (")[0] for heading, _ in sections] == [
        "Stock, rows 2 to 190",
        "Stock, rows 191 to 301",
        "Ports of the coast, rows 306 to 307",
    ]
    assert "Ports" not in sections[-2][1]
    assert sections[-1][1].split("\n\n", 1)[1] == "Ports of the coast\n\n| # | ships |\n| --- | --- |\n| 1 | 41 |\n| 2 | 8 |"


def test_lines_inside_a_table_without_headers_are_captions_as_the_line_above_it_is() -> None:
    sentence = "The keeper of the port counts the ships in the morning, and the miller closes the gate in the evening."
    rows = [row for name in ("Ports", "Mills") for row in ([name], ["Rules"], *([None, f"rule {n}", sentence] for n in range(40)))]
    parts = sheet_of(rows).content.split("\n\n")
    assert parts[0] == "Ports\nRules" and [part for part in parts if part.startswith("#")] == [
        "## Ports, rows 3 to 28 (rule 0 to rule 25)", "## Ports, rows 29 to 42 (rule 26 to rule 39)",
        "## Mills, rows 45 to 70 (rule 0 to rule 25)", "## Mills, rows 71 to 84 (rule 26 to rule 39)",
    ]  # fmt: skip


def test_a_form_of_merged_cells_says_each_text_once_and_has_no_headers() -> None:
    book = Workbook()
    sheet = book.active
    for row in (["Ship", "Anna", None, None], ["Ports", 1, "Halden", None], [None, 2, "Vega", None], ["Captain", None], ["Tide", "high"]):
        sheet.append(row)
    for area in ("B1:D1", "C2:D2", "C3:D3", "A2:A3", "B4:D4", "B5:D5"):
        sheet.merge_cells(area)
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    assert saved(book).content.split("\n")[2:] == [
        "| Ship | Anna | Anna |", "| Ports | 1 | Halden |", "| Ports | 2 | Vega |", "| Captain |  |  |", "| Tide | high | high |",
    ]  # fmt: skip


def test_white_is_no_shade() -> None:
    book = Workbook()
    for row in (["wheel", "oak"], ["roof", "slate"]):
        book.active.append(row)
    for color, first in (("FFFFFFFF", "|  |  |"), ("FFCCDDEE", "| wheel | oak |")):
        for cell in book.active[1]:
            cell.fill = PatternFill("solid", fgColor=color)
        assert saved(book).content.split("\n")[0] == first


def test_a_table_goes_on_below_an_empty_row_and_beside_an_empty_column() -> None:
    head = ["year", None, 2019, 2020]
    read = sheet_of([["Ships by year"], [], head, [], ["Halden", None, 41, 42.5], ["Ostrevik", None, 7, 8], [], ["All", None, 48, 50.5]])
    assert read.content.split("\n\n") == [
        "Ships by year",
        "| year | 2019 | 2020 |\n| --- | --- | --- |\n| Halden | 41 | 42.5 |\n| Ostrevik | 7 | 8 |\n| All | 48 | 50.5 |",
    ]


def test_hidden_rows_and_columns_are_left_out_and_said() -> None:
    book = Workbook()
    sheet = book.active
    for row in (["part", "cost", "price"], ["wheel", 500, 700], ["roof", 90, 120], ["sail", 8, 11]):
        sheet.append(row)
    sheet.column_dimensions["B"].hidden = True
    sheet.row_dimensions[3].hidden = True
    read = saved(book)
    assert read.content == "| part | price |\n| --- | --- |\n| wheel | 700 |\n| sail | 11 |"
    assert read.dropped == [("hidden row", "Sheet: roof, 90, 120"), ("hidden column", "Sheet: cost, 500, 8")]


def test_folded_groups_and_filtered_rows_are_read() -> None:
    book = Workbook()
    sheet = book.active
    for row in (["part", "cost", "price"], ["wheel", 500, 700], ["roof", 90, 120], ["sail", 8, 11]):
        sheet.append(row)
    sheet.column_dimensions.group("B", hidden=True)
    sheet.row_dimensions[3].hidden = True
    sheet.auto_filter.ref = "A1:C4"
    sheet.auto_filter.add_filter_column(0, ["wheel", "sail"])
    read = saved(book)
    assert "| roof | 90 | 120 |" in read.content and not read.dropped


def test_formulas_show_what_they_gave_and_those_that_nobody_computed_are_said() -> None:
    read = sheet_of([["part", "price"], ["wheel", 700], ["roof", 120], ["all", "=SUM(B2:B3)"]])
    assert read.content.endswith("| all |  |")
    assert [(kind, text.split(" whose")[0]) for kind, text in read.dropped] == [("formula", "1 formulas")]
    out = io.BytesIO()
    book = Workbook()
    book.active.append(["all", 820])
    book.save(out)
    computed = io.BytesIO()
    with zipfile.ZipFile(out) as source, zipfile.ZipFile(computed, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b"<v>820</v>", b"<f>SUM(B2:B3)</f><v>820</v>"))
    read = workbook_to_markdown(computed.getvalue())
    assert "| all | 820 |" in read.content and not read.dropped


@pytest.mark.parametrize(
    ("rows", "headers"),
    [
        ([["a", "b"]], 0),
        ([["wheel", "7"], ["roof", "8"]], 0),
        ([["part", "price"], ["wheel", "7"]], 1),
        ([["", "2019", "2020"], ["wheel", "7", "8"]], 1),
        ([["part", "price", ""], ["", "old", "new"], ["wheel", "7", "8"]], 2),
        ([["name", "port", "captain"], ["Anna", "Halden", "Berg"], ["Vega", "Ostrevik", "Lund"]], 1),
        ([["Anna", "yes"], ["Vega", "yes"]], 0),
        *(([["port", *names], ["Halden", "7", "8"], ["Ostrevik", "3", "1,200.50"]], 1) for names in (
            ("Q1", "Q2"), ("Q1 2024", "Q2 2024"), ("FY23", "FY24"), ("Jan-24", "Feb-24"), ("KW 12", "KW 13"), ("CO2", "NO2"),
            ("31.12.2023", "31.12.2022"), ("2024-01-31", "2024-02-29"))),
        ([["", "FY23", "FY24"], ["", "Q1", "Q1"], ["Halden", "7", "8"], ["Ostrevik", "3", "4"]], 2),
        ([["Anna", "A12", "B7"], ["Vega", "B3", "C9"], ["Lund", "A1", "C2"]], 0),
        ([["wheel", "EUR 12", "oak"], ["roof", "EUR 150.50", "slate"], ["sail", "EUR 8", "linen"]], 0),
        ([["Anna", "2024-03-01", "Halden"], ["Vega", "2024-03-02", "Halden"]], 0),
        ([["Quarter", "Q1"], ["Ships", "41"]], 0),
        ([["London", "T20", "won"], ["Paris", "ODI", "lost"], ["Rome", "ODI", "lost"]], 0),
        ([["Alice", "Berlin", "31.12.2024"], ["Bob", "Paris", ""], ["Cid", "Rome", ""]], 0),
    ],
)  # fmt: skip
def test_rows_of_headers_are_told_from_data(rows: list[list[str]], headers: int) -> None:
    assert count_headers([[Cell(text, guess_value(text)) if text else EMPTY for text in row] for row in rows]) == headers


@pytest.mark.parametrize(
    ("text", "suffix", "content"),
    [
        ("part;price\nwheel;7,5\n", ".csv", "| part | price |\n| --- | --- |\n| wheel | 7,5 |"),
        ('part,note\nwheel,"oak, old"\n', ".csv", "| part | note |\n| --- | --- |\n| wheel | oak, old |"),
        ("part\tprice\n007\t1\n", ".tsv", "| part | price |\n| --- | --- |\n| 007 | 1 |"),
        ("a|b\n1|2\n", ".csv", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        ("alone\nand more\n", ".csv", "alone\nand more"),
    ],
)
def test_separated_values_are_a_table(text: str, suffix: str, content: str) -> None:
    assert separated_to_markdown(text, suffix).content == content


def test_bars_and_line_breaks_stay_in_their_cell() -> None:
    assert grid_to_markdown([["a | b", "c\nd"], ["e", "\\|"]], 1) == "| a \\| b | c d |\n| --- | --- |\n| e | \\| |"


CELLS = st.sampled_from(["", "wheel", "7", "TRUE", "a | b", "\u6c34"])


@given(st.lists(st.lists(CELLS, max_size=5), max_size=6))
def test_blocks_hold_every_value_once(grid: list[list[str]]) -> None:
    blocks = find_blocks([[Cell(text, guess_value(text)) if text else EMPTY for text in row] for row in grid])
    held = [text for block in blocks for text in (*block.above, *(cell.text for row in block.rows for cell in row), *block.below)]
    assert sorted(filter(None, held)) == sorted(cell for row in grid for cell in row if cell)
    assert all(block.headers <= len(block.rows) and len(block.numbers) == len(block.rows) for block in blocks)


@given(st.one_of(st.integers(), st.floats(), st.dates(), st.datetimes(), st.times()), st.text('0#?,.;%-[]$EGd mhys/"\\_*@', max_size=20))
def test_any_format_shows_something_of_any_value(value: object, number_format: str) -> None:
    assert "\x00" not in show_value(value, number_format)


@pytest.mark.parametrize("cut", [10, 100, 1000, 3000])
def test_a_truncated_workbook_is_an_error_of_its_own(cut: int, tmp_path: Path) -> None:
    (tmp_path / "cut.xlsx").write_bytes(make_xlsx()[:cut])
    (tmp_path / "whole.xlsx").write_bytes(make_xlsx())
    pages, skipped = read(tmp_path)
    assert list(pages) == ["whole"] and [item.path for item in skipped] == ["cut.xlsx"]


@given(st.text("ab,;\t\"'\n|1 ", max_size=60), st.sampled_from([".csv", ".tsv"]))
def test_any_text_is_read_as_values(text: str, suffix: str) -> None:
    found = separated_to_markdown(text, suffix).content
    assert all(found.count(letter) >= min(1, text.count(letter)) for letter in "ab")
