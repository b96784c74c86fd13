"""Separation of an HTML page's text from its navigation: menus, tables of contents, breadcrumbs, permalinks, line numbers.

Navigation is recognised by structure: ARIA roles, links named `prev` or `next`, lists of links to places on the page, blocks of links alone
before and after the text. Names of classes count only for blocks with little text outside their links.
"""

import re
from collections.abc import Iterator

from bs4 import Tag
from bs4.element import NavigableString, PageElement

from slmsearch.corpus.documents.inventory import HEADINGS, Inventory, class_words, count_letters, next_element, previous_element
from slmsearch.corpus.documents.text import CONTENTS_LABEL

# Not `head`: without a `<body>` the parser puts unknown elements, such as `<main>`, into it.
SILENT = ["title", "script", "style", "template", "iframe", "object", "hr", "input"]
DROPPED = {
    "nav": "navigation", "noscript": "noscript", "svg": "drawing", "select": "control", "textarea": "control", "dialog": "dialog",
}  # fmt: skip
"""Element name -> kind of the dropped part."""
DROPPED_ROLES = (
    "navigation",
    "banner",
    "search",
    "contentinfo",
    "dialog",
    "alertdialog",
    "menu",
    "menubar",
    "toolbar",
    "doc-toc",
    "doc-pagelist",
)
DROPPED_CLASSES = frozenset({
    "sphinxsidebar", "related", "toctree-wrapper", "headerlink", "linenos", "linenodiv", "md-source-file", "hash-link", "sr-only",
    "visually-hidden", "line-numbers-rows", "noprint",
})  # fmt: skip
THIN_WORDS = frozenset({
    "nav", "navbar", "navigation", "navheader", "navfooter", "navpanel", "docnav", "breadcrumb", "breadcrumbs", "navpath", "toc", "menu",
    "sidebar", "pagination", "pager", "footer", "printfooter", "catlinks", "skip",
})  # fmt: skip
"""Words in classes and ids of blocks that are dropped if they have little text outside their links."""
INDEX = frozenset({"genindex-jumpbox", "genindextable", "modindex-jumpbox", "indextable", "contentstable"})
"""Classes of elements that only an index or a front page has."""
LINKS_FRAC = 0.85
"""Share of letters in links from which a page is an index."""
THIN_LETTERS = 160
"""Maximum number of letters outside links in a menu."""
MAX_LABEL_LETTERS = 30
"""Maximum number of letters in a label above contents."""
_ROLES_OF_NOTES = ("note", "doc-footnote", "doc-endnotes", "doc-tip", "doc-notice")
_NEIGHBOURS = frozenset({"prev", "previous", "next", "up", "home", "start", "contents", "index", "top"})
_BLOCKS = frozenset({"div", "section", "article", "header", "footer", "aside", "p", "ul", "ol", "dl", "table", "center", "address", "pre",
    "blockquote", "form", "figure", "main", *HEADINGS})  # fmt: skip
_MARKS = re.compile(r"[\s#^\u00b6\u00a7\u221e\u200b\u2191\u21a9\ufe0e\ufe0f\U0001f517]*")
_RESULTS = "search-results"
_EDIT = re.compile(r"action=edit|/_?edit(?:/|$)|/blob/[^?#]*\.(?:md|mdx|rst|adoc|txt|ipynb)$")
_DONE = r"(?:generated|modified|updated|built|rendered|edited|created|powered|exported)"
_STAMP = re.compile(
    rf"^\W*(?:this )?(?:page|document|file|site)\s+(?:was )?(?:last )?{_DONE} (?:on|by|with|using|at|from)\b"
    r"|^\W*(?:generated|modified|updated|rendered|exported) (?:on|at)\b.*\d|^\W*last (?:modified|updated|edited|changed|generated)\b",
    re.IGNORECASE,
)
_MAYBE_STAMP = re.compile(rf"^\W*(?:was )?{_DONE} (?:on|by|with|using|at|from)\b", re.IGNORECASE)
"""Beginning of a stamp, or of a sentence about the page's subject."""
_LAST = re.compile(r"\blast (?:modified|updated|edited|changed)\b", re.IGNORECASE)
_TRAIL = re.compile(r"(?:[^>\u00bb\u203a/\u2192]+[>\u00bb\u203a/\u2192]\s*){2}")
"""Breadcrumbs: names with marks between them."""
_TITLE = re.compile(r"^title(?:page)?$")
_EXTERNAL = re.compile(r"(?:https?:)?//")


