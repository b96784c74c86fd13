"""Inventory of an HTML page from one walk: elements by name and id, the length of their texts, and parts left out on purpose."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString, PageElement

SHOWN_CHARS = 200
"""Number of characters shown of an omitted part."""
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_NO_LETTER = re.compile(r"[\W_]+")
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")


class Inventory:
    """Elements of a page. Dropped elements no longer count in their ancestors."""

    def __init__(self, soup: BeautifulSoup) -> None:
        """Walk over the page."""
        self.soup = soup
        self.dropped: list[tuple[str, str]] = []
        """Kind of each omitted part and the start of its text."""
        self.ids: dict[str, Tag] = {}
        """First element with each id; includes the targets that `<a name>` creates."""
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
        """Yield the remaining elements with these names; those with the same name in page order."""
        for name in names:
            for tag in self._named[name]:
                if id(tag) not in self._gone and tag.name == name:
                    yield tag

    def with_role(self, *roles: str) -> Iterator[Tag]:
        """Yield the remaining elements with one of these ARIA roles."""
        for role in roles:
            yield from (tag for tag in self._roles[role] if id(tag) not in self._gone)

    def give_role(self, tag: Tag, role: str) -> None:
        """Assign an ARIA role to an element."""
        self._roles[role].append(tag)

    def everything(self) -> Iterator[Tag]:
        """Yield all remaining elements; those with the same name in page order."""
        return self.all([name for name in self._named if name != "[document]"])

    def is_gone(self, tag: Tag) -> bool:
        """Return True if an element was dropped, alone or in another one; `Tag.decomposed` would search the element's descendants."""
        return id(tag) in self._gone

    def letters(self, tag: Tag) -> int:
        """Return the number of letters and digits in an element."""
        return self._letters.get(id(tag), (0, 0))[0]

    def linked(self, tag: Tag) -> int:
        """Return the number of those in links."""
        return self._letters.get(id(tag), (0, 0))[1]

    def unlinked(self, tag: Tag) -> int:
        """Return the number of those outside links."""
        letters, linked = self._letters.get(id(tag), (0, 0))
        return letters - linked

    def drop(self, tag: Tag, kind: str = "") -> None:
        """Remove an element; with a kind, list it as dropped if it has text."""
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
    """Count the letters and digits of a text; comments and the like have none."""
    return len(_NO_LETTER.sub("", str(element))) if type(element) is NavigableString else 0


def class_words(tag: Tag) -> set[str]:
    """Return the words in the classes and id of an element, lower case: `top-nav`, `topNav` -> top, nav."""
    names = [str(name) for name in (*tag.get_attribute_list("class"), *tag.get_attribute_list("id")) if name]
    return {word.lower() for name in names for word in _WORDS.findall(name)} | {name.lower() for name in names}


def next_element(tag: Tag) -> Tag | None:
    """Return the next sibling if it is an element without text before it."""
    for sibling in tag.next_siblings:
        if isinstance(sibling, Tag):
            return sibling
        if count_letters(sibling):
            return None
    return None


def previous_element(tag: Tag) -> Tag | None:
    """Return the previous sibling if it is an element without text after it."""
    for sibling in tag.previous_siblings:
        if isinstance(sibling, Tag):
            return sibling
        if count_letters(sibling):
            return None
    return None


def put_label(box: Tag, text: str) -> None:
    """Insert a label before the text of a box: in its first paragraph, or in a new one."""
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
