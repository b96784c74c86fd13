"""The places of a PDF's headings: those of its outline as they are printed, or, without one, lines in larger fonts."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slmsearch.corpus.documents.pdf_blocks import BULLET, INDENT, SHORT_FRAC, Setting, body_size, joined
from slmsearch.corpus.documents.pdf_lines import PdfLine, key_of
from slmsearch.corpus.documents.text import one_line

MAX_LINES = 3
"""Most lines of a printed heading."""
LARGER = 1.1
"""Size of a heading's font, in that of the text, where there is no outline."""
TITLE_LARGER = 1.25
SAME_START = 8
"""Letters and digits by which a heading begins as its entry in the outline does."""
MAX_CHARS, MAX_TITLE_CHARS = 120, 200
MOST = 0.3
"""Share of lines in larger fonts from which they are no headings: slides, posters."""
DEEPEST, LOWEST = 4, 6
"""Lowest level that looks give, and that numbers do."""
_NUMBER = re.compile(
    r"^(?:(?:chapter|section|part|appendix|annex|kapitel|abschnitt|anhang|teil|chapitre|partie|annexe)\s+)?"
    r"(?:[A-Z]?\d+|[IVXLC]+|[A-Z])(?:[.-](?:\d+|[IVXLC]+|[A-Z]))*[.:)]?\s+",
    re.IGNORECASE,
)
ALONE = re.compile(
    r"(?:chapter|part|appendix|annex|kapitel|anhang|teil|chapitre|partie|annexe)\s+"
    r"(?:\d+|[A-Z]|[IVXLC]+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\W?",
    re.IGNORECASE,
)
"""Line over the title of a chapter."""
_DEPTH = re.compile(r"(?:[^\W\d_]{4,9}\s+)?((?:[A-Z](?=\.)|\d{1,2})(?:\.\d{1,2})*)\.?\s+[^\s\w]{0,2}[^\W\d_]")
"""A number of parts, with "Chapter" or the like before it."""
_COUNTED = re.compile(r"([IVX]{1,5}|\d{1,2})\.?\s+[A-Z]")
_NUMERALS = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV", "XV")
FEWEST_COUNTED = 3
"""Lines that are numbered in order before they are headings."""
PROSE_FRAC = 0.6
"""Share of the usual width of full lines that each of the first three lines of the first page's text exceeds."""
NUMBERED_FRAC = 0.95
"""Share of that width below which a numbered line may be a heading."""
OUTDENTED_FRAC = 0.1
"""Largest share of lines that begin left of the edge of the text."""
APART = 1.15
"""Room above a heading, in usual distances of two lines."""
_NUMBERED = re.compile(r"(?:[A-Z]|\d+)(?:\.\d+)*\.?\s+[^\W\d_a-z]")
_INDEXED = re.compile(r",\s*\d{1,3}(?:[,\u2013-]\s*\d{1,3})*$")
"""Pages at the end of an entry of an index."""
_DATED = re.compile(r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*\.?\s+(?:\d{1,2},?\s+)?(?:19|20)\d\d$", re.IGNORECASE)
"""A date on a cover."""
_SYMBOLS = re.compile(r"[=<>_{}|\\]")
"""Characters of code and formulas."""


Look = tuple[float, int]
"""Size, and how else a line is set apart: 2 for bold or larger, 1 for capitals."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading, and where it stands."""

    level: int
    text: str
    page: int
    """From 0."""
    height: float | None = None
    """Height on the page to which the outline points, in points from below."""
    left: float | None = None
    """The same, from the left."""
    line: int = -1
    """Number of the first line that it takes the place of, or stands before."""
    taken: int = 0
    """Lines that it takes the place of."""


def place_headings(lines: Sequence[PdfLine], outline: Sequence[Heading], setting: Setting) -> list[Heading]:
    """Find each heading of an outline among the lines of its page, whichever of the two has a number; else stand it where it points to."""
    on_page: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        on_page[line.page].append(number)
    starts = sorted(on_page)
    placed, used = [], set[int]()
    for heading in outline:
        numbers = on_page.get(heading.page, [])
        found = _printed(heading, lines, [number for number in numbers if number not in used], setting)
        if found is None:
            later = next((on_page[page][0] for page in starts if page >= heading.page), len(lines))
            below = (number for number in numbers if _is_below(lines[number], heading))
            found = replace(heading, line=next(below, later))
        used.update(range(found.line, found.line + found.taken))
        placed.append(found)
    missing = list(_missing(lines, placed, setting))
    missing += _deeper(lines, [*placed, *missing], setting)
    placed = [heading for heading in placed if heading.taken or not any(_names(other, heading) for other in missing)]
    return sorted([*placed, *missing], key=lambda heading: heading.line)


def _names(printed: Heading, heading: Heading) -> bool:
    """Say whether a heading is the one of the outline that points there and begins alike."""
    is_there = printed.line <= heading.line <= printed.line + printed.taken
    return is_there and _bare(printed.text)[:SAME_START] == _bare(heading.text)[:SAME_START]


def _missing(lines: Sequence[PdfLine], placed: Sequence[Heading], setting: Setting) -> Iterator[Heading]:
    """Yield headings that the outline lacks: as large as those of its numbered ones with as many numbers, larger than the text."""
    body = body_size(lines)
    levels: dict[tuple[int, bool, int], list[int]] = defaultdict(list)
    for heading in placed:
        if heading.taken and (depth := _DEPTH.match(heading.text)):
            line = lines[heading.line]
            levels[round(line.size), line.bold, depth[1].count(".")].append(heading.level)
    known = {number for heading in placed for number in range(heading.line, heading.line + heading.taken)}
    for number, line in enumerate(lines):
        depth = _DEPTH.match(line.text) if line.size >= LARGER * body and number not in known and not line.cells else None
        found = levels[round(line.size), line.bold, depth[1].count(".")] if depth and _NUMBERED.match(line.text) else []
        count = 1
        while found and number + count < len(lines) and _goes_on(lines, number, count, body):
            count += 1
        text = joined(lines[number : number + count], setting)
        if len(found) > 1 and count <= MAX_LINES and len(text) <= MAX_CHARS:
            yield Heading(max(found), text, line.page, line=number, taken=count)


def _deeper(lines: Sequence[PdfLine], placed: Sequence[Heading], setting: Setting) -> Iterator[Heading]:
    """Yield lines that stand apart and have the next number below that of the heading that they stand under."""
    at = {heading.line: heading for heading in placed}
    taken = {number for heading in placed for number in range(heading.line, heading.line + heading.taken)}
    levels, last = dict[str, int](), dict[str, int]()
    current = ""
    for number, line in enumerate(lines):
        heading, depth = at.get(number), _DEPTH.match(at[number].text if number in at else line.text)
        parent, _, count = depth[1].rpartition(".") if depth else ("", "", "")
        if heading is not None:
            current = depth[1] if depth else ""
            levels[current], last[parent] = heading.level, int(count) if count.isdecimal() else 0
        elif depth and number not in taken and parent and parent in levels and f"{current}.".startswith(f"{parent}.") and not line.cells:
            text = one_line(line.text)
            is_next = count.isdecimal() and int(count) == last.get(parent, 0) + 1
            if is_next and len(text) <= MAX_CHARS and text[-1] not in ".,;" and _stands_apart(number, lines, setting):
                current = depth[1]
                levels[current], last[parent] = levels[parent] + 1, int(count)
                yield Heading(min(levels[current], LOWEST), text, line.page, line=number, taken=1)


def _is_below(line: PdfLine, heading: Heading) -> bool:
    """Say whether a line stands below the place that an outline points to, in its column."""
    return heading.height is not None and line.bottom < heading.height and line.right > (heading.left or 0.0)


def _printed(heading: Heading, lines: Sequence[PdfLine], numbers: Sequence[int], setting: Setting) -> Heading | None:
    """Find where a heading is printed: nearest to where the outline points, else in the largest font."""
    wanted = {key_of(heading.text), _bare(heading.text)}
    best: tuple[float, float, int, int] | None = None
    for number in numbers:
        text = ""
        for count in range(1, MAX_LINES + 1):
            if number + count > len(lines) or lines[number + count - 1].page != heading.page:
                break
            text = f"{text} {lines[number + count - 1].text}".strip()
            if key_of(text) in wanted or _bare(text) in wanted:
                far = abs(lines[number].top - heading.height) if heading.height is not None else 0.0
                best = min(best or (far, 0.0, number, count), (far, -lines[number].size, number, count))
    named = re.compile(rf"(?<!\w){re.escape(heading.text)}(?!\w)")
    if best is None and heading.height is None:  # an outline that points to pages may shorten what is printed
        best = next(((0.0, 0.0, n, 1) for n in numbers if lines[n].size > LARGER * setting.size and named.search(lines[n].text)), None)
    if best is None:
        return None
    *_, number, count = best
    text = joined(lines[number : number + count], setting)
    text = text if len(key_of(text)) > len(key_of(heading.text)) and key_of(heading.text) in key_of(text) else heading.text
    if number and lines[number - 1].page == heading.page and ALONE.fullmatch(lines[number - 1].text.strip()):
        number, count = number - 1, count + 1
        text = f"{lines[number].text.strip()} {text}" if key_of(lines[number].text) not in key_of(text) else text
    return replace(heading, text=text, line=number, taken=count)


def _bare(text: str) -> str:
    return key_of(_NUMBER.sub("", text.strip()))


def without_title(lines: Sequence[PdfLine], title: str) -> list[PdfLine]:
    """Take the first page's lines that say the title from the text."""
    wanted = key_of(title)
    for number, line in enumerate(lines):
        if line.page or not wanted:
            break
        for count in range(1, MAX_LINES + 2):
            if "".join(other.key for other in lines[number : number + count]) == wanted:
                return [*lines[:number], *lines[number + count :]]
    return list(lines)


def find_title(lines: Sequence[PdfLine], outline: Sequence[Heading] = ()) -> tuple[str, list[PdfLine]]:
    """Take the title off the first page: the largest print in its upper part that is no heading of the outline.

    Returns:
        The title, empty where nothing is larger than the text, and the lines that are left.
    """
    first = [line for line in lines if line.page == 0]
    if not first:
        return "", list(lines)
    half = (max(line.top for line in first) + min(line.bottom for line in first)) / 2
    upper = [line for line in first if line.top >= half and sum(map(str.isalpha, line.text)) > 2]
    largest = max((line.size for line in upper), default=0.0)
    if largest < TITLE_LARGER * body_size(lines):
        start, end = 0, _bold_on_top(lines)
    else:
        start = next(number for number, line in enumerate(first) if line in upper and line.size == largest)
        end = start
        while (
            end < len(first) and end - start < MAX_LINES + 1 and first[end].size > 0.97 * largest and first[end].bold == first[start].bold
        ):
            end += 1
    title = one_line(" ".join(line.text for line in first[start:end]))
    taken = {id(line) for line in first[start:end]}
    if _DEPTH.match(title) or any(_bare(heading.text) == _bare(title) for heading in outline if not heading.page):
        return "", list(lines)
    return (title, [line for line in lines if id(line) not in taken]) if len(title) <= MAX_TITLE_CHARS else ("", list(lines))


def _bold_on_top(lines: Sequence[PdfLine]) -> int:
    """Return how many lines on top of the first page are bold, where other lines that look like them have numbers, the next one a 1."""
    top = lines[0]
    count = next((number for number, line in enumerate(lines) if not line.bold or line.size != top.size or line.page), len(lines))
    alike = [line.text for line in lines[count:] if line.bold and abs(line.size - top.size) < 0.5]
    is_alone = all(map(_NUMBERED.match, alike)) or alike[0].startswith(("1 ", "1. "))
    is_highest = all(line.bottom <= top.bottom + 0.5 * top.size for line in lines if line.page == 0)
    is_name = (
        count <= MAX_LINES and not _NUMBERED.match(top.text) and not BULLET.match(top.text) and lines[count - 1].text[-1] not in ".,;:"
    )
    return count if is_alone and is_highest and is_name and count < len(lines) else 0


def find_headings(lines: Sequence[PdfLine], setting: Setting) -> list[Heading]:
    """Find headings by their looks: lines larger than the text, bold, in capitals or numbered, with nothing beside them.

    Returns:
        Headings; none where too much is set so, as on slides.
    """
    body = body_size(lines)
    numbered = _numbered_in_order(lines, setting)
    looks = [_look(number, lines, body, setting) or (number in numbered and (body, 0)) or None for number in range(len(lines))]
    looks = _without_terms(looks, lines, body)
    for marks in (looks, [look if look and look[0] >= LARGER * body else None for look in looks]):
        if sum(mark is not None for mark in marks) <= MOST * len(lines):
            marked = _levelled(list(_headings(lines, marks, setting)), marks)
            found = _levelled(_without_display(marked, lines, setting), marks)
            return found if any(heading.line + heading.taken < len(lines) for heading in found) else []
    return []


def _without_terms(looks: Sequence[Look | None], lines: Sequence[PdfLine], body: float) -> list[Look | None]:
    """Leave out lines as large as the text that begin where it does, if headings begin left of it: terms of lists, as in man pages."""
    edge = sorted(line.left for line in lines)[int(OUTDENTED_FRAC * len(lines))] if lines else 0.0
    hanging = sum(look is not None and line.left < edge - INDENT * body for look, line in zip(looks, lines, strict=True))
    if hanging < FEWEST_COUNTED:
        return list(looks)
    return [None if look and look[0] < LARGER * body and line.left > edge - 1 else look for look, line in zip(looks, lines, strict=True)]


def _headings(lines: Sequence[PdfLine], looks: Sequence[Look | None], setting: Setting) -> Iterator[Heading]:
    """Join the lines of each heading, and "Chapter 3" with the title below; leave out headings that are too long."""
    body = body_size(lines)
    number = 0
    while number < len(lines):
        count = 1
        while looks[number] and number + count < len(lines) and _goes_on(lines, number, count, body):
            count += 1
        if looks[number] and ALONE.fullmatch(lines[number].text.strip()) and number + count < len(lines) and looks[number + count]:
            count += 1
            while number + count < len(lines) and _goes_on(lines, number + 1, count - 1, body):
                count += 1
        text = joined(lines[number : number + count], setting)
        if looks[number] and count <= MAX_LINES and len(text) <= MAX_CHARS and text[-1] not in ".,;":
            yield Heading(DEEPEST, text, lines[number].page, line=number, taken=count)
        number += count


def _levelled(headings: Sequence[Heading], looks: Sequence[Look | None]) -> list[Heading]:
    """Give headings their levels: deeper ones have more numbers, or a smaller font."""
    look_of = {
        heading.line: max((look for look in looks[heading.line : heading.line + heading.taken] if look), default=None)
        for heading in headings
    }
    counts = Counter(look for heading in headings if (look := look_of[heading.line]))
    ranks = sorted((look for look, count in counts.items() if count > 1), reverse=True) or sorted(counts, reverse=True)
    told = [(heading, sum(rank > (look_of[heading.line] or rank) for rank in ranks), _DEPTH.match(heading.text)) for heading in headings]
    above = min((max(rank - depth[1].count("."), 0) for _, rank, depth in told if depth), default=0)
    levels = [2 + (min(above, 1) + depth[1].count(".") if depth else rank) for _, rank, depth in told]
    return [replace(heading, level=min(level, DEEPEST)) for (heading, *_), level in zip(told, levels, strict=True)]


def _without_display(headings: list[Heading], lines: Sequence[PdfLine], setting: Setting) -> list[Heading]:
    """Leave out what no text follows, as on covers, and authors under the title."""
    kept, is_item = list[Heading](), False
    for heading, following in itertools.zip_longest(headings, headings[1:]):
        end = heading.line + heading.taken
        is_empty = following is not None and following.line == end and following.level <= heading.level and not _is_over(heading, following)
        if not is_empty and not is_item and end < len(lines):
            kept.append(heading)
        is_item = is_empty and following is not None and _follows(heading.text, following.text)
    numbered = [heading.line for heading in kept if _DEPTH.match(heading.text)]
    first = min([_first_prose(lines, setting), *numbered])
    sizes = Counter(round(lines[heading.line].size) for heading in kept)
    body = body_size(lines)
    below = {number for number, line in enumerate(lines) if abs(line.size - body) < 0.08 * body} | {heading.line for heading in kept}
    kept = [heading for heading in kept if heading.page or not _DATED.search(heading.text)]
    later = {(round(lines[heading.line].size), lines[heading.line].bold) for heading in kept if heading.page}
    return [
        heading
        for heading in kept
        if heading.page
        or heading.line > first
        or heading.line in numbered
        or ((round(lines[heading.line].size), lines[heading.line].bold) in later and heading.line + heading.taken in below)
        or (heading.line + heading.taken == first and sizes[round(lines[heading.line].size)] > 1)
    ]


def _is_over(heading: Heading, following: Heading) -> bool:
    """Say whether a heading has a number, and the next one none or a deeper one."""
    one, other = _DEPTH.match(heading.text), _DEPTH.match(following.text)
    return one is not None and (other is None or other[1].count(".") > one[1].count("."))


def _follows(one: str, other: str) -> bool:
    """Say whether the number of a line is the next one: such lines without text between them are items of a list."""
    numbers = [int(match[1]) for text in (one, other) if (match := re.match(r"(\d{1,2})[.)]?\s", text))]
    return len(numbers) == 2 and numbers[1] == numbers[0] + 1


def _first_prose(lines: Sequence[PdfLine], setting: Setting) -> int:
    """Return where the text of the first page begins, below title and authors; -1 where none does."""
    first = [line.page == 0 and line.right - line.left > PROSE_FRAC * setting.width and len(line.text.split()) > 4 for line in lines]
    return next((number for number in range(len(first) - 2) if all(first[number : number + 3])), -1)


def _look(number: int, lines: Sequence[PdfLine], body: float, setting: Setting) -> Look | None:
    """Return the look of a line that may be a heading: its size and how it is set apart; None for text."""
    line = lines[number]
    text = line.text.strip()
    words = _NUMBER.sub("", text)
    is_odd = (
        _INDEXED.search(text)
        or not words
        or 2 * sum(map(str.isalpha, words)) < max(len(words), 5)
        or words[-1] in ".,;"
        or BULLET.match(text)
    )
    if is_odd or len(text) > MAX_CHARS or line.fixed or line.cells or line.is_aside:
        return None
    if line.size >= LARGER * body:
        return round(line.size), 2 * line.bold
    is_upper = text.isupper() and 2 * sum(map(str.isupper, text)) > sum(map(str.isalpha, text)) and not _SYMBOLS.search(text)
    if line.size < (0.85 if line.bold and is_upper else 0.97) * body or not (line.bold or is_upper):
        return None
    is_alone = line.right - line.left < SHORT_FRAC * setting.width and text[-1] != ":" and _stands_apart(number, lines, setting)
    return (round(body), line.bold + is_upper) if is_alone or (line.bold and _NUMBERED.match(text)) else None


def _stands_apart(number: int, lines: Sequence[PdfLine], setting: Setting) -> bool:
    """Say whether there is more room above a line than between lines, and text in another look below it."""
    line = lines[number]
    before = lines[number - 1] if number else None
    after = lines[number + 1] if number + 1 < len(lines) else None
    follows = before is not None and before.page == line.page and before.left < line.right and line.left < before.right
    room = (before.bottom - line.bottom) / max(line.size, 1.0) if before and follows else 9.0
    return (room < 0 or room > APART * setting.leading) and after is not None and not after.cells


def _numbered_in_order(lines: Sequence[PdfLine], setting: Setting) -> set[int]:
    """Return short lines that stand apart and are numbered from 1 or I on, at most one left out."""
    for names in (_NUMERALS, tuple(map(str, range(1, 100)))):
        found, at = set[int](), 0
        for number, line in enumerate(lines):
            match = _COUNTED.match(line.text)
            is_short = line.right - line.left < NUMBERED_FRAC * setting.width and line.text[-1] not in ".,;:" and not line.cells
            if match and match[1] in names[at : at + 2] and is_short and _stands_apart(number, lines, setting):
                found.add(number)
                at = names.index(match[1]) + 1
        if len(found) >= FEWEST_COUNTED:
            return found
    return set()


def _goes_on(lines: Sequence[PdfLine], first: int, count: int, body: float) -> bool:
    """Say whether a line belongs to the heading that began some lines before it."""
    line, before = lines[first + count], lines[first + count - 1]
    is_near = line.page == before.page and 0 < before.bottom - line.bottom < 1.6 * line.size
    alike = abs(line.size - before.size) < 0.1 and line.bold == before.bold and line.fixed == before.fixed
    middles = abs(line.left + line.right - before.left - before.right) / 2
    alike &= line.size >= LARGER * body or min(abs(line.left - before.left), middles) < INDENT * body or bool(_NUMBER.match(before.text))
    is_set_apart = line.bold or line.size >= LARGER * body or (line.text.isupper() and before.text.isupper())
    return is_near and alike and is_set_apart and not _NUMBERED.match(line.text.strip())
