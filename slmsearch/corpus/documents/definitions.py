"""Definition lists of a page: functions of a reference, options of a command, terms of a glossary.

Definitions with a link target and enough text become sections, one level below the heading above them. The others become paragraphs that
begin with their term. Text after such a section belongs to the heading above the list, so that heading is repeated there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bs4 import Tag
from bs4.element import NavigableString, PageElement

from slmsearch.corpus.documents.inventory import HEADINGS
from slmsearch.corpus.documents.text import one_line

MIN_CHARS = 140
"""Average number of letters and digits in the definitions of consecutive lists from which they become sections."""
MIN_CHARS_AFTER = 60
"""Number of letters and digits in a following text from which the heading above the list is repeated."""
INLINE = frozenset({"code", "a", "span", "em", "i", "b", "strong", "tt", "kbd", "samp", "var", "abbr"})
"""Elements that may begin a definition on the line of its term."""
MAX_NAME_CHARS = 80
"""Maximum length of a heading, in characters; the rest of a longer one stays in its signature."""


@dataclass(frozen=True, slots=True)
class _Heading:
    """Heading above a definition list."""

    level: int
    name: str
    owner: str = ""
    """Last part of the name of a defined object, such as a class; its own definitions are named after it."""


def lift_definitions(part: Tag) -> None:
    """Replace every definition list of a part of a page."""
    above: dict[int, _Heading] = {}
    current = _Heading(1, "")
    waiting, done = list[Tag](), list[tuple[Tag, _Heading]]()
    for tag in part.find_all([*HEADINGS, "dl"]):
        if tag.name == "dl":
            above[id(tag)] = current
            waiting.append(tag)
        elif not tag.find_parent("dl"):
            current = _Heading(int(tag.name[1]), one_line(tag.get_text()))
    for first in waiting:  # outer lists before inner ones
        if first.name != "dl":  # already part of the previous run
            continue
        run = list(_run(first))
        groups = [group for dl in run for group in _groups(dl)]
        size = sum(_letters(tag) for _, bodies in groups for tag in bodies)
        anchored = sum(1 for terms, _ in groups if any(term.has_attr("id") for term in terms))
        lifted = 2 * anchored > len(groups) and size >= MIN_CHARS * len(groups)
        heading = above[id(first)]
        for terms, bodies in groups:
            for body in bodies:
                body.name = "div"
            if lifted:
                name, level = _name(terms[0]), min(heading.level + 1, 6)
                whole = f"{heading.owner}.{name}" if heading.owner and name.isidentifier() else name
                for dl in (inner for body in bodies for inner in body.find_all("dl")):
                    above[id(dl)] = _Heading(level, whole, name.rpartition(".")[2])
                _lift(terms, name, _tag(f"h{level}", whole))
            else:
                _flatten(terms, bodies)
        for dl in run:
            dl.name = "div"
        if lifted and heading.name:
            done.append((run[-1], heading))
    for last, heading in done:
        _go_on_after(last, part, heading)


def _run(first: Tag) -> Iterator[Tag]:
    """Yield a list and the lists that follow it directly."""
    tag: PageElement | None = first
    while isinstance(tag, Tag) and tag.name == "dl":
        yield tag
        tag = _following(tag)


def _following(tag: PageElement) -> PageElement | None:
    """Return the next sibling with visible text."""
    return next((sibling for sibling in tag.next_siblings if _letters(sibling)), None)


def _groups(dl: Tag) -> Iterator[tuple[list[Tag], list[Tag]]]:
    """Yield terms with the definitions that follow them."""
    terms, bodies = list[Tag](), list[Tag]()
    for tag in dl.find_all(["dt", "dd", "div"], recursive=False):
        if tag.name == "div":  # HTML allows a div around a group
            yield from _groups(tag)
        elif tag.name == "dd" and terms:
            bodies.append(tag)
        elif tag.name == "dd":  # without a term
            tag.name = "div"
        else:
            if bodies:
                yield terms, bodies
                terms, bodies = [], []
            terms.append(tag)
    if terms:
        yield terms, bodies


def _name(term: Tag) -> str:
    """Return the name of a term; of a signature (in Sphinx's mark-up), only the name."""
    named = term.find_all(class_=["sig-prename", "sig-name"])
    text = one_line("".join(tag.get_text() for tag in named) if named else term.get_text())
    return text if len(text) <= MAX_NAME_CHARS else one_line(text.partition("(")[0])[:MAX_NAME_CHARS]


def _lift(terms: list[Tag], name: str, heading: Tag) -> None:
    """Insert a heading before terms; terms with more than the name become paragraphs."""
    terms[0].insert_before(heading)
    for term in terms:
        signature = one_line(term.get_text())
        if signature == name:
            term.decompose()
        else:
            term.clear()
            term.name = "p"
            term.append(_tag("code", signature))


def _flatten(terms: list[Tag], bodies: list[Tag]) -> None:
    """Insert the terms before the text that defines them."""
    name = ", ".join(filter(None, (one_line(term.get_text()) for term in terms)))
    body = next((body for body in bodies if _letters(body)), None)
    if body is None:
        terms[0].name, rest = "p", terms[1:]
        terms[0].string = name
    else:
        rest = terms
        first = next(child for child in body.children if _letters(child))
        label = f"{name.removesuffix(':')}: " if name else ""
        if isinstance(first, Tag) and first.name == "p":
            first.insert(0, label)
        elif isinstance(first, NavigableString) or (isinstance(first, Tag) and first.name in INLINE):
            first.insert_before(label)
        else:
            first.insert_before(_tag("p", label))
    for term in rest:
        term.decompose()


def _go_on_after(last: Tag, part: Tag, heading: _Heading) -> None:
    """Repeat a heading before text of some length that follows definitions turned into sections."""
    here: Tag = last
    following = _following(here)
    while following is None and here.parent is not None and here.parent is not part and here.parent.name not in ("dd", "dl", "body"):
        here = here.parent
        following = _following(here)
    size, first = 0, following
    while following is not None and not _begins_anew(following):
        size += _letters(following)
        following = _following(following)
    if first is not None and size >= MIN_CHARS_AFTER:
        first.insert_before(_tag(f"h{min(heading.level + 1, 6)}", heading.name))


def _begins_anew(element: PageElement) -> bool:
    return isinstance(element, Tag) and (element.name in HEADINGS or element.find(HEADINGS) is not None)


def _tag(name: str, text: str) -> Tag:
    tag = Tag(name=name)
    tag.string = text
    return tag


def _letters(element: PageElement) -> int:
    text = element.get_text() if isinstance(element, Tag) else str(element) if type(element) is NavigableString else ""
    return sum(map(str.isalnum, text))
