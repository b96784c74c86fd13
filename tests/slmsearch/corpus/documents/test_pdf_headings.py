"""Headings and titles of PDFs: from the outline as they are printed, or from their looks."""

import pytest

from slmsearch.corpus.documents.pdf import pdf_to_markdown
from slmsearch.corpus.documents.pdf_blocks import Setting
from slmsearch.corpus.documents.pdf_headings import find_headings
from slmsearch.corpus.documents.pdf_lines import PdfLine
from tests.slmsearch.corpus.documents.builders import BOLD, FILLING, TEXT, down, headings, make_pdf, place_pdf, plain, under


def test_text_stands_under_its_own_heading_where_the_outline_lacks_the_numbers():
    page = down(
        [
            *plain("Text before."),
            ("2.1 The", 14.0, BOLD),
            ("water wheel", 14.0, BOLD),
            *plain("It is of oak."),
            ("2.2 Roof", 14.0, BOLD),
            *plain("It is of slate,", "the wheel is not."),
            ("Chapter 3", 10.0, TEXT),
            ("Stones", 18.0, BOLD),
            *plain("Two."),
        ]
    )
    read = pdf_to_markdown(place_pdf([page], [("The water wheel", 0), ("Roof", 0), ("Stones", 0)]))
    assert headings(read) == ["## 2.1 The water wheel", "## 2.2 Roof", "## Chapter 3 Stones"]
    assert under(read, "## 2.1 The water wheel") == "It is of oak."
    assert under(read, "## 2.2 Roof") == "It is of slate, the wheel is not."
    numbered = pdf_to_markdown(place_pdf([down([("Roof", 14.0, BOLD), *plain("Slate.")])], [("2.2 Roof", 0)]))
    assert under(numbered, "## 2.2 Roof") == "Slate.", "nor where the text lacks them"


def test_a_heading_that_is_printed_nowhere_stands_at_the_top_of_its_page():
    read = pdf_to_markdown(make_pdf(["One.", "Two.", "Three."], [("Second", 1)]))
    assert read.content.split("\n\n") == ["One.", "## Second", "Two.", "Three."]


def test_without_an_outline_fonts_give_title_and_headings():
    page = down([("The Mill of Halden", 22.0, BOLD), *plain("", FILLING, FILLING), ("Wheel", 14.0, BOLD), *plain("Of oak.", FILLING),
                 ("2 The yard and all that stands", 10.0, BOLD), ("in it", 10.0, BOLD), *plain("A cart.", FILLING)])  # fmt: skip
    read = pdf_to_markdown(place_pdf([page, down(plain(*[FILLING] * 20))]))
    assert read.title == "The Mill of Halden"
    assert headings(read) == ["# The Mill of Halden", "## Wheel", "### 2 The yard and all that stands in it"]
    assert under(read, "## Wheel") == f"Of oak.\n\n{FILLING}"
    assert read.metadata["section_pages"] == [["Wheel", 1], ["2 The yard and all that stands in it", 1]]


@pytest.mark.parametrize(
    ("heads", "found"),
    [
        ([("Of the wheel", 10.0, BOLD), ("Of the roof", 10.0, BOLD)], ["## Of the wheel", "## Of the roof"]),
        ([("THE WHEEL", 10.0, TEXT), ("THE ROOF", 10.0, TEXT)], ["## THE WHEEL", "## THE ROOF"]),
        ([("I. Wheel", 10.0, TEXT), ("II. Roof", 10.0, TEXT), ("III. Yard", 10.0, TEXT)], ["## I. Wheel", "## II. Roof", "## III. Yard"]),
        ([("1 Wheel", 12.0, BOLD), ("1.1 Oak", 12.0, BOLD), ("1.1.1 Age", 12.0, BOLD)], ["## 1 Wheel", "### 1.1 Oak", "#### 1.1.1 Age"]),
        ([("Chapter 1 Wheel", 12.0, BOLD), ("1.1 Oak", 12.0, BOLD)], ["## Chapter 1 Wheel", "### 1.1 Oak"]),
        ([("Name:", 10.0, BOLD), ("Age:", 10.0, BOLD)], []),
        ([("2. Open the gate.", 10.0, TEXT), ("3. Lift it.", 10.0, TEXT)], []),
        ([("* open the gate", 12.0, TEXT), ("* lift the stone", 12.0, TEXT)], []),
        ([("It is said that (17.5)", 10.0, TEXT), ("x + 2 y = 17 - 4 z", 14.0, TEXT)], []),
        ([("WHEN WEIGHED ( SACKS , 'RYE' ) = 1", 10.0, TEXT), ("SACK_ID INTEGER", 10.0, TEXT)], []),
    ],
)  # fmt: skip
def test_headings_without_an_outline_are_known_by_their_looks(heads: list[tuple[str, float, str]], found: list[str]):
    page = plain(FILLING, FILLING, FILLING)
    for head in heads:
        page += [*plain(""), head, *plain(FILLING, FILLING, FILLING)]
    assert headings(pdf_to_markdown(place_pdf([down(page)]))) == found


