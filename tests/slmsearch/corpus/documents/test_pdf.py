"""PDFs: headings under which their text stands, columns, running heads, divided words, pages for citing."""

import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.pdf import pdf_to_markdown
from slmsearch.corpus.documents.pdf_blocks import Setting, blocks
from slmsearch.corpus.documents.pdf_lines import PdfLine
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from tests.slmsearch.corpus.documents.builders import BOLD, CODE, FILLING, TEXT, down, headings, make_pdf, place_pdf, plain, under


def test_an_outline_gives_headings_where_they_are_printed():
    first = "Intro\nThis is an inter-\nnational line that is long enough.\nIt is international.\nMethods\nWe did (things)."
    read = pdf_to_markdown(make_pdf([first, "Second page.\nResults\nGood."], [("Intro", 0), ("Methods", 0), ("Results", 1)], "A Study"))
    assert (read.title, headings(read)) == ("A Study", ["# A Study", "## Intro", "## Methods", "## Results"])
    assert under(read, "## Intro") == "This is an international line that is long enough. It is international."
    assert (under(read, "## Methods"), under(read, "## Results")) == ("We did (things).\n\nSecond page.", "Good.")
    assert read.metadata["section_pages"] == [["Intro", 1], ["Methods", 1], ["Results", 2]]


def test_a_title_that_is_no_utf_16_costs_the_title_alone():
    whole = make_pdf(["Intro\nThe mill of Halden."], title="AB Study")
    read = pdf_to_markdown(whole.replace(b"(AB Study)", b"(\xfe\xff\0A\0B\xd8\x3d)"))
    assert "The mill of Halden." in read.content and "AB" not in read.title and pdf_to_markdown(whole).title == "AB Study"


def test_a_page_is_known_by_the_first_line_that_no_other_begins_like():
    twice = "The same line begins two pages of it."
    read = pdf_to_markdown(
        make_pdf([f"Intro\n{twice}\nOf the oaken wheel is told here.", f"{twice}\n- and the stones of it too."], [("Intro", 0)])
    )
    assert read.metadata["page_begins"] == [[1, "Of the oaken wheel is told"], [2, "and the stones of it"]]


def test_two_columns_are_read_one_after_the_other_however_they_are_drawn():
    left = [f"Line {n} of the left column tells of the wheel and" for n in range(9)]
    right = [f"line {n} of the right column tells of the stones and" for n in range(9)]
    one, other = down(plain(*left), 60.0), down(plain(*right), 320.0)
    down_first = pdf_to_markdown(place_pdf([[*one, *other]]))
    across = pdf_to_markdown(place_pdf([[line for pair in zip(one, other, strict=True) for line in pair]]))
    assert across.content == down_first.content == " ".join([*left, *right])


def test_three_columns_drawn_across_are_read_down_between_what_stands_over_all_of_them():
    columns = [[f"Line {n} of column {name} of it" for n in range(8)] for name in "ABC"]
    placed = [down(plain(*column), 60.0 + 170 * number) for number, column in enumerate(columns)]
    head = (60.0, 720.0, 10.0, TEXT, "A line over all three columns of the page that is as wide as they are together, as leads are")
    read = pdf_to_markdown(place_pdf([[head, *(line for row in zip(*placed, strict=True) for line in row)]]))
    assert read.content.replace("\n\n", " ") == " ".join([head[4], *columns[0], *columns[1], *columns[2]])


def test_text_that_is_written_small_and_enlarged_has_the_size_that_it_is_seen_in():
    page = down([("The Mill of Halden", 22.0, BOLD), *plain("", FILLING, FILLING), ("Wheel", 14.0, BOLD), *plain("Of oak.", FILLING)])
    pages = [page, down(plain(*[FILLING] * 20))]
    read = pdf_to_markdown(place_pdf(pages, enlarged=True))
    assert headings(read) == ["# The Mill of Halden", "## Wheel"]
    assert read == pdf_to_markdown(place_pdf(pages)) and "|" not in read.content


def test_a_notes_mark_is_no_part_of_the_word_or_year_before_it():
    foot = [(72.0, 650.0, 6.0, TEXT, "1"), (75.5, 646.0, 10.0, TEXT, "Of oak.")]
    assert pdf_to_markdown(place_pdf([foot])).content == "1 Of oak."
    page = [(72.0, 700.0, 10.0, TEXT, "It burnt in 1871"), (148.0, 704.0, 6.0, TEXT, "1"), (152.5, 700.0, 10.0, TEXT, "and stood again.")]
    assert pdf_to_markdown(place_pdf([page])).content == "It burnt in 1871 1 and stood again."


