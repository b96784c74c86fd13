"""HTML to Markdown: headings, paragraphs, lists, tables and code stay, everything around the text goes.

Links and emphasis lose their marks: a small model that answers with the bare fact would copy them. So does code in a heading: its
section id would hold them.
"""

import re
from html.entities import html5
from typing import Any

from bs4 import BeautifulSoup, Tag
from bs4.dammit import EncodingDetector
from markdownify import ATX, MarkdownConverter

from slmsearch.corpus.documents.definitions import lift_definitions
from slmsearch.corpus.documents.navigation import HEADINGS, drop_navigation, find_main_part, has_own_text
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import (
    check_not_binary,
    checked_text,
    decode_text,
    decode_utf8,
    escape_heading,
    fenced,
    one_line,
    unify_line_ends,
)

MAX_DEPTH = 400
"""Elements inside each other; the parser takes quadratic time for more."""
STRIPPED = ["a", "b", "strong", "i", "em", "u", "img", "video", "audio", "picture", "del", "s", "mark", "q", "kbd", "samp", "sub"]
_HEADING, _FENCE = "\x01", "\x02"
"""Stand before the lines that are meant as headings and fences until all others are escaped; no text holds them."""
_INTERNAL_DTD = re.compile(r"(?:\s|<\?[^>]*>)*<!DOCTYPE[^<>\[]*\[(.*?)\]\s*>", re.IGNORECASE | re.DOTALL)
_DECLARED_ENTITY = re.compile(r"<!ENTITY\s+([^\s%&;\"']+)", re.IGNORECASE)
_ENTITY = re.compile(r"&([^\s&;]{1,100};)")
_NOTE_TITLE = re.compile(r"^(?:admonition-title|sidebar-title|topic-title|label)$")
"""Classes of titles of notes and of numbers of footnotes."""
_EXPONENT = re.compile(r"-?(?:\d+|[a-z])")
_BLANK_LINES = re.compile(r"\n{3,}")


class _Converter(MarkdownConverter):
    """Marks what it means as a heading or a fence."""

    def convert_hN(self, n: int, el: Any, text: str, parent_tags: Any) -> str:
        title = one_line(text)
        return f"\n\n{_HEADING}{'#' * n} {title}\n\n" if title and "_inline" not in parent_tags else f" {title} "

    def convert_sup(self, el: Any, text: str, parent_tags: Any) -> str:
        return f"^{text}" if _EXPONENT.fullmatch(text) and not el.find("a") else text

    def convert_pre(self, el: Any, text: str, parent_tags: Any) -> str:
        code = text.strip("\n")
        if "_inline" in parent_tags:  # of a table, which has no room for lines
            return f" {one_line(code)} "
        if not code.strip():
            return ""
        opening, *lines, closing = fenced(code).split("\n")
        return "\n\n" + "\n".join([f"{_FENCE}{opening}", *lines, f"{_FENCE}{closing}"]) + "\n\n"


def html_to_markdown(data: bytes) -> tuple[str, str]:
    """Convert a page of HTML.

    Returns:
        Its title, empty where it has none, and its Markdown.

    Raises:
        NotTakenError: it holds no text, or cannot be converted.
    """
    soup = BeautifulSoup(_without_dtd(_decode(data)), "lxml")
    if _depth(soup) > MAX_DEPTH:
        raise NotTakenError(Reason.NESTED, f"more than {MAX_DEPTH} elements inside each other")
    title = one_line(soup.title.get_text()) if soup.title else ""
    drop_navigation(soup)
    part = find_main_part(soup)
    if not has_own_text(part):
        raise NotTakenError(Reason.INDEX)
    _prepare(part)
    text = _convert(part)
    first = next((line for line in text.split("\n") if line.startswith("# ")), None)
    if first is None and title:
        return title, f"# {title}\n\n{text}" if text else ""
    return (first.removeprefix("# ") if first else ""), text


def _decode(data: bytes) -> str:
    """Decode: what is UTF-8 is UTF-8, whatever it declares; then what it declares; then a guess."""
    check_not_binary(data)
    declared = EncodingDetector.find_declared_encoding(data, is_html=True)
    if decode_utf8(data) is None and declared and not declared.startswith("utf"):
        try:
            return checked_text(unify_line_ends(data.decode(declared, "replace")))
        except LookupError:
            pass
    return decode_text(data)


def _without_dtd(text: str) -> str:
    """Remove an internal DTD, and what refers to its entities: HTML has neither, and would show both as text."""
    found = _INTERNAL_DTD.match(text)
    if found is None:
        return text
    declared = {f"{name};" for name in _DECLARED_ENTITY.findall(found[1])} - html5.keys()
    return _ENTITY.sub(lambda entity: "" if entity[1] in declared else entity[0], text[found.end() :])


def _depth(soup: BeautifulSoup) -> int:
    """Return how many elements lie inside each other at most; without recursion."""
    deepest, waiting = 0, [(soup, 0)]
    while waiting and deepest <= MAX_DEPTH:
        tag, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in tag.contents if isinstance(child, Tag)]  # type: ignore[misc]
    return deepest


def _prepare(part: Tag) -> None:
    """Bring to plain paragraphs and headings what Markdown has no form for."""
    for table in part.find_all("table", class_=re.compile(r"highlight(?:table|-table)?$")):
        for tag in (table, *table.find_all(["tbody", "tr", "td", "th"])):
            tag.name = "div"  # code beside line numbers, which are gone
    for heading in part.find_all(HEADINGS):
        for code in heading.find_all("code"):
            code.unwrap()
    for quote in part.find_all("blockquote"):
        if quote.find("div", recursive=False) is not None:
            quote.name = "div"  # docutils indents so
    for title in part.find_all(class_=_NOTE_TITLE):
        text = one_line(title.get_text())
        following = title.find_next_sibling()
        if text and following is not None and following.name == "p":
            title.decompose()
            following.insert(0, f"{text.rstrip(':')}: ")
    lift_definitions(part)


def _convert(part: Tag) -> str:
    converter = _Converter(
        heading_style=ATX,
        bullets="-",
        strip=STRIPPED,
        escape_asterisks=False,
        escape_underscores=False,
        table_infer_header=True,
        # A line end is a space.
        wrap=True,
        wrap_width=None,
    )
    lines = []
    inside = False
    for line in str(converter.convert_soup(part)).split("\n"):
        if _FENCE in line:
            inside = not inside
        plain = line.replace(_HEADING, "").replace(_FENCE, "")
        meant = inside or line.lstrip().startswith((_HEADING, _FENCE)) or _FENCE in line
        lines.append(plain.rstrip() if meant else escape_heading(plain.rstrip()))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()
