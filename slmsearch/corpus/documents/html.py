"""HTML to Markdown: headings, paragraphs, lists, tables and code stay; navigation around the text is dropped.

Links and emphasis lose their marks: a small model that answers with the bare fact would copy them. So does code in a heading: its section
id would contain them.
"""

import re
from html.entities import html5
from typing import Any

from bs4 import BeautifulSoup, Tag
from bs4.dammit import EncodingDetector
from markdownify import ATX, MarkdownConverter

from slmsearch.corpus.documents.boxes import keep_apart, plain_boxes
from slmsearch.corpus.documents.definitions import lift_definitions
from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.formulas import raise_text
from slmsearch.corpus.documents.grid import write_table
from slmsearch.corpus.documents.html_titles import place_title, read_names
from slmsearch.corpus.documents.inventory import SHOWN_CHARS, Inventory
from slmsearch.corpus.documents.navigation import drop_navigation, find_main_part, has_own_text, trim_edges
from slmsearch.corpus.documents.panels import open_panels
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
"""Maximum nesting depth of elements; the parser takes quadratic time for more."""
STRIPPED = ["a", "b", "strong", "i", "em", "u", "img", "video", "audio", "picture", "del", "s", "mark", "q", "kbd", "samp", "sub"]
_HEADING, _FENCE = "\x01", "\x02"
"""Marks before lines that are headings and fences, until all other lines are escaped; they occur in no text."""
_INTERNAL_DTD = re.compile(r"(?:\s|<\?[^>]*>)*<!DOCTYPE[^<>\[]*\[(.*?)\]\s*>", re.IGNORECASE | re.DOTALL)
_CROSSED_HEADING = re.compile(r"(<h([1-6])\b[^<>]*>)((?:(?!</?h[1-6]\b)[^\x00]){0,2000})</h(?!\2)[1-6]\s*>", re.IGNORECASE)
"""Heading closed by an end tag of another level, which HTML accepts and lxml does not."""
_DECLARED_ENTITY = re.compile(r"<!ENTITY\s+([^\s%&;\"']+)", re.IGNORECASE)
_ENTITY = re.compile(r"&([^\s&;]{1,100};)")
_NO_WIDTH = {0x200B: None, 0xAD: None, 0x2060: None, 0xFEFF: None, 0xA0: " "}
"""Marks of possible word breaks, and no-break spaces."""
_BLANK_LINES = re.compile(r"\n{3,}")