def test_a_name_that_begins_with_a_letter_alone_keeps_the_number_that_is_printed_before_it():
    page = down([("1.3 A roof of slate", 14.0, BOLD), *plain("Grey."), ("B Doors", 14.0, BOLD), *plain("Of pine.")])
    assert headings(pdf_to_markdown(place_pdf([page], [("A roof of slate", 0), ("B Doors", 0)]))) == [
        "## 1.3 A roof of slate",
        "## B Doors",
    ]


def test_a_heading_that_goes_on_with_a_number_is_one_heading():
    head = [("What is known of the law", 10.0, BOLD), ("48 and of what is paid", 10.0, BOLD)]
    page = [*plain(FILLING, FILLING, FILLING, ""), *head, *plain(FILLING, FILLING, FILLING)]
    assert headings(pdf_to_markdown(place_pdf([down(page)]))) == ["## What is known of the law 48 and of what is paid"]


def test_items_in_a_larger_font_that_follow_one_another_are_no_headings():
    items = [("1. Open the gate", 12.0, TEXT), ("2. Lift the stone", 12.0, TEXT)]
    page = [("Wheel", 16.0, BOLD), *plain(FILLING, FILLING, FILLING, ""), *items, *plain("* of oak", "* of slate", *[FILLING] * 3)]
    read = pdf_to_markdown(place_pdf([down([*page, ("Roof", 16.0, BOLD), *plain(FILLING, FILLING)])], title="The Mill"))
    assert headings(read) == ["# The Mill", "## Wheel", "## Roof"]


def test_one_capital_among_letters_without_case_makes_no_heading():
    texts = ["\u6c34\u8f66\u5f88\u65e7 R \u548c", *["\u78e8\u574a\u7684\u6c34\u8f66" * 6] * 3] * 2
    lines = [PdfLine(0, text, 72.0, 700.0 - 24 * n, 72.0 + 10 * len(text), 710.0 - 24 * n, 10.0) for n, text in enumerate(texts)]
    assert find_headings(lines, Setting.of(lines)) == []


def test_a_heading_of_the_first_page_is_known_by_those_of_later_pages():
    first = [("Of wheels", 14.0, TEXT), *plain("", FILLING, "", FILLING, "", FILLING, "")]
    pages = [down([("THE MILL", 20.0, BOLD), *plain("", FILLING, "", FILLING, ""), *first]), down([("Of roofs", 14.0, TEXT), *first[1:]])]
    assert headings(pdf_to_markdown(place_pdf(pages))) == ["# THE MILL", "## Of wheels", "## Of roofs"]


def test_a_bold_line_on_top_of_the_first_page_is_its_title_where_headings_look_otherwise():
    wheel = [("Wheel", 12.0, BOLD), *plain(*[FILLING] * 4), ("Roof", 12.0, BOLD), *plain(*[FILLING] * 4)]
    title = [("The Mills of Halden", 10.0, BOLD), *plain("", FILLING, FILLING, "")]
    read = pdf_to_markdown(place_pdf([down([*title, *wheel])]))
    assert (read.title, headings(read)) == ("The Mills of Halden", ["# The Mills of Halden", "## Wheel", "## Roof"])
    wheel[0] = ("1 Wheel", 10.0, BOLD)
    assert pdf_to_markdown(place_pdf([down([*title, *wheel, *plain(""), ("Yard", 10.0, BOLD), *plain(FILLING)])])).title == read.title
    assert pdf_to_markdown(place_pdf([down([("Yard", 12.0, BOLD), *title[1:], *wheel])])).title == ""


