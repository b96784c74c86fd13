"""Titles of HTML pages: the first-level heading, or `<title>` without the name of the site."""

import re
from typing import NamedTuple

from bs4 import Tag

from slmsearch.corpus.documents.inventory import HEADINGS, Inventory
from slmsearch.corpus.documents.navigation import drop_site_names
from slmsearch.corpus.documents.text import one_line

_SEPARATOR = re.compile(r"\s+(?:[-\u2013\u2014|\u00b7\u2022\u00bb\u203a]|::)\s+|\s*:\s+")
_FIRST_SECTION = re.compile(r"1(?:\.0)?[.)]?\s")
_PARAMETERS = re.compile(r"\s*<.*>$")
"""Type parameters of a generic class."""
_BRACKETS = re.compile(r"(.*\S)\s*\(([^()]*)\)$", re.DOTALL)
_FACTS = {"author": "author", "article:published_time": "date", "date": "date", "dcterms.date": "date"}
_FIRST = 3
"""Number of first headings among which the title is searched; headings before it belong to the site."""


class TitleNames(NamedTuple):
    """Names of a page outside its text."""

    title: str
    sites: frozenset[str]
    """Names of the page's site, lower case."""
    metadata: dict[str, str]


def read_names(page: Inventory) -> TitleNames:
    """Read `<title>`, Open Graph and links to the home page."""
    title = page.soup.title
    metas = ((str(meta.get("property") or meta.get("name") or ""), str(meta.get("content", ""))) for meta in page.all(["meta"]))
    said = {name.lower(): one_line(text) for name, text in metas}
    homes = [link for link in page.all(["link"]) if {"home", "start", "top"} & set(link.get_attribute_list("rel")) and link.get("title")]
    sites = [*(str(link["title"]) for link in homes), said.get("og:site_name", ""), said.get("application-name", "")]
    metadata = {name: said[key] for key, name in _FACTS.items() if said.get(key)}
    written = one_line(title.get_text()) if title else ""
    return TitleNames(written or said.get("og:title", ""), frozenset(one_line(site).casefold() for site in sites if site), metadata)


def place_title(names: TitleNames, page: Inventory, part: Tag) -> str:
    """Return the title; if a heading of the part repeats it, make that the only first-level heading."""
    headings = [heading for heading in part.find_all(HEADINGS) if one_line(heading.get_text(" "))]
    title = _without_site(names)
    firsts = [heading for heading in headings if heading.name == "h1"]
    found = firsts[0] if len(firsts) == 1 else None
    if found is not None and title and _FIRST_SECTION.match(_text(found)) and not _says(_text(found), title):
        found = None
    if found is None or _text(found).casefold() in names.sites or _is_part_of(names.title, _text(found)):
        matching = [heading for heading in headings[:_FIRST] if _says(_text(heading), title)]
        found = next((heading for heading in matching if heading is not found), found)
    if found is None and not headings and not title:
        return ""
    if found is None:
        found = _first_line(part, title, names.title)
    if found is None:
        if title and firsts:
            _demote(headings)
        return title
    if found.name == "h1" and len(firsts) > 1:
        _demote([heading for heading in headings if heading is not found])
    elif found.name != "h1":
        _demote([heading for heading in firsts if heading is not found])
        found.name = "h1"
    drop_site_names(page, part, found)
    return _text(found)


def _text(heading: Tag) -> str:
    return one_line(heading.get_text())


def _without_site(names: TitleNames) -> str:
    """Return the title without the name of the site, if the page itself names it."""
    parts = _SEPARATOR.split(names.title)
    for start, end, rest in ((0, 1, (1, None)), (-1, None, (0, -1))):
        if len(parts) > 1 and _SEPARATOR.split(names.title)[start:end][0].casefold() in names.sites:
            spans = [found.span() for found in _SEPARATOR.finditer(names.title)]
            return names.title[spans[0][1] :] if rest[0] else names.title[: spans[-1][0]]
    for site in names.sites:
        for found in _SEPARATOR.finditer(names.title):
            if names.title[found.end() :].casefold() == site:
                return names.title[: found.start()]
    return names.title


def _is_part_of(title: str, text: str) -> bool:
    """Return True if a heading is one end of a longer title: the name of the page or of its site."""
    return any(text in (title[: found.start()], title[found.end() :]) for found in _SEPARATOR.finditer(title))


def _says(heading: str, title: str) -> bool:
    """Return True if a heading equals the title, apart from the site's name."""
    plain, wanted = _PARAMETERS.sub("", " ".join(heading.split()).casefold()), " ".join(title.split()).casefold()
    if not wanted:
        return False
    if plain == wanted or any(plain == wanted[: found.start()].strip() for found in _SEPARATOR.finditer(wanted)):
        return True
    brackets = _BRACKETS.match(wanted)
    return brackets is not None and (plain == brackets[1] or plain.endswith(f" {brackets[1]}"))


def _first_line(part: Tag, title: str, whole: str) -> Tag | None:
    """Return the first block if it repeats the title, or is marked as a title on a page without one."""
    for tag in part.find_all(["p", "div", "span"], limit=40):
        text = _text(tag)
        if not text:
            continue
        if text.casefold() == title.casefold() and tag.find(["p", "div"]) is None:
            return tag
        boxes = tag.find_all("div", recursive=False) if "title" in tag.get_attribute_list("class") else []
        own = one_line("".join(child.get_text() for child in tag.children if child not in boxes)) if boxes else ""
        if own and _is_part_of(whole, own):
            tag.insert_after(*(box.extract() for box in boxes))
            return tag
        if "title" in tag.get_attribute_list("class") and (_is_part_of(whole, text) if title else tag.name == "p"):
            return tag
        if tag.name == "p":
            return None
    return None


def _demote(headings: list[Tag]) -> None:
    for heading in headings:
        heading.name = f"h{min(int(heading.name[1]) + 1, 6)}"