def test_what_a_mark_explains_is_an_item_of_its_own():
    page = [(72.0 + 60 * x, 700.0 - 12 * y, 10.0, TEXT, text) for y, row in enumerate([("+", "Plus"), ("!", "Not"), ("?", "Help")])
            for x, text in enumerate(row)]  # fmt: skip
    assert pdf_to_markdown(place_pdf([page])).content.split("\n\n") == ["+ Plus", "! Not", "? Help"]


def test_rows_of_a_table_stay_rows():
    cells = [("Part", "Wood", "Price"), ("Wheel", "oak", "700"), ("Door", "pine", "40")]
    page = [(72.0 + 150 * x, 700.0 - 12 * y, 10.0, TEXT, cell) for y, row in enumerate(cells) for x, cell in enumerate(row)]
    assert pdf_to_markdown(place_pdf([page])).content == "Part | Wood | Price\nWheel | oak | 700\nDoor | pine | 40"


def test_an_empty_cell_keeps_the_others_under_their_heads():
    cells = [("Part", "Wood", "Price"), ("Wheel", "", "700"), ("Door", "pine", "40")]
    page = [(72.0 + 150 * x, 700.0 - 12 * y, 10.0, TEXT, cell) for y, row in enumerate(cells) for x, cell in enumerate(row) if cell]
    assert pdf_to_markdown(place_pdf([page])).content == "Part | Wood | Price\nWheel |  | 700\nDoor | pine | 40"


def test_a_row_of_many_cells_alone_is_no_part_of_a_sentence():
    row = [(72.0 + 90 * x, 664.0, 10.0, TEXT, cell) for x, cell in enumerate(("Wheel", "oak", "700", "1871"))]
    page = [*down(plain(*[FILLING] * 3)), *row, *down(plain(*[FILLING] * 3), top=652.0)]
    assert "\n\nWheel | oak | 700 | 1871\n\n" in pdf_to_markdown(place_pdf([page])).content


def test_a_line_with_one_wide_gap_is_text():
    page = [*down(plain(FILLING, FILLING)), (72.0, 676.0, 10.0, TEXT, "It is written"), (200.0, 676.0, 10.0, TEXT, "down in the book.")]
    assert pdf_to_markdown(place_pdf([page])).content == f"{FILLING} {FILLING} It is written down in the book."


def test_page_numbers_in_the_margin_go():
    pages = [[*down(plain(*[f"{FILLING} {word}"] * 6)), (30.0, 400.0, 9.0, TEXT, f"{n}"), *down(plain(*[FILLING] * 4), top=300.0)]
             for n, word in enumerate(("One", "Two", "Three", "Four"), 164)]  # fmt: skip
    assert not re.search("16[4-7]", pdf_to_markdown(place_pdf(pages)).content)


def test_brackets_of_numbered_code_at_the_foot_of_pages_are_no_page_numbers():
    pages = [down(plain(f"{FILLING} {word}", FILLING[:50], f"{n} }}}}%")) for n, word in enumerate(("One", "Two", "Three"), 17)]
    assert pdf_to_markdown(place_pdf(pages)).content.count("}}%") == 3


def test_commands_that_name_headings_are_no_table_of_contents():
    names = ["set size", "set width", "set colour", "set height"]
    code = down([(f"{name} {n}", 10.0, TEXT) for n, name in zip((7, 3, 9, 1), names, strict=True)])
    pages = [code, *(down([(name, 14.0, BOLD), *plain(f"{FILLING} {name}")]) for name in names)]
    read = pdf_to_markdown(place_pdf(pages, [(name, n) for n, name in enumerate(names, 1)]))
    assert "set width 3" in read.content and not read.dropped


def test_running_heads_and_page_numbers_go_and_are_reported():
    pages = []
    for n, name in enumerate(("wheels", "roofs", "stones", "doors", "yards"), 11):
        head, foot = (72.0, 760.0, 8.0, TEXT, f"Mills of Halden {n}"), (300.0, 30.0, 8.0, TEXT, f"{n}")
        pages.append([head, *down(plain(f"Of {name} we know that they", f"{name} are of 4 kinds.")), foot])
    read = pdf_to_markdown(place_pdf(pages))
    assert headings(read) == [f"## Page {n}" for n in range(1, 6)]
    assert under(read, "## Page 3") == "Of stones we know that they stones are of 4 kinds."
    assert {kind for kind, _ in read.dropped} == {"running head"} and len(read.dropped) == 2


