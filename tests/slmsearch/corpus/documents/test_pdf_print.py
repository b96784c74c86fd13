"""How PDFs are printed: letters, accents and spaces, turned pages, tables whose cells go on, code, chapters, contents, lists of terms."""

import io
from typing import Any

import pytest
from pypdf import PdfReader, PdfWriter

from slmsearch.corpus.documents.pdf import pdf_to_markdown
from slmsearch.corpus.documents.pdf_blocks import Setting, blocks
from slmsearch.corpus.documents.pdf_lines import _FIXED, PdfLine, _spaced, join_pieces
from tests.slmsearch.corpus.documents.builders import BOLD, CODE, FILLING, TEXT, down, headings, place_pdf, plain, under

SETTING = Setting(1.2, 200.0, 10.0, {})


def line(text: str, number: int, left: float = 72.0, right: float = 272.0, **more: Any) -> PdfLine:
    """Return the line of this number below the top of the first page."""
    return PdfLine(0, text, left, 700.0 - 12 * number, right, 710.0 - 12 * number, 10.0, **more)


@pytest.mark.parametrize(
    ("text", "wide", "said"),
    [
        ("anyremaining", [3], "any remaining"),
        ("pattern,and below", [8], "pattern, and below"),
        ("More spacing", [1, 2, 3, 6, 7, 8, 9, 10, 11], "More spacing"),
        ("a line of text with s p a c i n g in it".replace("s p a c i n g", "spacing"), [21, 22, 23, 24, 25, 26], None),
    ],
)
def test_letters_that_stand_apart_are_two_words_unless_many_do(text: str, wide: list[int], said: str | None) -> None:
    assert _spaced(list(text), wide) == (text if said is None else said)


def test_a_page_that_is_turned_for_reading_is_read_as_it_is_seen() -> None:
    lines = ["The mill stands on the river", "and was built in 1871.", "Its wheel is of oak."]
    upright = pdf_to_markdown(place_pdf([[(72.0, 700.0 - 12 * n, 10.0, TEXT, text) for n, text in enumerate(lines)]]))
    written = PdfReader(io.BytesIO(place_pdf([[(100.0 + 12 * n, 72.0, 10.0, TEXT, text) for n, text in enumerate(lines)]], turned=True)))
    writer = PdfWriter()
    writer.add_page(written.pages[0]).rotate(90)
    writer.write(out := io.BytesIO())
    assert pdf_to_markdown(out.getvalue()).content == upright.content == " ".join(lines)


def test_a_cell_of_several_lines_is_one_cell() -> None:
    cells = [(72.0, 110.0, "-MM"), (150.0, 272.0, "The output mentions only the inter-")]
    row = join_pieces([line(text, 0, left, right) for left, right, text in cells])
    other = join_pieces([line("-MD", 3, 72.0, 110.0), line("The same as -M.", 3, 150.0, 250.0)])
    rows = [row, line("national headers, and leaves", 1, 150.0), line("others out.", 2, 150.0, 200.0), other]
    whole = Setting(1.2, 200.0, 10.0, {"international": 1})
    assert list(blocks(rows, whole)) == [
        "-MM | The output mentions only the international headers, and leaves others out.\n-MD | The same as -M."
    ]
    apart = [row, other, line("Text below the table, to its full width.", 5)]
    assert list(blocks(apart, whole))[1:] == ["Text below the table, to its full width."]


def test_a_line_that_is_stretched_to_the_full_width_is_text() -> None:
    words = [(72.0, 100.0, "temporary,"), (120.0, 150.0, "rather"), (170.0, 200.0, "than"), (220.0, 272.0, "a setter")]
    stretched = join_pieces([line(text, 1, left, right) for left, right, text in words])
    assert list(blocks([line("What is not known is taken for a local", 0), stretched, line("method.", 2, right=100.0)], SETTING)) == [
        "What is not known is taken for a local temporary, rather than a setter method."
    ]
    uneven = join_pieces([line(text, 1, left + 12 * (left == 170.0), right) for left, right, text in words])
    assert "temporary, | rather" in list(blocks([line("Above.", 0), uneven], SETTING))[1]


