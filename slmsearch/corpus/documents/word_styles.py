"""Styles and numbering of a Word document's paragraphs: headings, titles, numbers of list items that go on."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MAX_LEVEL = 9
"""Outline levels of Word; 9 is body text."""
_HEADING_NAME = re.compile(r"heading ?(\d)", re.IGNORECASE)
_CONTENTS_NAME = re.compile(r"toc \d|toc heading|table of figures|contents(?: heading| \d)?|index \d|table of authorities", re.IGNORECASE)
_PLACE = re.compile(r"%(\d)")
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"),
    (4, "iv"), (1, "i"))  # fmt: skip


def value(element: Any, path: str) -> str | None:
    """Return the `w:val` of a child, or of a child's child; empty where it has none, None where there is no such child."""
    found = element.find("/".join(f"{WORD}{name}" for name in path.split("/"))) if element is not None else None
    return None if found is None else found.get(f"{WORD}val", "")


def is_on(element: Any, path: str) -> bool:
    """Say whether a switch such as `w:vanish` is there and on."""
    return value(element, path) not in (None, "0", "false", "off")


@dataclass(frozen=True, slots=True)
class _Style:
    name: str
    base: str
    level: str | None
    number: tuple[str | None, str | None]
    is_hidden: bool
    size: str | None
    """Size of its letters, in half points."""


class Styles:
    """The styles of a document; what one does not say, the one it is based on says."""

    def __init__(self, root: Any) -> None:
        """Read `word/styles.xml`; None where there is none."""
        self._styles: dict[str, _Style] = {}
        self.default = ""
        self._size = value(root, "docDefaults/rPrDefault/rPr/sz") or ""
        for style in root.iterfind(f"{WORD}style") if root is not None else ():
            key, name = style.get(f"{WORD}styleId", ""), value(style, "name") or ""
            number = (value(style, "pPr/numPr/numId"), value(style, "pPr/numPr/ilvl"))
            base = value(style, "basedOn") or ""
            self._styles[key] = _Style(
                name, base, value(style, "pPr/outlineLvl"), number, is_on(style, "rPr/vanish"), value(style, "rPr/sz")
            )
            if style.get(f"{WORD}default") in ("1", "true") and style.get(f"{WORD}type") == "paragraph":
                self.default = key

    def chain(self, key: str) -> Iterator[_Style]:
        """Yield a style and those it is based on; a circle of them ends. One that the document does not describe is known by its key."""
        seen = set()
        while key in self._styles and key not in seen:
            seen.add(key)
            yield self._styles[key]
            key = self._styles[key].base
        if key and key not in self._styles:
            yield _Style(key, "", None, (None, None), False, None)

    def level(self, key: str) -> int:
        """Return the level of the headings of a style; 0 for text."""
        for style in self.chain(key):
            if style.level is not None and style.level.isdecimal():
                return int(style.level) + 1 if int(style.level) < MAX_LEVEL else 0
            named = _HEADING_NAME.fullmatch(style.name)
            if named is not None:
                return int(named[1])
        return 0

    def is_title(self, key: str) -> bool:
        """Say whether it is the style of the document's title, or based on it."""
        return any(style.name.casefold() == "title" for style in self.chain(key))

    def is_contents(self, key: str) -> bool:
        """Say whether it is a style of tables of contents."""
        return any(_CONTENTS_NAME.fullmatch(style.name) for style in self.chain(key))

    def is_hidden(self, key: str) -> bool:
        """Say whether it is a style of hidden text."""
        return any(style.is_hidden for style in self.chain(key))

    def size(self, key: str) -> int:
        """Return the size of a style's letters, in half points; ten points where nothing says it."""
        found = next((style.size for style in self.chain(key) if style.size is not None), self._size)
        return int(found) if found.isdecimal() else 20

    def number(self, key: str) -> tuple[str | None, str | None]:
        """Return the list and the level that a style gives its paragraphs."""
        found = [style.number for style in self.chain(key)]
        return next((each for each, _ in found if each is not None), None), next((level for _, level in found if level is not None), None)