def test_heads_that_differ_from_page_to_page_go_by_their_place():
    names = ["Wheels", "Roofs", "Stones", "Doors", "Yards", "Gates", "Locks"]
    pages = [
        [(72.0, 770.0, 9.0, TEXT, f"{name} and their makers"), *down(plain(*(f"{name} last {n} years." for n in range(5))))]
        for name in names
    ]
    read = pdf_to_markdown(place_pdf(pages))
    assert "makers" not in read.content and all(f"{name} last 3 years." in read.content for name in names)


def test_a_sentence_at_the_foot_of_some_pages_is_text_where_it_stands_elsewhere_too():
    clause = "Nothing of this may be sold before the miller has weighed it."
    texts = [[f"The {name} is of wood.", clause] * number for number, name in enumerate(("wheel", "roof", "door"), 4)]
    read = pdf_to_markdown(place_pdf([down(plain(*text), top=700.0 - 5 * n) for n, text in enumerate(texts)]))
    assert read.content.count(clause) == 15 and not read.dropped


def test_a_chapters_heading_stays_where_pages_repeat_it_as_their_head():
    chapter = [down([("Wheels", 18.0, BOLD), *plain(FILLING)])]
    pages = chapter + [[(72.0, 760.0, 8.0, TEXT, "Wheels"), *down(plain(f"{FILLING} {word}"))] for word in ("One", "Two", "Three")]
    read = pdf_to_markdown(place_pdf(pages, [("Wheels", 0)]))
    assert read.content.count("Wheels") == 1 and headings(read) == ["## Wheels"]


def test_a_table_of_contents_goes_with_its_heading():
    listed = [f"{n} {name} . . . . . . . . . . {n}" for n, name in enumerate(("Wheels", "Roofs", "Stones", "Doors"), 1)]
    contents = down([("Contents", 16.0, BOLD), *plain(*listed)])
    pages = [contents, *(down([(name, 16.0, BOLD), *plain(f"{name} last.")]) for name in ("Wheels", "Roofs", "Stones", "Doors"))]
    outline = [(name, n) for n, name in enumerate(("Contents", "Wheels", "Roofs", "Stones", "Doors"))]
    read = pdf_to_markdown(place_pdf(pages, outline))
    assert headings(read) == ["## Wheels", "## Roofs", "## Stones", "## Doors"]
    assert [kind for kind, _ in read.dropped] == ["contents"] and ". . ." not in read.content


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["They grind inter-", "nationally known grain,", "internationally."], "They grind internationally known grain, internationally."),
        (["They grind inter-", "nationally known grain."], "They grind inter-nationally known grain."),
        (["A well-", "known mill, well-known."], "A well-known mill, well-known."),
        (["The Halden-", "Ostrevik line."], "The Halden- Ostrevik line."),
        (["From 1900-", "1910 it stood."], "From 1900- 1910 it stood."),
    ],
)  # fmt: skip
def test_a_divided_word_is_joined_where_the_document_has_it_whole(lines: list[str], text: str):
    assert pdf_to_markdown(make_pdf(["\n".join(lines)])).content == text


def test_a_note_in_the_margin_stands_after_the_paragraph_that_it_is_printed_beside():
    page = down(plain(*[FILLING] * 8, FILLING[:-1], "and then it is ground.", "", *[FILLING] * 4))
    beside = [(410.0, 604.0, 8.0, TEXT, "New since"), (410.0, 594.0, 8.0, TEXT, "1996")]
    read = pdf_to_markdown(place_pdf([[*page[:9], *beside, *page[9:]]]))
    assert "written down by the miller in a thick book and then it is ground.\n\nNew since 1996\n\n" in read.content


def test_a_displayed_formula_is_one_paragraph():
    page = down(plain(*[FILLING] * 3, "It is given by"))
    page += [
        (200.0, 640.0, 10.0, TEXT, "f(x) ="),
        (232.0, 646.0, 10.0, TEXT, "a"),
        (232.0, 634.0, 10.0, TEXT, "2b"),
        (234.0, 629.0, 6.0, TEXT, "i=0"),
    ]
    read = pdf_to_markdown(place_pdf([[*page, *down(plain("where a is the age.", *[FILLING] * 3), top=610.0)]]))
    assert "f(x) = a 2b i=0" in read.content.split("\n\n")


def test_a_short_line_ends_its_paragraph_where_the_next_word_had_room():
    page = down(
        [
            *plain(*[FILLING] * 3, ""),
            ("A. Wheel", 10.0, TEXT),
            *plain(FILLING, FILLING[:40], "The mill is old and stands in the yard by the water."),
        ]
    )
    texts = pdf_to_markdown(place_pdf([page])).content.split("\n\n")
    assert "A. Wheel" in texts and f"{FILLING} {FILLING[:40]}".strip() in texts


