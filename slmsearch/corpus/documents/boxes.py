"""Boxes of an HTML page as plain blocks: notes, layout tables, lists of sections. Words that only styles separate get spaces."""

import re

from bs4 import Tag
from bs4.element import NavigableString

from slmsearch.corpus.documents.formulas import SIGNS, write_formula
from slmsearch.corpus.documents.inventory import HEADINGS, Inventory, class_words, next_element
from slmsearch.corpus.documents.text import one_line

NOTE_WORDS = frozenset(
    {"note", "warning", "tip", "caution", "important", "danger", "admonition", "hint", "attention", "callout", "alert", "sidebar", "notice"}
)
"""Words in the classes of boxes whose heading is a label."""
_PLAIN = ("aside", "details", "summary", "figure", "header", "footer", "center", "address", "form", "fieldset", "legend",
    "main", "hgroup", "noscript", "menu", "dir", "search", "label", "option", "figcaption", "optgroup", "picture")  # fmt: skip
"""Block elements that the converter treats as inline text."""
_NOTE_TITLE = re.compile(r"^(?:admonition-title|admonition-heading|sidebar-title|topic-title|label)$")
"""Classes of titles of notes and of numbers of footnotes."""
_MARK = re.compile(r"[\[(]?(?:\d{1,3}|[a-z]{1,2}|[*\u2020\u2021\u00a7]+)[\])]?", re.IGNORECASE)
_BOXED = ("code", "kbd", "samp", "a", "span", "label", "button", "tt", "mark", "abbr", "small", "b", "strong")
"""Inline elements that pages may place side by side as boxes."""
_CODE = ("pre", "code", "samp", "kbd")
_INLINE_BLOCKS = frozenset({"p", "div", "ul", "ol", "li", "dl", "dt", "dd", "table", "pre", "blockquote", "section", "article", *HEADINGS})


def plain_boxes(page: Inventory, part: Tag) -> None:
    """Replace elements without a Markdown form by plain paragraphs and headings."""
    for name in _PLAIN:
        for tag in page.all([name]):
            tag.name = "div" if name != "label" or tag.find_parent("p") is None else "span"
    for table in part.find_all("table"):
        if table.name == "table" and _is_layout(table):
            _to_blocks(table)
    for tag in page.all(["div", "section", "article"]):
        _gather_own_text(page, tag)
    for heading in part.find_all(HEADINGS):
        _place_heading(heading)
    for quote in part.find_all("blockquote"):
        if quote.find("div", recursive=False) is not None and quote.find(["p", "cite"], recursive=False) is None:
            quote.name = "div"  # docutils' indentation
    for title in part.find_all(class_=_NOTE_TITLE):
        _label_note(title)


def _gather_own_text(page: Inventory, section: Tag) -> None:
    """Move a section's own text before its subsections: after them it would belong to the last one."""
    level = _level(section)
    children = [child for child in section.children if isinstance(child, Tag)] if level else []
    inner = next((child for child in children if _level(child) > level and page.letters(child) > page.letters(_first(child))), None)
    if inner is None:
        return
    for child in children[children.index(inner) + 1 :]:
        if page.letters(child) and child.name not in HEADINGS and child.find(HEADINGS) is None:
            inner.insert_before(child.extract())


def _first(section: Tag) -> Tag:
    return next((child for child in section.children if isinstance(child, Tag)), section)


def _level(section: Tag) -> int:
    """Return the level of the heading that begins a section; 0 if another element begins it."""
    first = _first(section)
    return int(first.name[1]) if section.name in ("div", "section", "article") and first.name in HEADINGS else 0


def _place_heading(heading: Tag) -> None:
    """Move a heading out of boxes, with its surroundings as blocks; turn the heading of a note or of a data table's cell into text."""
    if not heading.get_text(strip=True):
        heading.decompose()
        return
    for code in heading.find_all("code"):
        code.unwrap()
    box = _note_of(heading)
    if box is not None:
        _label_note(heading)
        return
    for parent in list(heading.parents):
        if parent.name == "table":  # a data table: layout tables are blocks by now
            heading.name = "div"
            return
        if parent.name == "li":
            parent.name = "div"
            if parent.parent is not None and parent.parent.name in ("ul", "ol"):
                _to_divs(parent.parent)
        elif parent.name == "a" or parent.name in ("summary", "span", "b", "strong", "em", "i", "font", "p", "label"):
            parent.name = "div"


def _to_divs(listed: Tag) -> None:
    """Convert a list and its items to blocks."""
    listed.name = "div"
    for item in listed.find_all("li", recursive=False):
        item.name = "div"


def _note_of(heading: Tag) -> Tag | None:
    """Return the note that a heading is the title of."""
    for parent in heading.parents:
        if parent.name in ("body", "main", "article", "[document]", "td"):
            return None
        if parent.name == "blockquote":
            return parent
        classes = {*parent.get_attribute_list("class")}  # the id of a section is made of its heading
        words = classes if parent.name == "section" or "section" in classes else class_words(parent)
        is_note = parent.get("role") in ("note", "doc-tip", "doc-notice", "alert") or NOTE_WORDS & words
        if is_note and len(parent.find_all(HEADINGS)) == 1:
            before = heading.find_all_previous(string=True, limit=40)
            return None if any(text.strip() and parent in text.parents for text in before) else parent
    return None