def test_a_heading_that_the_outline_lacks_is_known_by_its_look_and_number():
    names = ("1.1 Wheel", "1.2 Roof", "1.3 Door", "1.4 Gate")
    page = down([line for name in names for line in ((name, 14.0, BOLD), *plain(FILLING, FILLING))])
    outline = [("1.1 Wheel", 0), ("1.2 Roof", 0), ("1.4 Gate", 0)]
    assert headings(pdf_to_markdown(place_pdf([page], outline))) == [f"## {name}" for name in names]
    longer = [*outline[:2], ("Door of pine, by Ingrid Salander", 0, 72.0, 633.0), outline[2]]
    assert headings(pdf_to_markdown(place_pdf([[*page, (72.0, 400.0, 10.0, TEXT, FILLING)]], longer)))[2:4] == [
        "## Door of pine, by Ingrid Salander",
        "## 1.3 Door",
    ]
    page = down([line for name in names for line in ((f"{name} of the mill", 14.0, BOLD), *plain(FILLING, FILLING))])
    alike = [(f"{name} of the mill", 0) for name in (names[0], names[1], names[3])]
    read = pdf_to_markdown(place_pdf([page], [*alike[:2], ("Door of the mill, by Ingrid Salander", 0, 72.0, 620.0), alike[2]]))
    assert headings(read) == [f"## {name} of the mill" for name in names]


def test_a_line_that_only_begins_in_bold_is_none():
    page = down(plain(*[FILLING] * 6, "", "", "", *[FILLING] * 4))
    page += [(72.0, 614.0, 10.0, BOLD, "The wheel."), (128.0, 614.0, 10.0, TEXT, "It is of oak")]
    assert headings(pdf_to_markdown(place_pdf([page]))) == []


def test_authors_under_the_title_and_lines_of_a_cover_are_no_headings():
    cover = [("Mills of Halden", 24.0, BOLD), *plain(""), ("Ingrid Salander", 14.0, TEXT), ("Per Moen", 14.0, TEXT), *plain("The yard", "")]
    page = down([*cover, ("Abstract", 12.0, BOLD), *plain(*[FILLING] * 4), ("1 Wheel", 12.0, BOLD), *plain(*[FILLING] * 9)])
    read = pdf_to_markdown(place_pdf([page]))
    assert headings(read) == ["# Mills of Halden", "## Abstract", "## 1 Wheel"]
    assert "Ingrid Salander" in read.content and "Per Moen" in read.content


def test_many_authors_on_one_line_are_no_heading():
    authors = ("Ingrid Salander, Per Moen, Fellow, and Tor Eide of the Halden Mill", 12.0, TEXT)
    page = down(
        [("Mills of Halden", 24.0, BOLD), *plain(""), authors, *plain("", *[FILLING] * 4), ("Wheel", 12.0, BOLD), *plain(*[FILLING] * 9)]
    )
    assert headings(pdf_to_markdown(place_pdf([page]))) == ["# Mills of Halden", "## Wheel"]


def test_a_large_numbered_line_is_a_heading_and_no_title():
    read = pdf_to_markdown(place_pdf([down([("1.1 Sacks that were ground", 16.0, BOLD), *plain(*[FILLING] * 5)])]))
    assert (read.title, headings(read)) == ("", ["### 1.1 Sacks that were ground"])


def test_a_title_that_the_metadata_give_is_not_said_twice():
    page = down([("The Mills", 20.0, BOLD), ("of Halden", 20.0, BOLD), *plain(*[FILLING] * 5)])
    read = pdf_to_markdown(place_pdf([page], title="The Mills of Halden"))
    assert headings(read) == ["# The Mills of Halden"] and read.content.count("Halden") == 1


def test_an_entry_that_is_printed_nowhere_stands_in_the_column_that_it_points_to():
    one, other = (down(plain(*[f"{word} {n} {FILLING[:40]}" for n in range(9)]), left) for word, left in (("Oak", 60.0), ("Ash", 320.0)))
    read = pdf_to_markdown(place_pdf([[*one, *other]], [("Trees", 0, 320.0, 672.0)]))
    assert read.content.split("## Trees")[1].strip().startswith("Ash 3") and "Oak 8" in read.content.split("## Trees")[0]


def test_an_entry_with_the_number_of_its_parent_is_found_where_its_own_number_is_printed():
    page = down([*plain(FILLING), ("B. Door", 10.0, TEXT), *plain("Of pine."), ("A. Wheel", 10.0, TEXT), *plain("Of oak.")])
    read = pdf_to_markdown(place_pdf([page], [("IV-A Wheel", 0), ("IV-B Door", 0)]))
    assert (under(read, "## IV-A Wheel"), under(read, "## IV-B Door")) == ("Of oak.", "Of pine.")