class _Converter(MarkdownConverter):
    """Converter that marks its headings and fences."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._cells: dict[int, str] = {}
        self._numbers: dict[int, int] = {}
        """Next number of each ordered list."""

    def convert_hN(self, n: int, el: Any, text: str, parent_tags: Any) -> str:
        title = one_line(text)
        return f"\n\n{_HEADING}{'#' * n} {title}\n\n" if title and "_inline" not in parent_tags else f" {title} "

    def convert_sup(self, el: Any, text: str, parent_tags: Any) -> str:
        return text if el.find("a") else raise_text(text)

    def convert_pre(self, el: Any, text: str, parent_tags: Any) -> str:
        code = text.strip("\n")
        if "_inline" in parent_tags:  # in a table cell, which has only one line
            return f" {one_line(code)} "
        if not code.strip():
            return ""
        opening, *lines, closing = fenced(code).split("\n")
        return "\n\n" + "\n".join([f"{_FENCE}{opening}", *lines, f"{_FENCE}{closing}"]) + "\n\n"

    def convert_br(self, el: Any, text: str, parent_tags: Any) -> str:
        return " " if "_inline" in parent_tags else "\n"

    def convert_li(self, el: Any, text: str, parent_tags: Any) -> str:
        item = text.strip()
        if not item:
            return "\n"
        if "_inline" in parent_tags:  # in a cell
            return f" {item}; "
        bullet = "- "
        if el.parent is not None and el.parent.name == "ol":
            numbers = [str(value) for value in (el.get("value"), el.parent.get("start")) if value is not None and str(value).isdecimal()]
            number = self._numbers.get(id(el.parent), int(numbers[-1]) if numbers else 1)
            if el.get("value") is not None and numbers:
                number = int(numbers[0])
            self._numbers[id(el.parent)] = number + 1
            bullet = f"{number}. "
        return bullet + item.replace("\n", f"\n{' ' * len(bullet)}") + "\n"

    def convert_list(self, el: Any, text: str, parent_tags: Any) -> str:
        return f" {text.strip().removesuffix(';')} " if "_inline" in parent_tags else str(super().convert_list(el, text, parent_tags))  # type: ignore[misc]

    convert_ul = convert_ol = convert_list

    def convert_td(self, el: Any, text: str, parent_tags: Any) -> str:
        self._cells[id(el)] = text
        return f" {text} "

    convert_th = convert_caption = convert_td

    def convert_tr(self, el: Any, text: str, parent_tags: Any) -> str:
        return text

    def convert_table(self, el: Any, text: str, parent_tags: Any) -> str:
        if "_inline" in parent_tags:  # in a cell of another table
            return f" {text} "
        return f"\n\n{write_table(el, lambda cell: self._cells.get(id(cell), ''))}\n\n"


def html_to_markdown(data: bytes) -> Document:
    """Convert an HTML page; a page without a title gets an empty one.

    Raises:
        NotTakenError: the page holds no text, or cannot be converted.
    """
    document = convert_page(decode_page(data))
    if document is None:
        raise NotTakenError(Reason.INDEX)
    return document


def convert_page(text: str, book: str = "") -> Document | None:
    """Convert an HTML page or a chapter of a book with a title; None if it only links elsewhere.

    Raises:
        NotTakenError: the elements are nested too deeply.
    """
    soup = BeautifulSoup(_CROSSED_HEADING.sub(r"\1\3</h\2>", _without_dtd(text)), "lxml")
    if _depth(soup) > MAX_DEPTH:
        raise NotTakenError(Reason.NESTED, f"more than {MAX_DEPTH} elements inside each other")
    page = Inventory(soup)
    names = read_names(page)
    if names.title.casefold() == book.casefold():
        names = names._replace(title="")
    keep_apart(page)
    open_panels(page)
    drop_navigation(page)
    part = find_main_part(page)
    trim_edges(page, part)
    if not has_own_text(page, part):
        return None
    _plain_code(page, part)
    title = one_line(place_title(names, page, part).translate(_NO_WIDTH))
    plain_boxes(page, part)
    lift_definitions(part)
    content = _convert(part).translate(_NO_WIDTH)
    if title and content and not any(line.startswith("# ") for line in content.split("\n")):
        content = f"# {title}\n\n{content}"
    return Document(title, content, names.metadata, page.dropped, names.title)


def _plain_code(page: Inventory, part: Tag) -> None:
    """Remove line numbers and mark-up from code."""
    for table in part.find_all("table", class_=re.compile(r"highlight(?:table|-table)?$")):
        for tag in (table, *table.find_all(["tbody", "tr", "td", "th"])):
            tag.name = "div"  # beside line numbers, which have been removed
    for box in part.find_all("div", class_="fragment"):
        if all(tag.name == "div" for tag in box.find_all(recursive=False)):  # one line each
            box.name = "pre"
            for line in box.find_all("div"):
                line.name = "span"
                line.append("\n")
    for code in part.find_all(["pre", "code"]):
        if code.name == "pre":
            numbers = _line_numbers(code)
            if numbers:
                page.dropped.append(("line numbers", " ".join(span.get_text().strip() for span in numbers)[:SHOWN_CHARS]))
            for span in numbers:
                span.clear()
        if code.string is None and (code.name == "pre" or code.find(["sup", "sub", "p", "div", "pre"]) is None):
            code.string = code.get_text()


def _line_numbers(code: Tag) -> list[Tag]:
    """Return the elements that number the lines of code: one begins each line, and they count up."""
    found, at_start = list[Tag](), True
    for element in code.descendants:
        if isinstance(element, Tag):
            if at_start and element.name == "span" and element.get_text().strip().isdecimal():
                found.append(element)
                at_start = False
        elif str(element).strip() or "\n" in str(element):
            at_start = "\n" in str(element) and not str(element).rpartition("\n")[2].strip()
    text = code.get_text().strip("\n")
    values = [int(span.get_text()) for span in found]
    is_numbered = len(found) > 1 and len(found) == text.count("\n") + 1 and values == list(range(values[0], values[0] + len(values)))
    return found if is_numbered and sum(map(str.isalnum, text)) > sum(len(span.get_text().strip()) for span in found) else []


def decode_page(data: bytes) -> str:
    """Decode a page: as UTF-8 if it is that, then by the declared encoding, then by a guess."""
    check_not_binary(data)
    declared = EncodingDetector.find_declared_encoding(data, is_html=True)
    if decode_utf8(data) is None and declared and not declared.startswith("utf"):
        try:
            return checked_text(unify_line_ends(data.decode(declared, "replace")))
        except LookupError:
            pass
    return decode_text(data)


def _without_dtd(text: str) -> str:
    """Remove an internal DTD, and references to its entities: HTML has neither and would show both as text."""
    found = _INTERNAL_DTD.match(text)
    if found is None:
        return text
    declared = {f"{name};" for name in _DECLARED_ENTITY.findall(found[1])} - html5.keys()
    return _ENTITY.sub(lambda entity: "" if entity[1] in declared else entity[0], text[found.end() :])


def _depth(soup: BeautifulSoup) -> int:
    """Return the maximum nesting depth, without recursion."""
    deepest, waiting = 0, [(soup, 0)]
    while waiting and deepest <= MAX_DEPTH:
        tag, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in tag.contents if isinstance(child, Tag)]  # type: ignore[misc]
    return deepest


def _convert(part: Tag) -> str:
    converter = _Converter(
        heading_style=ATX,
        bullets="-",
        strip=STRIPPED,
        escape_asterisks=False,
        escape_underscores=False,
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
