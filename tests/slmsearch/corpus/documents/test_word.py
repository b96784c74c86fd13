"""Word documents: what a person sees on the page, under the heading that a person sees above it."""

import io
import re
import zipfile
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.office import is_title
from slmsearch.corpus.documents.skipped import NotTakenError
from slmsearch.corpus.documents.word import word_to_markdown
from slmsearch.corpus.documents.word_styles import show_number
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import split_sections
from tests.slmsearch.corpus.documents.builders import make_docx, make_zip

NAMES = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
STYLES = """
<w:style w:type="paragraph" w:default="1" w:styleId="Standard"><w:name w:val="Normal"/></w:style>
<w:style w:type="paragraph" w:styleId="Titel"><w:name w:val="Title"/><w:basedOn w:val="Standard"/></w:style>
<w:style w:type="paragraph" w:styleId="berschrift1"><w:name w:val="heading 1"/><w:basedOn w:val="Standard"/></w:style>
<w:style w:type="paragraph" w:styleId="Kapitel"><w:name w:val="Kapitel der Akte"/><w:basedOn w:val="berschrift1"/></w:style>
<w:style w:type="paragraph" w:styleId="Absatz"><w:name w:val="Titre 2"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Flat"><w:name w:val="Flat"/><w:basedOn w:val="berschrift1"/>
<w:pPr><w:outlineLvl w:val="9"/></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Round"><w:name w:val="Round"/><w:basedOn w:val="Trip"/></w:style>
<w:style w:type="paragraph" w:styleId="Trip"><w:name w:val="Trip"/><w:basedOn w:val="Round"/></w:style>
<w:style w:type="paragraph" w:styleId="Verzeichnis1"><w:name w:val="toc 1"/></w:style>
<w:style w:type="paragraph" w:styleId="Numbered"><w:name w:val="Numbered"/><w:basedOn w:val="berschrift1"/>
<w:pPr><w:numPr><w:numId w:val="2"/></w:numPr></w:pPr></w:style>
"""  # fmt: skip
NUMBERING = """
<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="(%2)"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="1">
<w:lvl w:ilvl="0"><w:start w:val="4"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="%1"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="2"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="o"/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>
<w:num w:numId="3"><w:abstractNumId w:val="2"/></w:num>
<w:num w:numId="4"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride></w:num>
"""  # fmt: skip