def test_a_paragraph_that_goes_on_in_a_narrower_column_is_one():
    places = [(0, 320.0, 60.0), (1, 72.0, 700.0), (1, 72.0, 688.0), (1, 72.0, 676.0)]
    lines = [
        PdfLine(page, f"and so line {n} of it", left, bottom, left + 220, bottom + 10, 10.0)
        for n, (page, left, bottom) in enumerate(places)
    ]
    assert list(blocks(lines, Setting.of(lines))) == [" ".join(line.text for line in lines)]
    apart = [PdfLine(0, "On the right", 320.0, 700.0, 380.0, 710.0, 10.0), PdfLine(0, "and on the left", 72.0, 688.0, 140.0, 698.0, 10.0)]
    assert list(blocks(apart, Setting.of(apart))) == ["On the right and on the left"]


def test_a_line_that_ends_with_a_point_within_a_name_does_not_end_an_indented_paragraph():
    page = down(plain(*[FILLING] * 3))
    page += [
        (87.0, 650.0, 10.0, TEXT, "It is told at some length by the miller of Halden and others at (https:mill."),
        (72.0, 638.0, 10.0, TEXT, "example) and by others in the yard."),
    ]
    assert "(https:mill. example) and" in pdf_to_markdown(place_pdf([page])).content


def test_what_stands_below_a_heading_is_no_running_head():
    pages = [down([(f"{n}. {name}", 14.0, BOLD), *plain("It is of wood that was cut in the yard of the mill.", "It is old.")])
             for n, name in enumerate(("Wheel", "Roof", "Door", "Gate"), 1)]  # fmt: skip
    read = pdf_to_markdown(place_pdf(pages))
    assert read.content.count("It is of wood") == 4 and not read.dropped


def test_the_number_of_a_page_goes_from_a_document_of_two():
    pages = [down(plain(*[FILLING] * 6)), [*down(plain(*[FILLING] * 6)), (500.0, 40.0, 8.0, TEXT, "-2")]]
    assert pdf_to_markdown(place_pdf(pages)).dropped == [("running head", "-2")]


def test_text_that_runs_up_the_page_is_no_row_of_letters():
    read = pdf_to_markdown(place_pdf([[(100.0, 100.0, 10.0, TEXT, "Halden mills"), (130.0, 100.0, 10.0, TEXT, "are old.")]], turned=True))
    assert read.content.split() == ["Halden", "mills", "are", "old."]


def test_a_note_at_the_foot_stands_after_the_paragraph_that_the_page_cuts():
    foot = [(72.0, 60.0, 8.0, TEXT, "1 So the miller says."), (72.0, 50.0, 8.0, TEXT, "2 In the thick book.")]
    read = pdf_to_markdown(
        place_pdf([[*down(plain(FILLING, "and then it is")), *foot], down(plain("ground in the yard.", FILLING, FILLING))])
    )
    wanted = f"{FILLING} and then it is ground in the yard."
    assert wanted in read.content.replace("## Page 2\n\n", "") or "## Page 2" in read.content
    sections = pdf_to_markdown(
        place_pdf([[*down(plain(FILLING, "and then it is")), *foot], down(plain("ground in the yard."))], [("All", 0)])
    )
    assert sections.content.split("\n\n") == ["## All", wanted, "1 So the miller says.", "2 In the thick book."]


def test_a_note_at_the_foot_stands_in_the_section_that_has_its_mark():
    first = down([("Wheel", 14.0, BOLD), *plain("It is of oak"), ("A.1 Roof", 14.0, BOLD), *plain(FILLING, FILLING)])
    mark = [(124.0, first[1][1] + 4, 6.0, TEXT, "1")]
    foot = [(72.0, 60.0, 8.0, TEXT, "1 So the miller says,"), (72.0, 50.0, 8.0, TEXT, "and the book.")]
    pages = [[*first[:2], *mark, *first[2:], *foot], down(plain(*[FILLING] * 6))]
    read = pdf_to_markdown(place_pdf(pages, [("Wheel", 0), ("A.1 Roof", 0)]))
    assert under(read, "## Wheel") == "It is of oak 1\n\n1 So the miller says, and the book." and "says" not in under(read, "## A.1 Roof")


