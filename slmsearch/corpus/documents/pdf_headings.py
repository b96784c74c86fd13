"""Where a PDF's headings stand: those of its outline as they are printed, or, without one, lines in larger fonts."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slmsearch.corpus.documents.pdf_lines import Line, key_of
from slmsearch.corpus.documents.text import one_line

MAX_LINES = 3
"""Of a printed heading."""
LARGER = 1.1
"""Size of a heading's font, in that of the text, where there is no outline."""
TITLE_LARGER = 1.25
MAX_CHARS, MAX_TITLE_CHARS = 120, 200
MOST = 0.2
"""Share of lines in larger fonts from which they are no headings: slides, posters."""
DEEPEST = 4
_NUMBER = re.compile(
    r"^(?:(?:chapter|section|part|appendix|annex|kapitel|abschnitt|anhang|teil|chapitre|partie|annexe)\s+)?"
    r"(?:[A-Z]?\d+(?:\.\d+)*|[A-Z](?:\.\d+)*|[IVXLC]+)[.:)]?\s+",
    re.IGNORECASE,
)
_ALONE = re.compile(
    r"(?:chapter|part|appendix|annex|kapitel|anhang|teil|chapitre|partie|annexe)\s+(?:\d+|[A-Z]|[IVXLC]+)\W?", re.IGNORECASE
)
_NUMBERED = re.compile(r"(?:[A-Z]|\d+)(?:\.\d+)*\.?\s+[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading, and where it stands."""

    level: int
    text: str
    page: int
    """From 0."""
    height: float | None = None
    """Where on its page the outline points to, in points from below."""
    line: int = -1
    """Number of the first line that it takes the place of, or stands before."""
    taken: int = 0
    """Lines that it takes the place of."""


def body_size(lines: Sequence[Line]) -> float:
    """Return the size of the font in which most text is set."""
    sizes = Counter[float]()
    for line in lines:
        sizes[round(2 * line.size) / 2] += len(line.text)
    return sizes.most_common(1)[0][0] if sizes else 0.0


def place_headings(lines: Sequence[Line], outline: Sequence[Heading]) -> list[Heading]:
    """Find each heading of an outline among the lines of its page, whichever of the two has a number; else stand it where it points to."""
    on_page: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        on_page[line.page].append(number)
    starts = sorted(on_page)
    placed, used = [], set[int]()
    for heading in outline:
        numbers = on_page.get(heading.page, [])
        found = _printed(heading, lines, [number for number in numbers if number not in used])
        if found is None:
            later = next((on_page[page][0] for page in starts if page >= heading.page), len(lines))
            below = (number for number in numbers if heading.height is not None and lines[number].bottom < heading.height)
            found = replace(heading, line=next(below, later))
        used.update(range(found.line, found.line + found.taken))
        placed.append(found)
    return sorted(placed, key=lambda heading: heading.line)


def _printed(heading: Heading, lines: Sequence[Line], numbers: Sequence[int]) -> Heading | None:
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
    if best is None:
        return None
    *_, number, count = best
    text = one_line(" ".join(line.text for line in lines[number : number + count]))
    text = text if _NUMBER.match(text) and not _NUMBER.match(heading.text) else heading.text
    if number and lines[number - 1].page == heading.page and _ALONE.fullmatch(lines[number - 1].text.strip()):
        number, count = number - 1, count + 1
        text = f"{lines[number].text.strip()} {text}" if key_of(lines[number].text) not in key_of(text) else text
    return replace(heading, text=text, line=number, taken=count)


def _bare(text: str) -> str:
    return key_of(_NUMBER.sub("", text.strip()))


def find_title(lines: Sequence[Line], outline: Sequence[Heading] = ()) -> tuple[str, list[Line]]:
    """Take the title off the first page: what is printed largest in its upper part, and is no heading of the outline.

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
        return "", list(lines)
    start = next(number for number, line in enumerate(first) if line in upper and line.size == largest)
    end = start
    while end < len(first) and end - start < MAX_LINES + 1 and first[end].size > 0.97 * largest:
        end += 1
    title = one_line(" ".join(line.text for line in first[start:end]))
    taken = {id(line) for line in first[start:end]}
    if any(_bare(heading.text) == _bare(title) for heading in outline):
        return "", list(lines)
    return (title, [line for line in lines if id(line) not in taken]) if len(title) <= MAX_TITLE_CHARS else ("", list(lines))


def find_headings(lines: Sequence[Line]) -> list[Heading]:
    """Find headings by their fonts: larger than the text, or bold and numbered; none where too much is set so."""
    body = body_size(lines)
    marked = [_looks_like_heading(line, body) for line in lines]
    if sum(marked) > MOST * len(lines):
        return []
    sizes = sorted({round(line.size) for line, is_heading in zip(lines, marked, strict=True) if is_heading}, reverse=True)
    found: list[Heading] = []
    number = 0
    while number < len(lines):
        count = int(marked[number])
        while 0 < count < MAX_LINES and number + count < len(lines) and _goes_on(lines, number, count):
            count += 1
        if count:
            text = one_line(" ".join(line.text for line in lines[number : number + count]))
            level = min(2 + sizes.index(round(lines[number].size)), DEEPEST)
            found.append(Heading(level, text, lines[number].page, None, number, count))
        number += max(count, 1)
    return found if any(heading.line + heading.taken < len(lines) for heading in found) else []


def _looks_like_heading(line: Line, body: float) -> bool:
    text = line.text.strip()
    is_short = len(text) <= MAX_CHARS and sum(map(str.isalpha, text)) > 2 and text[-1] not in ".,;"
    set_apart = line.size >= LARGER * body or (line.bold and line.size >= 0.97 * body and _NUMBERED.match(text))
    return bool(is_short and set_apart and not line.fixed)


def _goes_on(lines: Sequence[Line], first: int, count: int) -> bool:
    """Say whether a line belongs to the heading that began some lines before it."""
    line, before = lines[first + count], lines[first + count - 1]
    is_near = line.page == before.page and 0 < before.bottom - line.bottom < 1.6 * line.size
    alike = abs(line.size - before.size) < 0.1 and line.bold == before.bold and line.fixed == before.fixed
    return is_near and alike and len(line.text) <= MAX_CHARS and not _NUMBERED.match(line.text.strip())
