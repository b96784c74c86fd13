"""Printed parts of a PDF's pages beside its text: running heads, page numbers, tables of contents."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slmsearch.corpus.documents.pdf_blocks import body_size
from slmsearch.corpus.documents.pdf_headings import ALONE, TITLE_LARGER
from slmsearch.corpus.documents.pdf_lines import PdfLine, key_of

EDGE_LINES = 3
"""Lines at the top and at the foot of a page among which running heads are looked for."""
FEWEST_PAGES = 3
"""Pages whose edge has a line before it is a running head."""
HEAD_GAP = 1.5
"""Distance to the next line, in usual ones, that a line has which is no part of the text."""
MOST = 0.5
"""Share of pages that have a line apart at the same height, from which it is a running head whatever it says."""
TEXT_FRAC = 0.5
"""Lines that say the same elsewhere on the pages, for each at their edges, from which it is text."""
CONTENTS_LINES = 4
"""Lines that name a heading and a page, from which a page is one of a table of contents."""
ENTRY_LINES, HEADING_CHARS = 3, 30
"""Lines that an entry of it takes at most, and characters of its heading."""
SAME_SIZE, SAME_HEIGHT = 0.5, 3.0
SHOWN_CHARS = 200
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(r"[\s.|()\[\]\u00b7\u2010-\u2015-]*(?:\d{1,4}|[ivxlcdm]{1,8})[\s.|()\[\]\u00b7\u2010-\u2015-]*", re.IGNORECASE)
_LEADERS = re.compile(r"(?:[.\u2026\u00b7_]\s?){4,}\s*(?:[A-Z]?[-\d]+|[ivxlcdm]+)\s*$", re.IGNORECASE)
_PAGE_AT_END = re.compile(r"\s+(?:\d{1,4}|[ivxlcdm]+)\s*$")
_NUMBER_BEFORE = re.compile(r"^\W*(?:[A-Z]?\d+(?:\.\d+)*|[A-Z]|[IVXLC]+)[.:)]?\s+")


class Kept(NamedTuple):
    """Lines that stay text, and the text that was dropped."""

    lines: list[PdfLine]
    dropped: list[tuple[str, str]]
    """Kind and text: each running head once, a table of contents by page."""
    contents: set[tuple[int, str]]
    """Headings of tables of contents: page, from 0, and key."""


def drop_running(pages: Sequence[Sequence[PdfLine]], titles: Iterable[str] = ()) -> Kept:
    """Drop running heads, page numbers and tables of contents.

    Args:
        pages: lines of each page in reading order.
        titles: titles of the outline; tables of contents without leading dots are found by them.
    """
    running = {id(line): line for line in _running(pages)}
    names = {key_of(_NUMBER_BEFORE.sub("", title)) for title in titles} - {""}
    dropped = {_DIGITS.sub("0", line.text): ("running head", line.text) for line in running.values()}
    kept, contents = list[PdfLine](), set[tuple[int, str]]()
    for number, lines in enumerate(pages):
        listed = _contents([line for line in lines if id(line) not in running], names)
        if listed:
            contents |= {(number, line.key) for line in listed}
            dropped[f"contents of page {number}"] = ("contents", "; ".join(_LEADERS.sub("", line.text) for line in listed))
        gone = running.keys() | set(map(id, listed))
        kept += [line for line in lines if id(line) not in gone]
    if not kept:  # pages that say nothing else
        return Kept([line for lines in pages for line in lines], [], set())
    return Kept(kept, [(kind, text[:SHOWN_CHARS]) for kind, text in dropped.values()], contents)


def _edges(lines: Sequence[PdfLine]) -> tuple[list[PdfLine], list[PdfLine]]:
    """Return the highest and the lowest lines of a page."""
    ordered = sorted(lines, key=lambda line: -line.top)
    return ordered[:EDGE_LINES], ordered[EDGE_LINES:][-EDGE_LINES:][::-1]


def _running(pages: Sequence[Sequence[PdfLine]]) -> list[PdfLine]:
    edges = [
        (number, side, place, line)
        for number, lines in enumerate(pages)
        for side in (0, 1)
        for place, line in enumerate(_edges(lines)[side])
    ]
    numbers = [(place, line) for *_, place, line in edges if _NUMBER.fullmatch(line.text.strip())]
    are_many = len({line.page for _, line in numbers}) >= max(2, len(pages) / 3)
    shift = _shift([line for *_, place, line in edges if place < 2], len(pages))
    found = [line for place, line in numbers if are_many or (place == 0 and len(pages) > 1 and line.key == str(line.page + shift))]
    same: dict[str, list[PdfLine]] = defaultdict(list)
    for *_, line in edges:
        same[_bare(line)].append(line)
    for key, lines in same.items():
        size = Counter(round(line.size, 1) for line in lines).most_common(1)[0][0]
        alike = [line for line in lines if abs(line.size - size) <= SAME_SIZE]
        if key and len({line.page for line in alike}) >= FEWEST_PAGES and not _are_under_headings(alike, pages):
            found += alike
    size = TITLE_LARGER * body_size([line for lines in pages for line in lines])
    heads = _without_text(found + _stamped(pages), pages) + _apart(pages) + _page_numbers(pages)
    return [line for line in heads if not (line.size > size and ALONE.fullmatch(line.text.strip()))]  # "Chapter 3" over its title


def _shift(lines: Sequence[PdfLine], count: int) -> int:
    """Return by how much the number that most pages print at their edges is larger than that of the page, from 0; 1 if they print none."""
    pairs = {(int(digits) - line.page, line.page) for line in lines for digits in _DIGITS.findall(line.text) if len(digits) < 5}
    shift, pages = Counter(shift for shift, _ in pairs).most_common(1)[0] if pairs else (1, 0)
    return shift if pages >= max(FEWEST_PAGES, count / 3) else 1


def _are_under_headings(alike: Sequence[PdfLine], pages: Sequence[Sequence[PdfLine]]) -> bool:
    """Say whether most of some lines follow one in bold, at the top of their pages, that says something else on each."""
    tops = {line.page: _edges(pages[line.page])[0] for line in alike}
    above = [[other for other in tops[line.page] if other.bold and not line.bold and other.bottom > line.bottom] for line in alike]
    return 2 * sum(map(bool, above)) > len(alike) and len({other.key for others in above for other in others[:1]}) > 1


def _without_text(found: Sequence[PdfLine], pages: Sequence[Sequence[PdfLine]]) -> list[PdfLine]:
    """Leave out lines that also stand often elsewhere: sentences that a text repeats."""
    keys = Counter(_bare(line) for line in {id(line): line for line in found}.values())
    everywhere = Counter(_bare(line) for lines in pages for line in lines)
    return [line for line in found if not (key := _bare(line)) or everywhere[key] <= (1 + TEXT_FRAC) * keys[key]]


def _bare(line: PdfLine) -> str:
    return _DIGITS.sub("", line.key)


def _page_numbers(pages: Sequence[Sequence[PdfLine]]) -> list[PdfLine]:
    """Return the lines of a number that grows from page to page at the same height, wherever that is."""
    grow: dict[tuple[int, int], list[PdfLine]] = defaultdict(list)
    for number, lines in enumerate(pages):
        for line in lines:
            if _NUMBER.fullmatch(line.text) and line.key.isdecimal():
                grow[int(line.key) - number, round(line.bottom / SAME_HEIGHT)].append(line)
    return [line for found in grow.values() if len({line.page for line in found}) >= max(FEWEST_PAGES, len(pages) / 3) for line in found]


def _stamped(pages: Sequence[Sequence[PdfLine]]) -> list[PdfLine]:
    """Return the lines that stand at the same place of most pages, wherever that is: watermarks, notes at the margin."""
    at: dict[tuple[str, int, int], list[PdfLine]] = defaultdict(list)
    for lines in pages:
        for line in lines:
            at[line.key, round(line.left / SAME_HEIGHT), round(line.bottom / SAME_HEIGHT)].append(line)
    many = [found for found in at.values() if len(found) >= max(FEWEST_PAGES, MOST * (len(pages) - 1))]
    return [line for found in many if not _are_under_headings(found, pages) for line in found]


def _apart(pages: Sequence[Sequence[PdfLine]]) -> list[PdfLine]:
    """Return the highest and lowest lines that stand apart from the text, at a height where most pages have one."""
    found = []
    for side in (0, 1):
        apart = []
        for lines in pages:
            ordered = sorted(lines, key=lambda line: line.top, reverse=not side)
            if len(ordered) < 5:
                continue
            first = ordered[0]
            following = next((line for line in ordered[1:] if abs(line.bottom - first.bottom) > SAME_HEIGHT), first)
            if abs(first.bottom - following.bottom) > HEAD_GAP * 1.2 * max(following.size, first.size):
                apart += [line for line in ordered if abs(line.bottom - first.bottom) <= SAME_HEIGHT]
        heights = Counter(round(line.bottom) for line in apart)
        height, _ = heights.most_common(1)[0] if heights else (0, 0)
        there = [line for line in apart if abs(line.bottom - height) <= SAME_HEIGHT]
        if len({line.page for line in there}) >= max(2 * FEWEST_PAGES, MOST * len(pages)):
            size = Counter(round(line.size, 1) for line in there).most_common(1)[0][0]
            found += [line for line in there if line.size <= size + SAME_SIZE]
    return found


def _contents(lines: Sequence[PdfLine], titles: set[str]) -> list[PdfLine]:
    """Return the lines of a table of contents: with leading dots, or a title of the outline and a page."""
    dotted = [line for line in lines if _LEADERS.search(line.text)]
    named = [line for line in lines if not line.fixed and _PAGE_AT_END.search(line.text) and _named(line.text) in titles]
    found = dotted + (named if dotted or _grow(named) else [])
    if len(found) < CONTENTS_LINES:
        return []
    marked = {id(line) for line in found}
    numbers = [number for number, line in enumerate(lines) if id(line) in marked]
    for one, other in itertools.pairwise(numbers):  # entries of two or three lines
        marked |= {id(line) for line in lines[one:other]} if other - one <= ENTRY_LINES else set()
    first = numbers[0]
    if 2 * len(dotted) > len(lines):
        marked |= {id(line) for at, line in enumerate(lines) if first < at < numbers[-1] or _PAGE_AT_END.search(line.text)}
    if first and (lines[first - 1].bold or lines[first - 1].size > lines[first].size) and len(lines[first - 1].text) <= HEADING_CHARS:
        marked.add(id(lines[first - 1]))
    return [line for line in lines if id(line) in marked or _NUMBER.fullmatch(line.text.strip())]


def _grow(lines: Sequence[PdfLine]) -> bool:
    """Say whether the numbers at the ends of lines grow, as those of pages do."""
    numbers = [int(digits[-1]) for line in lines if (digits := _DIGITS.findall(line.text))]
    return all(one <= other for one, other in itertools.pairwise(numbers))


def _named(text: str) -> str:
    return key_of(_NUMBER_BEFORE.sub("", _PAGE_AT_END.sub("", text)))