def test_the_number_at_the_foot_of_a_page_goes_where_other_pages_have_theirs_at_the_head():
    pages = [[(72.0, 760.0, 9.0, TEXT, f"{n} Mills"), *down(plain(*[f"{FILLING} {word}"] * 6))]
             for n, word in enumerate(("One", "Two", "Three", "Four", "Five"), 31)]  # fmt: skip
    pages[2] = [*pages[2][1:], (300.0, 40.0, 10.0, TEXT, "33")]
    assert "33" not in pdf_to_markdown(place_pdf(pages)).content


def test_code_with_the_numbers_of_its_lines_is_code():
    page = [(72.0, 700.0 - 12 * n, 6.0, TEXT, f"{n + 17}") for n in range(3)]
    page += [(92.0, 700.0 - 12 * n, 10.0, CODE, text) for n, text in enumerate(["def grind(sacks):", "return sacks", "grind(4)"])]
    page.sort(key=lambda line: (-line[1], line[0]))
    near = [(left if size == 6.0 else 80.0, bottom, size, name, text) for left, bottom, size, name, text in page]
    assert pdf_to_markdown(place_pdf([near])).content.startswith("```\n17")
    assert pdf_to_markdown(place_pdf([page])).content == "```\n17 def grind(sacks):\n18 return sacks\n19 grind(4)\n```"


def test_chinese_lines_are_joined_without_a_space():
    lines = [
        PdfLine(0, text, 72.0, height, 172.0, height + 10, 10.0) for text, height in (("\u6c34\u8f66", 700.0), ("\u5f88\u65e7", 688.0))
    ]
    assert list(blocks(lines, Setting.of(lines))) == ["\u6c34\u8f66\u5f88\u65e7"]


def test_paragraphs_lists_and_code():
    lines = [*plain("First paragraph ends here.", "", "Second one.", "", "Steps:", "* open the gate", "* lift the stone")]
    page = down([*lines, ("def grind(sacks):", 10.0, CODE)])
    page.append((84.0, page[-1][1] - 12, 10.0, CODE, "return sacks"))
    blocks = ["First paragraph ends here.", "Second one.", "Steps:", "- open the gate", "- lift the stone"]
    assert pdf_to_markdown(place_pdf([page])).content.split("\n\n") == [*blocks, "```\ndef grind(sacks):\n  return sacks\n```"]


@pytest.mark.parametrize(
    "title", ["Microsoft Word - mill.doc", "untitled", "mill.pdf", "x", "   ", "88300 162..177", "mill_book", "Book1", "Presentation 2"]
)
def test_titles_of_programs_are_none(title: str):
    assert pdf_to_markdown(make_pdf([FILLING], title=title)).title == ""


def test_author_and_date_are_metadata():
    read = pdf_to_markdown(place_pdf([down(plain(FILLING))], Author="Ingrid  Salander", CreationDate="D:20240229120000Z"))
    assert read.metadata == {"author": "Ingrid Salander", "date": "2024-02-29"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (make_pdf(["secret"], password="x"), Reason.ENCRYPTED),
        (make_pdf(["", ""]), Reason.NO_TEXT),
        (b"no pdf", Reason.BINARY),
        (b" \n", Reason.EMPTY),
        (b"%PDF-1.4\nnothing", Reason.BROKEN),
    ],
)
def test_pdfs_that_are_refused(data: bytes, reason: Reason):
    with pytest.raises(NotTakenError) as raised:
        pdf_to_markdown(data)
    assert raised.value.reason is reason


WORDS = st.lists(st.text("abcdefg", min_size=2, max_size=6), min_size=1, max_size=8).map(" ".join)


@given(st.lists(st.lists(WORDS, min_size=1, max_size=12), min_size=1, max_size=3))
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_every_word_is_kept_or_reported(pages: list[list[str]]):
    # A column of single letters is a word that runs down the page, so that words have two at least.
    read = pdf_to_markdown(make_pdf(["\n".join(lines) for lines in pages]))
    kept = read.content.split() + [word for _, text in read.dropped for word in text.split()]
    assert {word for lines in pages for line in lines for word in line.split()} <= set(kept)


@given(st.integers(0, 1 << 30))
@settings(deadline=None, max_examples=60)
def test_spoilt_pdfs_are_read_or_named(seed: int):
    rng = random.Random(seed)
    data = bytearray(make_pdf([FILLING, "Wheels\nOf oak."], [("Wheels", 1)], "Mills"))
    for _ in range(rng.randint(1, 20)):
        at = rng.randrange(len(data))
        if rng.random() < 0.7:
            data[at] = rng.randrange(256)
        else:
            del data[at : at + rng.randrange(200)]
        if not data:
            break
    try:
        pdf_to_markdown(bytes(data))
    except NotTakenError as error:
        assert error.reason