def test_a_line_is_code_if_all_of_it_is_but_figures_and_signs() -> None:
    def pieces(*told: tuple[str, bool]) -> bool:
        return join_pieces([line(text, 0, 72.0 + 80 * at, 130.0 + 80 * at, fixed=fixed) for at, (text, fixed) in enumerate(told)]).fixed

    assert (
        pieces(("Assets:Cash", True), ("\u20ac50.00", False))
        and pieces(("12", False), ("while true", True))
        and pieces(("*/", True), ("!", False))
    )
    assert not pieces(("Ctrl+S", True), ("Save", False)) and not pieces(("slices.strokeWidth", True), ("Border width", False))
    assert (
        _FIXED.search("ABCDEF+t1xtt") and _FIXED.search("GHIJKL+tcxtt") and not _FIXED.search("ABCDEF+t1xr") and not _FIXED.search("t1tmr")
    )


def test_an_address_in_code_at_the_end_of_a_line_is_part_of_its_sentence() -> None:
    lines = [line("Write to the desk of new members, and to it alone, using", 0), line("desk@example.org", 1, right=150.0, fixed=True)]
    assert list(blocks(lines, SETTING)) == ["Write to the desk of new members, and to it alone, using desk@example.org"]
    call = [line("To begin anew, call:", 0), line("reset()", 1, right=110.0, fixed=True)]
    assert list(blocks(call, SETTING)) == ["To begin anew, call:", "```\nreset()\n```"]


def test_a_bold_term_further_left_begins_a_paragraph() -> None:
    lines = [
        line("Saves the figure. See Panels for details.", 0, 90.0),
        line("Export", 1, right=110.0, bold=True),
        line("Makes a file.", 2, 90.0),
    ]
    assert list(blocks(lines, SETTING)) == ["Saves the figure. See Panels for details.", "Export", "Makes a file."]


def test_a_dash_or_a_smaller_word_at_the_beginning_of_a_line_goes_on_with_the_sentence() -> None:
    said = [line("The element, which is the first of its kind", 0), line("\u2014 it is empty \u2014 names the mill, and nothing other", 1)]
    small = line("than it.", 2, right=110.0, bold=True)
    small.size = 8.5
    whole = "The element, which is the first of its kind \u2014 it is empty \u2014 names the mill, and nothing other than it."
    assert list(blocks([*said, small], SETTING)) == [whole]
    items = [line("It has:", 0, right=110.0), line("\u2014 a wheel", 1, right=120.0), line("\u2014 a roof", 2, right=120.0)]
    assert list(blocks(items, SETTING)) == ["It has:", "- a wheel", "- a roof"]


def test_a_label_at_the_foot_of_a_page_is_no_beginning_of_the_next_ones_text() -> None:
    label, text = line("Allow precise positioning", 40, right=150.0, bold=True), line("What is needed is that the places are those", 0)
    text.page = 1
    assert list(blocks([label, text], SETTING)) == [label.text, text.text]


@pytest.mark.parametrize("has_outline", [False, True])
def test_the_number_over_a_chapters_title_is_part_of_it(has_outline: bool) -> None:
    names = ("Wheels", "Roofs", "Stones", "Doors", "Yards")
    pages = [
        down([(f"Chapter {n}", 18.0, BOLD), (name, 22.0, BOLD), *plain("", *[f"{FILLING} {name}"] * 12)]) for n, name in enumerate(names, 1)
    ]
    read = pdf_to_markdown(place_pdf(pages, [(name, n) for n, name in enumerate(names)] if has_outline else ()))
    assert headings(read)[-4:] == [f"## Chapter {n} {name}" for n, name in enumerate(names, 1)][-4:] and not read.dropped


def test_a_heading_without_text_over_a_deeper_one_is_a_heading() -> None:
    heads = [("3.7. Settings", 14.0, BOLD), *plain("", *[FILLING] * 6, ""), ("3.7.4. /etc/opt : For add-ons", 14.0, BOLD)]
    page = down([*heads, ("3.7.4.1. Purpose", 14.0, BOLD), *plain("", *[FILLING] * 6)])
    assert headings(pdf_to_markdown(place_pdf([page, page])))[1:3] == ["#### 3.7.4. /etc/opt : For add-ons", "#### 3.7.4.1. Purpose"]


