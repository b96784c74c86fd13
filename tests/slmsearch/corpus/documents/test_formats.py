"""What each format becomes."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.html import MAX_DEPTH, html_to_markdown
from slmsearch.corpus.documents.reader import EPUB, OFFICE, read_document
from slmsearch.corpus.documents.rst import read_rst
from slmsearch.corpus.documents.skipped import NotTakenError, Reason, printable
from slmsearch.corpus.documents.text import decode_info, decode_text, text_to_markdown
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import split_sections
from tests.slmsearch.corpus.documents.builders import make_zip


def headings(markdown: str) -> list[tuple[int, str]]:
    return [(section.level, section.heading) for section in split_sections(Page("p", "P", markdown))]


def refusal(data: bytes, convert: object = decode_text) -> NotTakenError:
    with pytest.raises(NotTakenError) as raised:
        convert(data)  # type: ignore[operator]
    return raised.value


def test_html_keeps_headings_lists_tables_and_code_and_drops_what_is_around():
    page = b"""<html><head><title>Site - A</title><script>x()</script></head><body><nav>menu</nav><div role="banner">top</div>
    <main><h1>Caf&eacute; <em>A</em><a class="headerlink" href="#a">&para;</a></h1>
    <p>One <a href=x>two</a>.<p># no heading<h2>Trams</h2><ul><li>red<li>blue</ul>
    <table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table><pre># code
```
rest</pre><h3>After</h3><div hidden>secret</div></main><footer>foot</footer></body></html>"""
    title, text, *_ = html_to_markdown(page)
    assert title == "Caf\u00e9 A"
    assert headings(text) == [(1, "Caf\u00e9 A"), (2, "Trams"), (3, "After")]
    assert "One two." in text and "- red\n- blue" in text and "| 1 | 2 |" in text and "\\# no heading" in text
    assert not any(word in text for word in ("menu", "top", "x()", "secret", "foot"))


def test_html_without_a_first_heading_takes_its_title():
    title, text, *_ = html_to_markdown(b"<title>A\n page</title><p>Text<h2>Part</h2>more")
    assert (title, headings(text)) == ("A page", [(1, "A page"), (2, "Part")])


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("<p>Gr\u00fc\u00dfe aus K\u00f6ln".encode("latin-1"), "Gr\u00fc\u00dfe aus K\u00f6ln"),
        ('<meta charset="windows-1251"><p>\u041f\u0440\u0438\u0432\u0435\u0442'.encode("cp1251"), "\u041f\u0440\u0438\u0432\u0435\u0442"),
        ('<meta charset="latin-1"><p>na\u00efve'.encode(), "na\u00efve"),
        ('<meta charset="no-such"><p>na\u00efve'.encode("latin-1"), "na\u00efve"),
        ("<p>t\u00e9xt".encode("utf-16"), "t\u00e9xt"),
    ],
)
def test_html_encodings(data: bytes, found: str):
    assert html_to_markdown(data)[1] == found


@pytest.mark.parametrize("before", ["", "\n", '<?xml version="1.0"?>\n'])
def test_html_shows_nothing_of_an_internal_dtd(before: str):
    dtd = '<!DOCTYPE html [\n<!ENTITY d "drawn">\n<!ENTITY x SYSTEM "file:///etc/hostname">\n<!ENTITY amp "no">\n]>'
    page = f"{before}{dtd}\n<html><body><p>one &d; &x; two &amp; R&D; a[0]]></p></body></html>"
    assert html_to_markdown(page.encode())[1].split() == ["one", "two", "&", "R&D;", "a[0]]>"]
    strict = b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://x/y.dtd"><p>a [b]> c &d;'
    assert html_to_markdown(strict)[1] == "a [b]> c &d;"


def test_many_openings_of_a_dtd_take_no_longer_than_their_length():
    started = time.process_time()
    html_to_markdown(b"<!DOCTYPE html [" + b"<!DOCTYPE html [ ]" * 20_000 + b"<!ENTITY " * 20_000 + b"<p>x")
    html_to_markdown(b"<?" * 20_000 + b"<!DOCTYPE html [" + b"] " * 20_000 + b"<p>x")
    assert time.process_time() - started < 5


def test_html_nested_too_deeply_is_refused_and_unclosed_paragraphs_are_not_nested():
    assert refusal(b"<div>" * (MAX_DEPTH + 10) + b"x", html_to_markdown).reason is Reason.NESTED
    assert html_to_markdown(b"<p>word" * 2000)[1].count("word") == 2000


@pytest.mark.parametrize("suffix", [*OFFICE, *EPUB])
def test_office_documents_that_are_refused(suffix: str, tmp_path: Path):
    def convert(data: bytes) -> None:
        (tmp_path / f"a{suffix}").write_bytes(data)
        read_document(tmp_path / f"a{suffix}", tmp_path)

    assert refusal(b"text", convert).reason is Reason.BINARY
    assert refusal(b"\xd0\xcf\x11\xe0 old", convert).reason is Reason.BINARY
    assert refusal(b"\xd0\xcf\x11\xe0 " + "EncryptedPackage".encode("utf-16-le"), convert).reason is Reason.ENCRYPTED
    assert refusal(b"", convert).reason is Reason.EMPTY
    assert refusal(make_zip({"other.txt": "text"}), convert).reason in (Reason.BINARY, Reason.BROKEN)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-be", "utf-32"])
def test_text_in_usual_encodings(encoding: str):
    text = "K\u00f6ln liegt am Rhein.\r\nEs hat viele Br\u00fccken."
    data = text.encode(encoding)
    if encoding == "utf-16-be":
        data = b"\xfe\xff" + data
    assert decode_text(data) == text.replace("\r\n", "\n")


@pytest.mark.parametrize("broken", [b"\xff", b"\x80", b"\xe4", b"\xc3"])
def test_a_broken_byte_in_utf_8_costs_no_more_than_itself(broken: bytes):
    data = "K\u00f6ln hat Br\u00fccken. Caf\u00e9.".encode()
    assert decode_text(data + broken) == decode_info(data + broken) == data.decode()
    page = b'<meta charset="latin-1"><p>' + broken + data
    assert html_to_markdown(page)[1] == data.decode()


def test_other_encodings_are_guessed():
    russian = "Москва — столица России, город федерального значения. " * 4
    assert decode_text(russian.encode("cp1251")) == russian
    japanese = "トヨタ自動車株式会社は日本の自動車メーカーである。カタカナのテスト、コンピュータ。"
    assert decode_text(japanese.encode("euc_jp")) == japanese, "a third of it could be UTF-8"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.EMPTY),
        (b" \n\t", Reason.EMPTY),
        (b"... --- ...", Reason.NO_TEXT),
        (bytes(range(256)) * 20, Reason.BINARY),
        (b"\x89PNG\r\n\x1a\n", Reason.BINARY),
        (b"%PDF-1.4", Reason.BINARY),
    ],
)
def test_what_is_no_text_is_refused(data: bytes, reason: Reason):
    assert refusal(data).reason is reason


def test_plain_text_has_no_headings():
    text = text_to_markdown("# not one\n\n```\n# nor this\n\nEnd")
    assert headings(text) == [(0, "Full Page")]
    assert "not one" in text