def drop_navigation(page: Inventory) -> None:
    """Remove navigation anywhere on the page."""
    for tag in page.all(["form"]):
        if tag.find(["input", "textarea", "select"]) is not None and _says_little(page, tag):
            page.drop(tag, "control")
    for name in SILENT:
        for tag in page.all([name]):
            page.drop(tag)
    for tag in page.all(["svg"]):
        _keep_words(tag)
    for name, kind in DROPPED.items():
        for tag in page.all([name]):
            page.drop(tag, kind)
    for tag in page.with_role(*DROPPED_ROLES):
        page.drop(tag, "navigation")
    for tag in page.all(["a"]):
        _drop_link(page, tag)
    for tag in page.all(["ul"]):
        links = tag.find_all("a", href=True)
        if len(links) > 1 and all(link.has_attr("hreflang") for link in links) and not page.unlinked(tag):
            page.drop(_with_label(page, tag), "navigation")  # links to the page in other languages
    for tag in list(page.everything()):
        if not page.is_gone(tag) and tag.attrs and tag.parent is not None and tag.name not in ("html", "body", "main"):
            kind = _kind(page, tag)
            if kind:
                page.drop(tag, kind)
    _drop_contents(page)


def _keep_words(drawing: Tag) -> None:
    """Turn the words of a drawing, such as a diagram of a grammar, into a paragraph; drop a drawing without words."""
    words = " ".join(filter(None, (" ".join(text.get_text(" ").split()) for text in drawing.find_all("text"))))
    if len(words.split()) > 1 and count_letters(NavigableString(words)):
        drawing.name, drawing.string = "p", words


def _drop_link(page: Inventory, link: Tag) -> None:
    """Drop a permalink, an edit link, and the row with a link to a neighbouring page."""
    href, text = str(link.get("href", "#")), link.get_text()
    is_mark = _MARKS.fullmatch(text) is not None
    is_empty = not page.letters(link) and link.find_parent(HEADINGS) is not None
    if (is_mark and text.strip()) or (href.startswith("#") and (is_mark or is_empty)):
        page.drop(link)
    elif href.startswith("javascript:") and link.find_parent("caption") is not None:
        page.drop(link, "control")  # switches views of a table
    elif set(link.get_attribute_list("rel")) & _NEIGHBOURS or link.has_attr("accesskey"):
        row = _grow(page, link)
        if row is not None:
            page.drop(row, "navigation")
    elif _EDIT.search(href) and page.letters(link):
        around = link
        while (
            around.parent is not None
            and around.parent.name not in ("body", "[document]")
            and page.letters(around.parent) == page.letters(link)
        ):
            around = around.parent
        in_heading = link.find_parent(HEADINGS) is not None
        if around.name not in HEADINGS and (in_heading or around is not link):
            page.drop(around, "edit link")


def _grow(page: Inventory, tag: Tag) -> Tag | None:
    """Return the largest element around a link with little text outside its links."""
    row = None
    while tag.parent is not None and tag.parent.name not in ("body", "html", "main", "article", "[document]"):
        tag = tag.parent
        if not _says_little(page, tag):
            break
        if tag.name in ("table", "ul", "ol", "div", "p", "dl"):
            row = tag
    return row