def test_a_heading_of_two_lines_divides_no_word() -> None:
    text = plain("", *["Software is available here, and nowhere else is it available."] * 9, "")
    page = down([("5.1 Which software is avail-", 14.0, BOLD), ("able for the mill?", 14.0, BOLD), *text])
    whole = "5.1 Which software is available for the mill?"
    assert f"### {whole}" in headings(pdf_to_markdown(place_pdf([page, page])))
    assert headings(pdf_to_markdown(place_pdf([page], [("Which software is available for the mill?", 0)])))[0] == f"## {whole}"


def test_terms_where_the_text_begins_are_no_headings_where_headings_hang_out_to_the_left() -> None:
    page, at = [], 750.0
    for name in ("NAME", "OPTIONS", "FILES"):
        page.append((72.0, at, 10.0, BOLD, name))
        for left, font, text in ((108.0, BOLD, "--login"), (126.0, TEXT, FILLING), (108.0, TEXT, FILLING), (108.0, TEXT, FILLING)):
            at -= 18.0 if font == BOLD else 12.0
            page.append((left, at, 10.0, font, text))
        for _ in range(9):
            at -= 12.0
            page.append((108.0, at, 10.0, TEXT, FILLING))
        at -= 24.0
    read = pdf_to_markdown(place_pdf([page, page]))
    assert set(headings(read)) <= {"## NAME", "## OPTIONS", "## FILES"} and len(headings(read)) >= 5
    assert under(read, "## OPTIONS").startswith("--login\n\n")


def test_a_page_mostly_of_dotted_lines_is_contents_with_the_lines_between_them() -> None:
    entries = [f"{n} Of wheels and of {name} {'. ' * 20} {n + 3}" for n, name in enumerate(("oak", "pine", "ash", "elm", "fir", "yew"), 1)]
    entries[3:3] = [
        "Trace and log, which is an entry of some lines, and",
        "goes on, and says what has",
        "happened to the mill",
        "and to its wheel 6",
    ]
    pages = [
        down([("Contents", 16.0, BOLD), *plain(*entries)]),
        *(down(plain(*[f"{FILLING} {word}"] * 9)) for word in ("Oak", "Pine", "Ash")),
    ]
    read = pdf_to_markdown(place_pdf(pages))
    assert "Trace and log" not in read.content and any(kind == "contents" for kind, _ in read.dropped)


@pytest.mark.parametrize("title", ["Contents", "Table of Contents", "Introduction", "Index"])
def test_the_name_of_a_part_is_no_title(title: str) -> None:
    assert pdf_to_markdown(place_pdf([down(plain(*[FILLING] * 6))], title=title)).title == ""


def test_an_entry_that_stands_twice_in_the_outline_is_one() -> None:
    pages = [down([("Wheels", 14.0, CODE), *plain(*[FILLING] * 6)]), down([("Roofs", 14.0, CODE), *plain(*[FILLING] * 6)])]
    read = pdf_to_markdown(place_pdf(pages, [("Mills of Halden", 0), ("Wheels", 0), ("Wheels", 0), ("Roofs", 1)], "Mills of Halden"))
    assert headings(read) == ["# Mills of Halden", "## Wheels", "## Roofs"]


def test_dates_and_entries_of_an_index_are_no_headings() -> None:
    cover = [("Mills of Halden", 24.0, TEXT), ("Draft version, February 2019", 14.0, TEXT), *plain("", *[FILLING] * 6)]
    index = [("Bus, 46", 14.0, TEXT), ("Warranty, 62", 14.0, TEXT), *plain("", *[FILLING] * 3, "")]
    wheels = [("1 Wheels", 14.0, TEXT), *plain("", *[FILLING] * 8, ""), ("2 Roofs", 14.0, TEXT), *plain("", *[FILLING] * 8)]
    assert headings(pdf_to_markdown(place_pdf([down(cover), down(wheels), down(index)]))) == [
        "# Mills of Halden",
        "## 1 Wheels",
        "## 2 Roofs",
    ]


