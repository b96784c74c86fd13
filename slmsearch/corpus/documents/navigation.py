"""What of a page of HTML is its text, and what leads elsewhere: menus, tables of contents, indices, permalinks, line numbers.

Class names are those of widespread generators of documentation: docutils and Sphinx, MkDocs, Docusaurus.
"""

import re

from bs4 import BeautifulSoup, Tag

# Not `head`: where there is no `<body>`, the parser puts elements it does not know, such as `<main>`, into it.
DROPPED = ["title", "script", "style", "nav", "noscript", "template", "svg", "iframe", "object", "button", "select", "textarea",
    "footer", "dialog", "hr"]  # fmt: skip
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
DROPPED_ROLES = ["navigation", "banner", "search", "contentinfo", "complementary", "dialog"]
DROPPED_CLASSES = {
    "sphinxsidebar", "related", "toctree-wrapper", "headerlink", "linenos", "linenodiv", "md-sidebar", "md-source-file", "hash-link",
    "theme-doc-breadcrumbs", "theme-doc-footer", "sr-only", "visually-hidden",
}  # fmt: skip
INDEX = re.compile(r"^(?:genindex-jumpbox|genindextable|modindex-jumpbox|indextable|contentstable)$")
"""Classes of what only an index or a front page has."""
NOTES = {"footnote", "footnote-list", "topic", "sidebar", "admonition"}
"""Classes of an `aside` that is text: docutils and others write notes so."""
LINKS_FRAC = 0.85
"""Share of the letters in links from which a page is an index."""
_MARKS = re.compile(r"[\s#\u00b6\u00a7\u221e\u200b\U0001f517]*")
_RESULTS = re.compile(r"search-results$")


def drop_navigation(soup: BeautifulSoup) -> None:
    """Remove all that is no text of the page."""
    for dropped in (DROPPED, _is_dropped):
        for tag in soup.find_all(dropped):
            if not tag.decomposed:
                tag.decompose()


def _is_dropped(tag: Tag) -> bool:
    if tag.name == "a" and str(tag.get("href", "#")).startswith("#") and _MARKS.fullmatch(tag.get_text()):
        return True  # a permalink: "#" or a pilcrow
    classes = set(tag.get_attribute_list("class"))
    if tag.name == "aside" and not NOTES & classes and tag.get("role") not in ("note", "doc-footnote"):
        return True
    if DROPPED_CLASSES & classes or ("contents" in classes and "topic" in classes):
        return True
    return tag.get("role") in DROPPED_ROLES or tag.has_attr("hidden") or tag.get("aria-hidden") == "true"


def find_main_part(soup: BeautifulSoup) -> Tag:
    """Return the one part that says it is the content, else everything."""
    for found in (soup.find_all("main"), soup.find_all(role="main"), soup.find_all("article")):
        if len(found) == 1 and any(c.isalnum() for c in found[0].get_text()):
            return found[0]
    return soup


def has_own_text(part: Tag) -> bool:
    """Say whether a page has more to say than where else to go; a form that searches the site has not, either."""
    total = _letters(part)
    headings = sum(map(_letters, part.find_all(HEADINGS)))
    linked = sum(_letters(link) for link in part.find_all("a", href=True) if not link.find_parent(["a", *HEADINGS]))
    only_links = total > 0 and linked >= LINKS_FRAC * (total - headings)
    return not only_links and part.find(id=_RESULTS) is None and part.find(class_=INDEX) is None


def _letters(tag: Tag) -> int:
    return sum(map(str.isalnum, tag.get_text()))
