"""Man pages and info files as Markdown."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.info import read_info
from slmsearch.corpus.documents.man import read_man
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import split_sections
from tests.slmsearch.corpus.documents.builders import read

HEAD = ".TH MILL 1 2024-03-01\n"
INFO = """This is mill.info.

\x1f
File: mill.info,  Node: Top,  Next: Wheel,  Up: (dir)

The Mill
********

It grinds. *Note Wheel::, and *note the roof: Roof.

* Menu:

* Wheel::   what turns
Other things

* Roof::    what covers
* Index::

\x1f
File: mill.info,  Node: Wheel,  Prev: Top,  Up: Top

1 Wheel
=======

# of oak

\x1f
File: mill.info,  Node: Index,  Up: Top

Index
*****

\x00\x08[index\x00\x08]
* Menu:

* oak: Wheel. (line 6)

\x1f
Tag Table:
Node: Top\x7f20
\x1f
End Tag Table
"""


def man(text: str) -> str:
    return read_man(HEAD + text, lambda _: None)[1].removeprefix("# MILL(1)").strip()


def test_a_page_has_its_name_its_section_and_its_description():
    title, text, metadata, *_ = read_man(
        f"{HEAD}.SH NAME\nmill, grind \\- turn corn\ninto flour\n.SH OPTIONS\n.SS Of the wheel\ntext", lambda _: None
    )
    assert (title, metadata) == ("mill(1)", {"date": "2024-03-01", "description": "turn corn into flour"})
    headings = [section.heading for section in split_sections(Page("p", title, text))]
    assert headings == ["mill(1)", "NAME", "OPTIONS", "Of the wheel"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (".TP\n.BR \\-c \", \" \\-\\-coarse\nGrind \\fBcoarse\\fR.", "-c, --coarse\nGrind coarse."),
        (".IP \\(bu 2\none\n.IP \\(bu\ntwo", "- one\n\n- two"),
        (".SH\nOn wheels\n.PP\n#1 is oak", "## On wheels\n\n\\#1 is oak"),
        (".nf\nturn \\\\\n  .5\n.fi", "```\nturn \\\n  .5\n```"),
        (".TS\ntab(;);\nl l.\npart;price\n_\nwheel;T{\nseven\nhundred\nT}\n.TE",
         "| part | price |\n| --- | --- |\n| wheel | seven hundred |"),
        (".de1 WHEEL\n.  RS \\\\$1\n.nr x +1\n..\n.de LINK\n\\fI\\\\$2\\fP <\\\\$1>\\\\$3\n..\n.WHEEL 3\ntext\n.LINK a.b \"the yard\" .",
         "text\nthe yard <a.b>."),
        (".LOOK blue < >\n.SH NAME\nmill", "## NAME\n\nmill"),
        (".IP \\(em 2\none", "- one"),
        (".UR http://a.example\nthe yard\n.UE .", "the yard\n<http://a.example>."),
        (".de XY\nhidden\n..\n.if t paper\n.ie n kept\n.el lost\n.if n \\{\\\nmore\n.\\}", "kept\nmore"),
        (".ds W oak\\-wood\nof \\*W and \\*[W] \\(co \\[u00FC]\\(:o", "of oak-wood and oak-wood \u00a9 \u00fc\u00f6"),
        ("one\\\" comment\n.\\\" another\n'\\\" third", "one"),
    ],
)  # fmt: skip
def test_macros_of_man(text: str, wanted: str):
    assert man(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (".Nm\n.Op Fl c Ns Ar size\n.Op Fl v\n.Ar", "mill\n[-csize]\n[-v]\nfile ..."),
        (".Xr grind 1 ,\n.Xr sieve 8 .", "grind(1),\nsieve(8)."),
        (".Bl -tag\n.It Fl c\nCoarse.\n.El\n.Bl -bullet\n.It\none\n.El", "-c\nCoarse.\n\n- one"),
        (".Bd -literal\nturn  it\n.Ed", "```\nturn  it\n```"),
        ('.Fn turn "int n" .', "turn(int n)."),
        (".Sm off\n.TS\nl l.\npart\tprice\nwheel\t7\n.TE\nend", "| part | price |\n| --- | --- |\n| wheel | 7 |\n\nend"),
        (
            '.de wheel\n.Bl -tag\n.It Sy Part\n"\\\\$1"\n.if "\\\\$2"" of oak\n.ie "\\\\$2"7" seven\n.el \\\\$2 \\\\fBteeth\\\\fP\n'
            '.if !"\\\\$2"7" \\{\n.It Sy More\n.\\}\n.El\n..\n.wheel gate 7\n.wheel stone 8\n.wheel floor ""',
            'Part\n"gate"\nseven\n\nPart\n"stone"\n8 teeth\n\nMore\n\nPart\n"floor"\nof oak\nteeth\n\nMore',
        ),
        (".In mill.h\n.Dq the wheel", "#include <mill.h>\n\u201cthe wheel\u201d"),
    ],
)
def test_macros_of_mdoc(text: str, wanted: str):
    page = f".Dd March 1, 2024\n.Dt MILL 1\n.Os\n.Sh NAME\n.Nm mill\n.Nd turn corn\n.Sh X\n{text}"
    title, content, metadata, *_ = read_man(page, lambda _: None)
    assert (title, metadata) == ("mill(1)", {"date": "March 1, 2024", "description": "turn corn"})
    assert content.partition("## X\n\n")[2].replace("\\#", "#") == wanted


def test_info_is_read_without_menus_and_indices():
    title, text, _, dropped, _ = read_info(INFO, lambda _: None)
    assert (title, text) == ("The Mill", "# The Mill\n\nIt grinds. Wheel, and the roof.\n\n## 1 Wheel\n\n\\# of oak")
    assert [kind for kind, _ in dropped] == ["contents", "index"]


def test_divided_info_and_other_files_of_these_names(tmp_path: Path):
    (tmp_path / "mill.info").write_text("x\n\x1f\nIndirect:\nmill.info-1: 10\n\x1f\nTag Table:\n")
    (tmp_path / "mill.info-1").write_text(INFO)
    (tmp_path / "a.1").write_text(f"{HEAD}text of the mill")
    (tmp_path / "b.1").write_text(".so a.1\n")
    (tmp_path / "app.log.2").write_text("no manual")
    (tmp_path / "module.info").write_text("name = mill")
    (tmp_path / "note.md").write_text("neighbour")
    pages, skipped = read(tmp_path)
    assert set(pages) == {"mill", "a", "b", "note"} and pages["mill"].title == "The Mill"
    assert "text of the mill" in pages["b"].content
    assert {item.path for item in skipped if item.reason == Reason.KIND} == {"app.log.2", "module.info", "mill.info-1"}


@pytest.mark.parametrize(
    "piece",
    [
        ".if n ",
        ".ie t \\{\n",
        "\\*(aa",
        ".de x\n",
        "\\f",
        '"',
        ".TS\n",
        "\\[",
        ".so a\n",
        ".ds a \\*a\\*a\n\\*a\n",
        ".de a\n.a \\$1\\$1\n..\n.a b\n",
    ],
)
def test_monotonous_and_cyclic_pages_are_read(piece: str):
    assert isinstance(read_man(HEAD + "x\n" + piece * (40_000 // len(piece)), lambda _: f"{HEAD}.so a\n")[1], str)


PIECES = [
    ".SH",
    ".SH a",
    ".TP",
    ".nf",
    ".fi",
    ".TS",
    "l.",
    "T{",
    ".TE",
    ".if n \\{",
    ".\\}",
    "word",
    ".Bl",
    ".It",
    ".Bd -literal",
    ".Dd x",
    ".Op Fl",
    "```",
    "# a",
    "",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
@settings(max_examples=200, deadline=None)
def test_any_lines_leave_no_fence_open(lines: list[str]):
    text = read_man(HEAD + "\n".join(lines), lambda _: None)[1]
    assert split_sections(Page("p", "P", f"{text}\n\n# After"))[-1].heading == "After"


@given(st.text("\x1f\nFile: Node*=-[]\x00\x08:,a", max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_info_is_read_or_refused(text: str):
    try:
        assert read_info(f"\x1f\nFile: a, Node: b\n{text}c", lambda _: None)[1].strip()
    except NotTakenError as error:
        assert error.reason in (Reason.KIND, Reason.NO_TEXT, Reason.EMPTY, Reason.BINARY)