def test_rst_titles_become_headings():
    text = read_rst("=====\nTitle\n=====\n\nText.\n\nPart\n----\n\nBody\n\nDeep\n~~~~\n\nPart two\n--------\n# text", lambda _: None)[1]
    assert headings(text) == [(1, "Title"), (2, "Part"), (3, "Deep"), (2, "Part two")]
    assert "\\# text" in text


@given(st.text(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_text_keeps_its_words(text: str):
    try:
        decoded = decode_text(text.encode("utf-8", "replace"))
    except NotTakenError:
        return
    for convert in (text_to_markdown, lambda text: read_rst(text, lambda _: None)[1]):
        split_sections(Page("p", "P", convert(decoded)))
    assert [section.level for section in split_sections(Page("p", "P", text_to_markdown(decoded)))] == [0]


@given(
    st.lists(
        st.sampled_from(["<h1>", "</h1>", "<p>", "<pre>", "</pre>", "<table>", "<td>", "<li>", "# x", "```", "a", "&#0;", "<!--", "\x01"])
    )
)
@settings(max_examples=60, deadline=None)
def test_any_html_is_read_or_refused(parts: list[str]):
    try:
        _, text, *_ = html_to_markdown("\n".join(parts).encode())
    except NotTakenError:
        return
    assert "\x01" not in text and "\x02" not in text


@given(st.text(alphabet=st.characters(), max_size=50))
def test_names_can_be_printed(text: str):
    assert printable(text).isprintable()