def _label_note(title: Tag) -> None:
    """Put the title of a note, or the number of a footnote, before the paragraph that follows it."""
    text = one_line(title.get_text())
    following = next_element(title)
    if text and following is not None and (following.name == "p" or (following.name == "div" and not following.find(_INLINE_BLOCKS))):
        title.decompose()
        following.insert(0, f"{text.rstrip(':')}: ")
    elif title.name in HEADINGS:
        title.name = "p"


def _is_layout(table: Tag) -> bool:
    """Return True for a table that only places blocks: it declares so, or has no headers and holds headings, tables, long code or one cell
    a row."""
    if table.get("role") in ("presentation", "none"):
        return True
    if table.find("caption") is not None:
        return False
    own = [cell for cell in table.find_all(["td", "th"]) if cell.find_parent("table") is table]
    if any(cell.name == "th" for cell in own):
        return False
    rows = {id(cell.parent) for cell in own}
    full = [id(cell.parent) for cell in own if cell.get_text(strip=True)]
    if len(own) <= len(rows) or (full and len(full) == len(set(full))):
        return True
    for cell in own:
        if len(rows) == 1 and len([block for block in cell.find_all(_INLINE_BLOCKS) if block.find(_INLINE_BLOCKS) is None]) > 1:
            return True
        if cell.find(["table", "hr", *HEADINGS]) is not None:
            return True
        if any(code.get_text().strip().count("\n") > 2 for code in cell.find_all("pre")):
            return True
    return False


def _to_blocks(table: Tag) -> None:
    """Convert a table's rows and cells to blocks; nested tables stay."""
    for row in table.find_all("tr"):
        if row.find_parent("table") is table and row.find(_INLINE_BLOCKS) is None:
            row.name = "p"
            for cell in row.find_all(["td", "th"], recursive=False):
                cell.name = "span"
                cell.append(" ")
    for tag in (table, *table.find_all(["thead", "tbody", "tfoot", "tr", "td", "th", "caption", "colgroup"])):
        if tag is table or tag.find_parent("table") is None or _nearest(tag, table):
            tag.name = "div"


def _nearest(tag: Tag, table: Tag) -> bool:
    return next(parent for parent in tag.parents if parent.name == "table" or parent is table) is table


def keep_apart(page: Inventory) -> None:
    """Insert spaces where only layout separates words: line breaks, cells, boxes side by side. Put brackets around marks of notes."""
    for tag in page.all(["br"]):
        if tag.find_parent("pre") is not None:
            tag.name, tag.string = "span", "\n"
        else:
            tag.string = " "
    for tag in page.all(["rt"]):
        if tag.find_previous_sibling("rp") is None:
            tag.insert(0, "(")
            tag.append(")")
    for tag in page.all(["math"]):
        _write_formula(page, tag)
    for tag in page.all(_BOXED):
        following = tag.next_sibling
        if isinstance(following, Tag) and following.name == tag.name and tag.attrs.get("class") == following.attrs.get("class"):
            _separate(tag, following)
    for tag in page.all(["sup"]):
        link = tag.find("a", href=True) or tag.find_parent("a", href=True)
        if isinstance(link, Tag):
            _bracket(tag, link)
    for tag in page.all(["a"]):
        if "noteref" in f"{tag.get('role')} {tag.get('epub:type')}" and tag.find_parent("sup") is None and tag.find("sup") is None:
            _bracket(tag, tag)


def _separate(tag: Tag, following: Tag) -> None:
    if tag.name == "span" and not tag.get("class"):
        return
    if tag.name not in ("code", "kbd", "samp") and tag.find_parent(list(_CODE)) is not None:
        return
    if tag.find_parent(["pre", "dt"] if tag.name == "span" else ["pre"]) is not None:
        return
    left, right = tag.get_text(), following.get_text()
    if len(left) > 1 and len(right) > 1 and left[-1].isalnum() and (right[0].isalnum() or right[0] == "-"):
        tag.append(" ")


def _bracket(tag: Tag, link: Tag) -> None:
    """Write a mark that links to a note of this page as [1], so that it is not read as a digit of the word before it."""
    text = tag.get_text().strip()
    if "#" in str(link["href"]) and text and _MARK.fullmatch(text) and text[0] not in "[(":
        tag.clear()
        tag.append(NavigableString(f"[{text}]"))


def _write_formula(page: Inventory, math: Tag) -> None:
    """Replace MathML by its TeX if the page includes it, else by its text with signs between numbers."""
    note = math.find("annotation", encoding="application/x-tex")
    text = note.get_text() if isinstance(note, Tag) else str(math.get("alttext", ""))
    if not text.strip():
        for extra in math.find_all(["annotation", "annotation-xml"]):
            page.drop(extra)
        for tag in reversed(math.find_all(list(SIGNS))):  # from the inside
            parts = [one_line(part.get_text(" ")) for part in tag.find_all(True, recursive=False)]
            parts = parts[::-1] if tag.name == "mroot" else [" ".join(parts)] if tag.name == "msqrt" else parts
            tag.string = write_formula(tag.name, parts)
        text = math.get_text(" ")
    math.clear()
    math.name = "code" if "\\" in text else "span"
    math.append(NavigableString(one_line(text)))