def test_numbered_lines_below_the_outlines_depth_are_headings_in_their_order() -> None:
    text = plain("", *[FILLING] * 5, "")
    lines = [("2 Wheels", 14.0, BOLD), *text, ("2.1 isalnum() int isalnum (", 10.0, CODE), *text, ("2.2 Of pine", 10.0, BOLD), *text]
    other = [*plain("2.9 wheels were counted,", FILLING), *text, ("3 Roofs", 14.0, BOLD), *text, *plain("2.3 is a number")]
    read = pdf_to_markdown(place_pdf([down(lines), down(other)], [("2 Wheels", 0), ("3 Roofs", 1)]))
    assert headings(read) == ["## 2 Wheels", "### 2.1 isalnum() int isalnum (", "### 2.2 Of pine", "## 3 Roofs"]


def test_an_entry_that_names_a_part_of_what_is_printed_stands_there() -> None:
    page = down([*plain(*[FILLING] * 6, ""), ("6.4.1 int mpx_make(mpx_options *mpxopt)", 12.0, BOLD), *plain("", *[FILLING] * 6)])
    assert headings(pdf_to_markdown(place_pdf([page], [("make", 0)]))) == ["## make"], "a part of a word is not named"
    read = pdf_to_markdown(place_pdf([page], [("mpx_make", 0)]))
    assert headings(read) == ["## 6.4.1 int mpx_make(mpx_options *mpxopt)"] and read.content.index("##") > len(FILLING)


def test_an_items_second_line_goes_on_and_the_text_below_the_list_does_not() -> None:
    first = line("\u2022 The file of the release, where the mill stands.", 0, 82.0)
    assert list(blocks([first, line("Its wheel is named there.", 1, 92.0, 230.0)], SETTING)) == [
        "- The file of the release, where the mill stands. Its wheel is named there."
    ]
    short = line("\u2022 It is built by make.", 0, 92.0, 180.0)
    below = line("There is another way, too, which the book of the mill", 1)
    assert list(blocks([short, below], SETTING)) == ["- It is built by make.", below.text]


def test_a_definition_with_its_kind_at_the_lines_end_is_a_line() -> None:
    defined = join_pieces([line("LENGTH (string)", 0, 72.0, 150.0), line("[Function]", 0, 230.0, 272.0)])
    assert list(blocks([defined, line("Returns the number of letters.", 1, 92.0)], SETTING)) == [
        "LENGTH (string) [Function]",
        "Returns the number of letters.",
    ]


def test_a_word_in_capitals_is_joined_and_a_row_of_numbers_is_no_code() -> None:
    words = Setting(1.2, 200.0, 10.0, {"secondary": 1})
    assert list(blocks([line("It takes the place of SE-", 0), line("CONDARY alone.", 1, right=160.0)], words)) == [
        "It takes the place of SECONDARY alone."
    ]
    row = [line("aes_128_ecb", 0, 72.0, 150.0, fixed=True), line("16", 0, 180.0, 192.0), line("24", 0, 230.0, 242.0)]
    assert not join_pieces(row).fixed


def test_a_note_with_a_raised_digit_stands_below_its_paragraph() -> None:
    note = line("\u2079Of oak.", 3, right=110.0)
    note.size = 8.0
    text = [line("The wheel of the mill is made of wood\u2079 and the mill", 0), line("stands on the river.", 1, right=160.0)]
    assert list(blocks([text[0], note, text[1]], SETTING))[-1] == "\u2079Of oak." or "\u2079Of oak." in list(blocks([*text, note], SETTING))


def test_letters_of_fonts_that_do_not_say_which_they_are() -> None:
    page = down(plain("A modi\x1ced mill \x10with a \x1dat roof\x11 is e\x1ecient.", "Hit the \x1c key."))
    assert pdf_to_markdown(place_pdf([page])).content == "A modified mill \u201cwith a flat roof\u201d is efficient. Hit the key."
