"""Books: chapters in the order of reading, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.epub import epub_to_markdown
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from tests.slmsearch.corpus.documents.builders import make_epub, make_zip

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile full-path="O/c.opf"/></rootfiles></container>'
)
LONG = "The mill stands on the river and grinds the corn of nine villages."


def make_book(chapters: dict[str, str], extra: dict[str, str] | None = None) -> bytes:
    items = "".join(f'<item id="i{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(chapters))
    spine = "".join(f'<itemref idref="i{n}"/>' for n in reversed(range(len(chapters))))
    names = "<dc:title>Of Mills</dc:title><dc:creator>A. Smith</dc:creator><dc:date>1871</dc:date>"
    opf = f'<package xmlns="o" xmlns:dc="d"><metadata>{names}</metadata><manifest>{items}</manifest><spine>{spine}</spine></package>'
    files = {f"O/{name.replace('%20', ' ')}": f"<html><body>{body}</body></html>" for name, body in chapters.items()}
    return make_zip({"META-INF/container.xml": CONTAINER, "O/c.opf": opf, **files, **(extra or {})})


def test_chapters_stand_in_the_order_of_the_spine_with_tables_and_notes():
    table = "<table><tr><th rowspan='2'>a</th><th>b</th></tr><tr><td>1</td></tr></table>"
    book = epub_to_markdown(
        make_book(
            {"b%20two.xhtml": f"<h1>Two</h1><p>{LONG}</p>{table}", "a.xhtml": f"<h1>One</h1><p>{LONG}<sup><a href='n#1'>1</a></sup></p>"}
        )
    )
    assert book.content.startswith(f"# One\n\n{LONG}[1]\n\n# Two\n\n{LONG}")
    assert (book.title, dict(book.metadata)) == ("Of Mills", {"author": "A. Smith", "date": "1871"})


def test_chapters_that_are_called_as_the_book_is_have_their_own_headings_and_marks_of_notes_stay_apart():
    mark = "<a epub:type='noteref' href='#n'>1</a>"
    first = f"<title>Of Mills</title><h1>1. The wheel</h1><p>{LONG}{mark}</p><aside epub:type='footnote' id='n'>Moe, p. 3.</aside>"
    book = epub_to_markdown(
        make_book({"c.xhtml": f"<title>Of mills</title><p>{LONG}</p>", "b.xhtml": "<h1>2. The roof</h1>x", "a.xhtml": first})
    )
    assert book.content == f"# 1. The wheel\n\n{LONG}[1]\n\nMoe, p. 3.\n\n# 2. The roof\n\nx\n\n{LONG}"


def test_contents_are_left_out_and_listed():
    links = "<h1>Contents</h1><ul><li><a href='a.xhtml'>The first chapter</a></li><li><a href='b.xhtml'>The second</a></li></ul>"
    book = epub_to_markdown(make_book({"a.xhtml": f"<p>{LONG}</p>", "toc.xhtml": links}))
    assert book.content == LONG and list(book.dropped) == [("contents", "O/toc.xhtml")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (make_zip({"x": "y"}), Reason.BROKEN),
        (make_zip({"META-INF/container.xml": "<a"}), Reason.BROKEN),
        (make_zip({"META-INF/container.xml": CONTAINER}), Reason.BROKEN),
        (make_book({"a.xhtml": ""}), Reason.EMPTY),
        (make_book({"a.xhtml": "x"}, {"META-INF/encryption.xml": "<e><EncryptionMethod Algorithm='aes'/></e>"}), Reason.ENCRYPTED),
    ],
)
def test_what_is_refused(data: bytes, reason: Reason):
    with pytest.raises(NotTakenError) as raised:
        epub_to_markdown(data)
    assert raised.value.reason is reason


def test_hidden_fonts_are_no_encryption():
    hidden = "<e><EncryptionMethod Algorithm='http://www.idpf.org/2008/embedding'/></e>"
    assert epub_to_markdown(make_book({"a.xhtml": LONG}, {"META-INF/encryption.xml": hidden})).content == LONG


@given(st.integers(0, len(make_epub()) - 23))
@settings(max_examples=60, deadline=None)
def test_a_truncated_book_is_refused(length: int):
    data = make_epub()[:length]
    with pytest.raises(Exception):  # noqa: B017  - the reader makes a named skip of any
        epub_to_markdown(data)