def _says_little(page: Inventory, tag: Tag) -> bool:
    """Return True for an element with little text outside its links: no paragraph, no heading that is not a link."""
    if page.unlinked(tag) > THIN_LETTERS:
        return False
    texts = tag.find_all(["p", "pre", "dd", *HEADINGS])
    return not any(
        page.unlinked(text) > (THIN_LETTERS // 2 if text.name in ("p", "dd") else 0) for text in texts if not _is_label(page, text)
    )


def _is_label(page: Inventory, heading: Tag) -> bool:
    """Return True for a heading that labels the list of links below it."""
    following = next_element(heading)
    return following is not None and page.letters(following) > 0 and page.unlinked(following) <= 0.15 * page.letters(following)


def _kind(page: Inventory, tag: Tag) -> str:
    classes = set(tag.get_attribute_list("class"))
    if "toctree-wrapper" in classes and _is_introduced(tag):  # part of the text, without its lower levels
        for inner in tag.select("li > ul"):
            if not page.is_gone(inner):
                page.drop(inner, "contents")
        return ""
    if "backlink" in class_words(tag):
        return "navigation"
    if DROPPED_CLASSES & classes:
        return "navigation"
    if "contents" in classes and "topic" in classes:
        return "contents"
    if tag.name == "aside" or tag.get("role") == "complementary":
        is_note = tag.get("role") in _ROLES_OF_NOTES
        return "navigation" if not is_note and page.linked(tag) > page.unlinked(tag) and _says_little(page, tag) else ""
    if tag.name == "footer":
        return "" if tag.find_parent(["blockquote", "figure", "li", "td"]) or _has_notes(tag) else "footer"
    words = class_words(tag) & THIN_WORDS
    if not words or tag.name == "a" or tag.name in HEADINGS or tag.find_parent(HEADINGS) is not None:
        return ""
    if "sidebar" in words and tag.find(["p", "div", *HEADINGS], class_=_TITLE) is not None and tag.find("p") is not None:
        return ""  # a note of DocBook
    if _says_little(page, tag) and (page.linked(tag) or "footer" in words) and not _has_notes(tag):
        return "contents" if "toc" in words else "navigation"
    return ""


def _has_notes(tag: Tag) -> bool:
    """Return True for an element with footnotes: items that marks in the text link to, and that link back."""
    return tag.get("role") in _ROLES_OF_NOTES or tag.find(id=re.compile(r"^(?:fn|ftnt|cite_note|footnote)", re.IGNORECASE)) is not None


def _drop_contents(page: Inventory) -> None:
    """Drop lists, and runs of paragraphs, that consist of links to places on this page."""
    for tag in page.all(("ul", "ol", "dl", "p", "table")):
        if page.is_gone(tag) or not page.linked(tag) or page.unlinked(tag) > 0.2 * page.letters(tag):
            continue
        if tag.name == "table" and page.unlinked(tag) > 0.05 * page.letters(tag):
            continue
        if _is_introduced(tag) or (tag.name == "dl" and tag.find("dt", id=True) is not None):  # part of the text; definitions
            continue
        links = [link for link in tag.find_all("a", href=True) if page.letters(link)]
        inside = [link for link in links if _leads_inside(page, str(link["href"]))]
        if len(inside) < 0.8 * len(links):
            continue
        run = [tag, *_alike(page, tag)] if tag.name == "p" else [tag]
        says_more = tag.name == "p" and page.unlinked(tag) > 0
        if len(run) < 3 and (len(links) < 2 or says_more):
            continue
        for member in reversed(run):
            page.drop(_with_label(page, member), "contents")


def _is_introduced(tag: Tag) -> bool:
    """Return True if a sentence that ends in a colon introduces a list; a label above contents does not count."""
    before = _before(tag)
    said = before.get_text().strip() if before is not None and (not isinstance(before, Tag) or before.name == "p") else ""
    return said.endswith(":") and CONTENTS_LABEL.fullmatch(said.rstrip(" :")) is None


def _before(tag: Tag) -> PageElement | None:
    """Return the node before an element: beside it, or beside the box that it begins."""
    here: Tag | None = tag
    while here is not None and here.name not in ("body", "main", "article", "[document]"):
        for sibling in here.previous_siblings:
            if sibling.get_text().strip():
                return sibling
        here = here.parent if here.parent is not None and here.parent.name == "div" else None
    return None


def _leads_inside(page: Inventory, href: str) -> bool:
    name = href.partition("#")[2]
    return bool(name) and name in page.ids and not re.match(r"[a-z]+:", href)


def _alike(page: Inventory, first: Tag) -> Iterator[Tag]:
    """Yield the following paragraphs that also are links to places on this page."""
    tag = next_element(first)
    while tag is not None and tag.name == "p":
        links = tag.find_all("a", href=True)
        if not links or not all(_leads_inside(page, str(link["href"])) for link in links) or page.unlinked(tag) > 0.2 * page.letters(tag):
            return
        yield tag
        tag = next_element(tag)


def _with_label(page: Inventory, tag: Tag) -> Tag:
    """Return an element, or its parent if only a label is beside it; drop a heading that belongs to it alone."""
    while tag.parent is not None and tag.parent.name in ("div", "td", "tr", "tbody", "table", "section", "details"):
        beside = [heading for heading in tag.parent.find_all(HEADINGS) if tag not in heading.parents]
        if page.letters(tag.parent) - page.letters(tag) > MAX_LABEL_LETTERS or not all(map(_says_contents, beside)):
            break
        tag = tag.parent
    before = previous_element(tag)
    if before is not None and before.name in HEADINGS and (_says_contents(before) or _is_over_nothing_else(page, before, tag)):
        page.drop(before, "contents")
    return tag


def _says_contents(heading: Tag) -> bool:
    return CONTENTS_LABEL.fullmatch(heading.get_text().strip(" :\n\t")) is not None


def _is_over_nothing_else(page: Inventory, heading: Tag, listed: Tag) -> bool:
    following = next_element(listed)
    while following is not None and not page.letters(following):
        following = next_element(following)
    return heading.name != "h1" and following is not None and following.name in HEADINGS and following.name <= heading.name


def trim_edges(page: Inventory, part: Tag) -> None:
    """Drop menus before the first and after the last text of a part, and lines that give the time and the generator of a page."""
    below_title = False
    for leaf in _leaves(page, part, False):
        if leaf is None or (below_title and not _is_stamp_below_title(page, leaf)):
            break
        if leaf.name in HEADINGS and not _is_link(page, leaf):
            below_title = True
            continue
        stamped = _is_stamp(page, leaf)
        if not stamped and not _leads_elsewhere(page, leaf):
            break
        page.drop(leaf, "stamp" if stamped else "navigation")
    for leaf in _leaves(page, part, True):
        if leaf is None:
            break
        stamped = _is_stamp(page, leaf)
        before = _before(leaf)
        alone = page.linked(leaf) > 0 and page.unlinked(leaf) <= 3 and not (isinstance(before, Tag) and before.name in HEADINGS)
        alone = alone and not any(_EXTERNAL.match(str(link.get("href", ""))) for link in [leaf, *leaf.find_all("a")])
        if not stamped and (not alone or _is_introduced(leaf) or leaf.find_parent(class_="admonition") is not None):
            break
        page.drop(leaf, "stamp" if stamped else "navigation")


def _leads_elsewhere(page: Inventory, tag: Tag) -> bool:
    """Return True for a block above the text that is a menu or a trail of breadcrumbs."""
    if not page.linked(tag) or page.letters(tag) > 2 * THIN_LETTERS:
        return False
    return page.linked(tag) >= page.unlinked(tag) or (page.letters(tag) <= THIN_LETTERS and _TRAIL.match(tag.get_text()) is not None)


def _is_link(page: Inventory, heading: Tag) -> bool:
    """Return True if a heading at the top links to another page: it is the site's name."""
    link = heading.find("a", href=True) or heading.find_parent("a", href=True)
    return isinstance(link, Tag) and not page.unlinked(heading) and not str(link["href"]).startswith("#")


def _is_stamp(page: Inventory, tag: Tag) -> bool:
    said = " ".join(tag.get_text(" ").split())
    if page.letters(tag) > THIN_LETTERS or tag.name == "pre" or not (_STAMP.search(said) or _MAYBE_STAMP.search(said)):
        return False
    if _STAMP.search(said) or _LAST.search(said) or any(_EXTERNAL.match(str(link["href"])) for link in tag.find_all("a", href=True)):
        return True
    return any(place.name == "footer" or {"footer", "metadata"} & class_words(place) for place in (tag, *tag.parents))


def _is_stamp_below_title(page: Inventory, tag: Tag) -> bool:
    return _is_stamp(page, tag) and (_LAST.search(tag.get_text()) is not None or "metadata" in class_words(tag))


def _leaves(page: Inventory, tag: Tag, backwards: bool) -> Iterator[Tag | None]:
    """Yield blocks with text from the top, or from the bottom: the innermost, with lists and tables whole; None for text outside blocks."""
    children = list(tag.children)
    for child in reversed(children) if backwards else children:
        if not isinstance(child, Tag):
            if count_letters(child):
                yield None
            continue
        if page.is_gone(child) or not page.letters(child):
            continue
        holds_blocks = child.name not in ("ul", "ol", "dl", "table", "p", *HEADINGS) and child.find(_BLOCKS) is not None
        if holds_blocks:
            yield from _leaves(page, child, backwards)
        else:
            yield child if child.name in _BLOCKS or (child.name == "a" and not _has_text_beside(child)) else None


def _has_text_beside(link: Tag) -> bool:
    """Return True if text is on the line of a link; other links between them do not count."""
    for siblings in (link.previous_siblings, link.next_siblings):
        for sibling in siblings:
            if isinstance(sibling, Tag) and sibling.name != "a":
                break
            if not isinstance(sibling, Tag) and count_letters(sibling) > 0:
                return True
    return False


def find_main_part(page: Inventory) -> Tag:
    """Return the only element that is marked as the content and holds most of the text, else everything."""
    body = page.soup.body or page.soup
    for found in (list(page.all(["main"])), list(page.with_role("main")), list(page.all(["article"]))):
        least = 0.5 * page.unlinked(body) if found and found[0].name == "article" else 0
        if len(found) == 1 and page.unlinked(found[0]) > least:
            _list_outside(page, found[0])
            return found[0]
    return page.soup


def _list_outside(page: Inventory, part: Tag) -> None:
    """List the parts around the main part as dropped."""
    inside: Tag = part
    while inside.parent is not None and inside.name not in ("body", "html"):
        for sibling in list(inside.parent.find_all(recursive=False)):
            if sibling is not inside and sibling.name != "head" and page.letters(sibling):
                page.drop(sibling, "outside the main part")
        inside = inside.parent


def drop_site_names(page: Inventory, part: Tag, title: Tag) -> None:
    """Drop menus before the title, and headings that only link to another page: the site's, or the chapter's."""
    for leaf in _leaves(page, part, False):
        if leaf is title or (leaf is not None and any(inner is title for inner in leaf.descendants)):
            return
        if leaf is not None and (_is_link(page, leaf) if leaf.name in HEADINGS else _leads_elsewhere(page, leaf)):
            page.drop(leaf, "navigation")


def has_own_text(page: Inventory, part: Tag) -> bool:
    """Return True if a page has text besides links; a search form does not count."""
    total = page.letters(part)
    headings = [heading for heading in part.find_all(HEADINGS)]
    words = sum(map(page.letters, headings))
    linked = page.linked(part) - sum(map(page.linked, headings))
    only_links = total > 0 and linked >= LINKS_FRAC * (total - words) and (linked > 0 or bool(page.dropped))
    return (
        not only_links
        and _RESULTS not in page.ids
        and not any(INDEX & set(t.get_attribute_list("class")) for t in page.all(["div", "table"]))
    )