def par(text: str, style: str = "", extra: str = "") -> str:
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f'<w:p><w:pPr>{named}{extra}</w:pPr><w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def item(text: str, number: int, level: int = 0) -> str:
    return par(text, extra=f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>')


def table(rows: Sequence[Sequence[str]], properties: str = "") -> str:
    """Make a table of cells, each the inner XML of `w:tc` or plain text."""
    shown = "".join(f"<w:tr>{''.join(_cell(cell) for cell in row)}</w:tr>" for row in rows)
    return f"<w:tbl><w:tblPr>{properties}</w:tblPr>{shown}</w:tbl>"


def _cell(cell: str) -> str:
    return f"<w:tc>{cell if cell.startswith('<') else par(cell)}</w:tc>"


def read(body: str, **parts: str) -> Document:
    files = {"word/document.xml": f"<w:document {NAMES}><w:body>{body}</w:body></w:document>"}
    files["word/styles.xml"] = f"<w:styles {NAMES}>{STYLES}</w:styles>"
    files["word/numbering.xml"] = f"<w:numbering {NAMES}>{NUMBERING}</w:numbering>"
    return word_to_markdown(make_zip(files | {name.replace("__", "/") + ".xml": text for name, text in parts.items()}))


def core(title: str) -> str:
    names = 'xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    facts = "<dc:creator>A. Berg</dc:creator><cp:keywords>mill, oak</cp:keywords>"
    return f"<cp:coreProperties {names}><dc:title>{title}</dc:title>{facts}</cp:coreProperties>"


def headings(markdown: str) -> list[tuple[int, str]]:
    return [(section.level, section.heading) for section in split_sections(Page("p", "P", markdown))]


def test_headings_are_told_by_styles_in_any_language_what_they_are_based_on_and_outline_levels() -> None:
    bodies = [par("Mühle", "Kapitel"), par("Rad", "Absatz"), par("flat", "Flat"), par("round", "Round"), par("unknown", "None")]
    bodies += [par("Dach", extra='<w:outlineLvl w:val="2"/>'), par("# no heading"), par("", "Kapitel")]
    found = read("".join(bodies))
    assert headings(found.content) == [(1, "Mühle"), (2, "Rad"), (3, "Dach")]
    assert "\\# no heading" in found.content and "flat\n\nround\n\nunknown" in found.content


def test_the_title_is_that_of_its_style_then_of_the_properties_unless_a_program_wrote_them() -> None:
    found = read(par("Cover") + par("Of mills", "Titel") + par("Wheel", "Kapitel"), docProps__core=core("Other"))
    assert (found.title, headings(found.content)) == ("Of mills", [(1, "Of mills"), (2, "Wheel")])
    assert found.metadata == {"author": "A. Berg", "tags": ["mill", "oak"]}
    assert read(par("text"), docProps__core=core("Of mills and oak")).title == "Of mills and oak"
    for name in (
        "Microsoft Word - mills.doc",
        "Title",
        "[Document title]",
        "mills_final.docx",
        "PowerPoint Presentation",
        "Document1",
        "7",
    ):
        assert read(par("text"), docProps__core=core(name)).title == "" and not is_title(name)


def sized(text: str, size: int, style: str = "") -> str:
    return par(text, style).replace("<w:r>", f'<w:r><w:rPr><w:sz w:val="{size}"/></w:rPr>')


@pytest.mark.parametrize(
    ("cover", "title"),
    [
        (sized("Rules for the", 40) + sized("Ports of Halden", 40) + par("Version 2"), "Rules for the Ports of Halden"),
        (sized("The Harbour", 28) + sized("Rules of the Port", 64) + par("") + sized("First Draft", 48), "Rules of the Port First Draft"),
        (sized("Rules of the Port", 36, "berschrift1") + par("A checklist.") + sized("Tides", 28, "berschrift1"), "Rules of the Port"),
        (sized("Tides", 28, "berschrift1") + sized("Ships", 28, "berschrift1"), ""),
        (sized("Rules of the Port", 24), ""),
        (sized("port " * 60, 40), ""),
        (par("Tides", "berschrift1") + sized("STOP", 72), ""),
        (par("", "Titel") + f"<w:p><w:r><w:pict><w:txbxContent>{sized('Rules of the Port', 64)}</w:txbxContent></w:pict></w:r></w:p>",
            "Rules of the Port"),
    ],
)  # fmt: skip
def test_the_largest_lines_of_a_cover_are_the_title_where_nothing_else_is(cover: str, title: str) -> None:
    found = read(cover + par("Ships wait for the tide, and the keeper counts them. " * 9) + par("Ships", "berschrift1") + par("Text."))
    assert found.title == title
    assert ("# " + title in found.content.split("\n")) == bool(title)
    assert read(cover + par("Text."), docProps__core=core("Port rules")).title == "Port rules"


def test_numbers_of_lists_go_on_over_what_stands_between() -> None:
    body = item("one", 1) + item("deep", 1, 1) + item("deeper", 1, 1) + item("two", 1) + par("between") + item("three", 1)
    body += item("deep again", 1, 1) + item("bullet", 3) + item("new one", 4) + item("new two", 4)
    assert read(body).content == (
        "1. one\n  (a) deep\n  (b) deeper\n2. two\n\nbetween\n\n3. three\n  (a) deep again\n- bullet\n1. new one\n2. new two"
    )
    assert headings(read(par("First", "Numbered") + par("Second", "Numbered")).content) == [(1, "IV First"), (1, "V Second")]


@pytest.mark.parametrize(
    ("count", "kind", "shown"), [(28, "lowerLetter", "bb"), (1994, "upperRoman", "MCMXCIV"), (4, "decimalZero", "04"), (3, "ordinal", "3")]
)
def test_numbers_are_written_as_word_writes_them(count: int, kind: str, shown: str) -> None:
    assert show_number(count, kind) == shown


def test_merged_cells_of_a_table_stand_under_their_headers_and_values_are_not_bent() -> None:
    across = '<w:tcPr><w:gridSpan w:val="2"/></w:tcPr>' + par("Weekday")
    down, goes_on = ('<w:tcPr><w:vMerge w:val="restart"/></w:tcPr>' + par("Ostrevik"), "<w:tcPr><w:vMerge/></w:tcPr><w:p/>")
    rows = [
        ["", across, "Sunday"],
        ["Port", "out", "back", "out"],
        [down, "17:05", "a | b", "9:00"],
        [goes_on, "19:05", "Python 3.0", "007"],
    ]
    marked = table(rows).replace("<w:tr>", "<w:tr><w:trPr><w:tblHeader/></w:trPr>", 2)
    assert read(marked).content.split("\n") == [
        "| Port | Weekday out | Weekday back | Sunday out |", "| --- | --- | --- | --- |", "| Ostrevik | 17:05 | a \\| b | 9:00 |",
        "| Ostrevik | 19:05 | Python 3.0 | 007 |",
    ]  # fmt: skip


def test_a_form_of_labels_has_no_headers() -> None:
    look = '<w:tblLook w:val="04A0"/>'
    assert read(table([["Signature", "Date"], ["Name", ""]], look)).content.startswith("|  |  |\n")
    assert read(table([["Gap", "Advice"], ["", ""]], look)).content.startswith("| Gap | Advice |\n")


def test_headings_in_cells_are_sections_where_a_table_places_text_and_names_where_it_is_one() -> None:
    box = par("Wheel", "Kapitel") + par("It turns.")
    found = read(table([[box, par("Roof", "Kapitel") + par("It holds.")]]))
    assert headings(found.content) == [(1, "Wheel"), (1, "Roof")] and "It turns.\n\n# Roof" in found.content
    found = read(table([[par("part", "Kapitel"), par("price", "Kapitel")], ["wheel", "700"]]))
    assert found.content == "| part | price |\n| --- | --- |\n| wheel | 700 |"
    assert read(table([["a note in a box"]])).content == "a note in a box"


def test_notes_stand_below_what_refers_to_them_and_glue_to_nothing() -> None:
    mark = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    notes = f'<w:footnote w:type="separator" w:id="0"><w:p/></w:footnote><w:footnote w:id="2">{par("Or 1872.")}</w:footnote>'
    note = f"<w:footnotes {NAMES}>{notes}</w:footnotes>"
    found = read(f"<w:p><w:r><w:t>Built in 1871</w:t></w:r>{mark}<w:r><w:t>.</w:t></w:r></w:p>{par('After.')}", word__footnotes=note)
    assert found.content == "Built in 1871[2].\n\n[2] Or 1872.\n\nAfter."


def test_text_boxes_are_read_once_and_fields_by_what_they_show() -> None:
    names = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    box = f"<w:txbxContent>{par('In a box')}</w:txbxContent>"
    ways = f"<mc:Choice><w:d>{box}</w:d></mc:Choice><mc:Fallback><w:d>{box}</w:d></mc:Fallback>"
    ways = f"<mc:AlternateContent {names}>{ways}</mc:AlternateContent>"
    code = '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>SEQ Table</w:instrText></w:r><w:r><w:t>7</w:t></w:r>'
    found = read(f"<w:p><w:r><w:t xml:space='preserve'>Table </w:t></w:r>{code}<w:r>{ways}</w:r></w:p>")
    assert found.content == "Table 7\n\nIn a box"


def test_superscripts_and_formulas_keep_their_numbers_apart() -> None:
    def run(text: str, place: str = "") -> str:
        return f'<w:r><w:rPr><w:vertAlign w:val="{place}"/></w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'

    up = "superscript"
    assert read(
        f"<w:p>{run('10')}{run('-', up)}{run('6', up)}{run(' m')}{run('2', up)} {run('of H')}{run('2', 'subscript')}</w:p>"
    ).content == ("10^-6 m^2of H2")
    assert read(f"<w:p>{run('The 1')}{run('st', up)}{run(', 2')}{run('nd', up)}</w:p>").content == "The 1st, 2nd"
    names = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    formulas = {
        "<m:f><m:fPr/><m:num>3</m:num><m:den>4</m:den></m:f>": "3/4",
        "<m:f><m:num><m:sSup><m:e>x</m:e><m:sup>10</m:sup></m:sSup>+y</m:num><m:den>z</m:den></m:f>": "(x^10+y)/z",
        "<m:sSubSup><m:e>x</m:e><m:sub>1</m:sub><m:sup>n+1</m:sup></m:sSubSup>": "x1^(n+1)",
        "<m:rad><m:deg/><m:e>2</m:e></m:rad>": "√2",
        '2<m:d><m:dPr><m:endChr m:val="]"/></m:dPr><m:e>a+b</m:e></m:d>': "2(a+b]",
    }
    for formula, wanted in formulas.items():
        runs = re.sub(r"(?<=>)([\w+]+)(?=<)|^(\w)", r"<m:r><m:t>\1\2</m:t></m:r>", formula)
        assert read(f"<w:p {names}><m:oMath>{runs}</m:oMath></w:p>").content == wanted


def test_what_is_left_out_is_said() -> None:
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>for the printer</w:t></w:r>"
    deleted = "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:t>new</w:t></w:r></w:ins>"
    body = par("Contents") + par("Wheel 3", "Verzeichnis1") + par("Wheel", "Kapitel") + f"<w:p>{hidden}{deleted}</w:p>"
    found = read(
        body,
        word__header1=f"<w:hdr {NAMES}>{par('Draft of May')}</w:hdr>",
        word__comments=f"<w:comments {NAMES}>{par('Why?')}</w:comments>",
    )
    assert found.content == "# Wheel\n\nnew"
    assert sorted(found.dropped) == [
        ("comment", "Why?"), ("contents", "Wheel 3"), ("hidden text", "for the printer"), ("running head", "Draft of May"),
    ]  # fmt: skip


def test_a_line_of_the_cover_before_the_contents_stays() -> None:
    kind = '<w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
    listed = f"<w:sdt>{kind}<w:sdtContent>{par('Contents')}{par('Wheel 3')}</w:sdtContent></w:sdt>"
    for contents in (listed, par("Wheel 3", "Verzeichnis1")):
        found = read(par("Version 2.1, valid from 14 March 2023") + contents + par("Wheel", "Kapitel") + par("It turns."))
        assert found.content == "Version 2.1, valid from 14 March 2023\n\n# Wheel\n\nIt turns."


def test_separators_never_glue_words() -> None:
    runs = "<w:r><w:t>one</w:t><w:tab/><w:t>two</w:t><w:br/><w:t># three</w:t><w:noBreakHyphen/><w:t>four</w:t></w:r>"
    assert read(f"<w:p>{runs}</w:p>").content == "one two\n\\# three-four"


def test_a_document_without_styles_has_headings_by_the_keys_of_theirs_and_links_are_their_text() -> None:
    found = word_to_markdown(make_docx())
    assert headings(found.content) == [(1, "The Study"), (2, "Methods")]
    assert "We asked many people." in found.content


BODY = st.recursive(
    st.sampled_from([par("a"), par("b", "Kapitel"), item("c", 1), par("d", "Titel"), "<w:p/>", "<w:bookmarkStart/>", "<!-- -->"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: table([[("".join(parts) or "<w:p/>"), "e"], ["f"]])),
    max_leaves=12,
)


@given(st.lists(BODY, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_nesting_keeps_its_words(parts: list[str]) -> None:
    body = "".join(parts)
    found = read(body)
    assert all(found.content.count(letter) >= min(1, body.count(f">{letter}<")) for letter in "abcdef")


def test_a_circle_a_bomb_and_a_deep_nest_end() -> None:
    deep = "".join("<w:tbl><w:tr><w:tc>" for _ in range(60)) + par("inside") + "".join("</w:tc></w:tr></w:tbl>" for _ in range(60))
    assert read(deep).content == "inside"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(11):
            archive.writestr(f"word/{number}.xml", bytes(100_000_000))
    with pytest.raises(NotTakenError):
        word_to_markdown(out.getvalue())
    entity = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><w:document {NAMES}><w:body>{par("a &x; b")}</w:body></w:document>'
    assert word_to_markdown(make_zip({"word/document.xml": entity})).content.split() == ["a", "b"]