@dataclass(slots=True)
class _Level:
    kind: str
    text: str
    start: int
    restart: int | None
    """Number of the level that starts it again; None for each above it, 0 for none."""


@dataclass(slots=True)
class _List:
    levels: dict[int, _Level] = field(default_factory=dict)
    link: str = ""
    """Style that says what its levels are."""


class Numbering:
    """The lists of a document, counted on from paragraph to paragraph."""

    def __init__(self, root: Any, styles: Styles) -> None:
        """Read `word/numbering.xml`; None where there is none."""
        self._lists: dict[str, _List] = {}
        self._nums: dict[str, tuple[str, dict[int, _Level], dict[int, int]]] = {}
        self._counts: Mapping[str, dict[int, int]] = defaultdict(dict)
        self._started: set[tuple[str, int]] = set()
        self._styles = styles
        for found in root.iterfind(f"{WORD}abstractNum") if root is not None else ():
            levels = dict(_read_level(level) for level in found.iterfind(f"{WORD}lvl"))
            self._lists[found.get(f"{WORD}abstractNumId", "")] = _List(levels, value(found, "numStyleLink") or "")
        for found in root.iterfind(f"{WORD}num") if root is not None else ():
            own: dict[int, _Level] = {}
            starts: dict[int, int] = {}
            for override in found.iterfind(f"{WORD}lvlOverride"):
                level = int(override.get(f"{WORD}ilvl", "0"))
                own.update(_read_level(each) for each in override.iterfind(f"{WORD}lvl"))
                start = value(override, "startOverride")
                if start:
                    starts[level] = int(start)
            self._nums[found.get(f"{WORD}numId", "")] = (value(found, "abstractNumId") or "", own, starts)

    def mark(self, key: str, level: int) -> str | None:
        """Count a paragraph of a list, and return what stands before it: `-` for a bullet; None where it is in no list."""
        if key not in self._nums:
            return None
        name, own, starts = self._nums[key]
        linked = self._lists.get(name, _List())
        if linked.link:
            other = self._styles.number(linked.link)[0]
            name = self._nums[other][0] if other in self._nums else name
        levels = {**self._lists.get(name, linked).levels, **own}
        if level not in levels:
            return "-"
        counts = self._counts[name]
        if level in starts and (key, level) not in self._started:
            self._started.add((key, level))
            counts[level] = starts[level]
        else:
            counts[level] = counts[level] + 1 if level in counts else levels[level].start
        for deeper in [each for each in counts if each > level]:
            restart = levels[deeper].restart if deeper in levels else None
            if restart is None or level < restart:
                del counts[deeper]
        shape = levels[level]
        if shape.kind == "bullet":
            return "-"
        if shape.kind == "none":
            return shape.text if not _PLACE.search(shape.text) else ""
        return _PLACE.sub(lambda place: _show(int(place[1]) - 1, counts, levels), shape.text)


def _read_level(found: Any) -> tuple[int, _Level]:
    start, restart = value(found, "start") or "", value(found, "lvlRestart") or ""
    shape = _Level(
        value(found, "numFmt") or "decimal",
        value(found, "lvlText") or "",
        int(start) if start.isdecimal() else 1,
        int(restart) if restart.isdecimal() else None,
    )
    return int(found.get(f"{WORD}ilvl", "0")), shape


def _show(level: int, counts: dict[int, int], levels: dict[int, _Level]) -> str:
    shape = levels.get(level)
    count = counts.setdefault(level, shape.start if shape else 1)
    return show_number(count, shape.kind if shape else "decimal")


def show_number(count: int, kind: str) -> str:
    """Write a list item's number in a format of Word; in digits where it is one of rare ones."""
    if kind in ("lowerLetter", "upperLetter") and count > 0:
        letters = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
        return letters if kind == "lowerLetter" else letters.upper()
    if kind in ("lowerRoman", "upperRoman") and 0 < count < 4000:
        letters = ""
        for worth, letter in _ROMAN:
            letters += letter * (count // worth)
            count %= worth
        return letters if kind == "lowerRoman" else letters.upper()
    return f"{count:02}" if kind == "decimalZero" else str(count)
