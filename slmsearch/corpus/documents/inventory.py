"""One walk over a page of HTML: its elements by name and by id, how much text each holds, and what was left out of it on purpose."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString, PageElement

SHOWN_CHARS = 200
"""Of what was left out."""
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_NO_LETTER = re.compile(r"[\W_]+")
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")


class Inventory:
    """The elements of a page; what is dropped through it counts for no ancestor any more."""

    def __init__(self, soup: BeautifulSoup) -> None:
        """Walk over the page."""
        self.soup = soup
        self.dropped: list[tuple[str, str]] = []
        """Kind and beginning of the text."""
        self.ids: dict[str, Tag] = {}
        """First element with each id; also the targets that `<a name>` makes."""
        self._named: dict[str, list[Tag]] = defaultdict(list)
        self._roles: dict[str, list[Tag]] = defaultdict(list)
        self._letters: dict[int, tuple[int, int]] = {}
        self._gone: set[int] = set()
        self._measure(soup, False)

    def _measure(self, tag: Tag, linked: bool) -> tuple[int, int]:
        self._named[tag.name].append(tag)
        for name in ("id", "name") if tag.name == "a" else ("id",):
            if tag.has_attr(name):
                self.ids.setdefault(str(tag[name]), tag)
        if tag.has_attr("role"):
            for role in str(tag["role"]).lower().split():
                self._roles[role].append(tag)
        linked = linked or (tag.name == "a" and tag.has_attr("href"))
        letters = in_links = 0
        for child in tag.children:
            if isinstance(child, Tag):
                more, more_linked = self._measure(child, linked)
            else:
                more = count_letters(child)
                more_linked = more if linked else 0
            letters += more
            in_links += more_linked
        self._letters[id(tag)] = letters, in_links
        return letters, in_links

    def all(self, names: Iterable[str]) -> Iterator[Tag]:
        """Yield the elements with these names that are still there; those with the same name in the order of the page."""
        for name in names:
            for tag in self._named[name]:
                if id(tag) not in self._gone and tag.name == name:
                    yield tag

    def with_role(self, *roles: str) -> Iterator[Tag]:
        """Yield the elements with one of these roles of ARIA that are still there."""
        for role in roles:
            yield from (tag for tag in self._roles[role] if id(tag) not in self._gone)

    def give_role(self, tag: Tag, role: str) -> None:
        """Treat an element as one with a role of ARIA."""
        self._roles[role].append(tag)

    def everything(self) -> Iterator[Tag]:
        """Yield all elements that are still there, those with the same name in the order of the page."""
        return self.all([name for name in self._named if name != "[document]"])

    def is_gone(self, tag: Tag) -> bool:
        """Say whether an element was dropped, alone or in another one; `Tag.decomposed` searches all of an element that was not."""
        return id(tag) in self._gone

    def letters(self, tag: Tag) -> int:
        """Return how many letters and digits an element holds."""
        return self._letters.get(id(tag), (0, 0))[0]

    def linked(self, tag: Tag) -> int:
        """Return how many of them stand in links."""
        return self._letters.get(id(tag), (0, 0))[1]

    def unlinked(self, tag: Tag) -> int:
        """Return how many of them stand in no link."""
        letters, linked = self._letters.get(id(tag), (0, 0))
        return letters - linked

    def drop(self, tag: Tag, kind: str = "") -> None:
        """Remove an element; under a kind, if it says something, it is listed as dropped."""
        letters, linked = self._letters.get(id(tag), (0, 0))
        if kind and letters:
            self.dropped.append((kind, " ".join(tag.get_text(" ").split())[:SHOWN_CHARS]))
        for parent in tag.parents:
            if id(parent) in self._letters:
                whole, in_links = self._letters[id(parent)]
                self._letters[id(parent)] = whole - letters, in_links - linked
        self._gone.update(id(inner) for inner in tag.descendants)
        self._gone.add(id(tag))
        tag.decompose()


def count_letters(element: PageElement) -> int:
    """Count letters and digits of a text; comments and the like have none."""
    return len(_NO_LETTER.sub("", str(element))) if type(element) is NavigableString else 0


def class_words(tag: Tag) -> set[str]:
    """Return the words that classes and id of an element are made of, lower case: `top-nav`, `topNav` -> top, nav."""
    names = [str(name) for name in (*tag.get_attribute_list("class"), *tag.get_attribute_list("id")) if name]
    return {word.lower() for name in names for word in _WORDS.findall(name)} | {name.lower() for name in names}


def next_element(tag: Tag) -> Tag | None:
    """Return the next sibling that is an element, if no text stands before it."""
    for sibling in tag.next_siblings:
        if isinstance(sibling, Tag):
            return sibling
        if count_letters(sibling):
            return None
    return None


def previous_element(tag: Tag) -> Tag | None:
    """Return the sibling before that is an element, if no text stands after it."""
    for sibling in tag.previous_siblings:
        if isinstance(sibling, Tag):
            return sibling
        if count_letters(sibling):
            return None
    return None


def put_label(box: Tag, text: str) -> None:
    """Put a label before the text of a box: into its first paragraph, or in one of its own."""
    first = next((child for child in box.children if child.get_text(strip=True)), None)
    if isinstance(first, Tag) and first.name == "p":
        first.insert(0, f"{text.rstrip(':')}: ")
        return
    if isinstance(first, NavigableString):
        first.insert_before(f"{text.rstrip(':')}: ")
        return
    label = Tag(name="p")
    label.string = f"{text.rstrip(':')}:"
    box.insert(0, label)
