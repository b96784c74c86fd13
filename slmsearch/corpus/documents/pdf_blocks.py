"""Lines of a PDF to paragraphs, list items, rows of tables and code."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from slmsearch.corpus.documents.pdf_lines import Line
from slmsearch.corpus.documents.text import escape_heading, fenced, one_line

NEW_PARAGRAPH = 1.4
"""Distance of two lines, in usual ones, from which a paragraph ends."""
SHORT_FRAC = 0.8
"""A line shorter than this share of the usual, that ends a sentence, ends its paragraph."""
INDENT = 0.8
"""By which the first line of a paragraph begins further right, or a line of a list further left, in font sizes."""
OTHER_SIZE = 0.12
"""Share by which the font's size differs in another paragraph."""
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_DIVIDED = re.compile(r"([^\W\d_]+)-$")
_GOES_ON = re.compile(r"[^\W\d_]+")
_BULLET = re.compile(r"(?:[\u2022\u2023\u25aa\u25cf\u25e6\u2043\u2219\u00b7\u25a0*]|[-\u2013\u2014])\s+(?=\S)")
_NUMBERED = re.compile(r"\(?(?:\d{1,3}|[a-z])[.)]\s+\S")
_ENDS = tuple(".!?:;\u3002\uff01\uff1f")


@dataclass(frozen=True, slots=True)
class Setting:
    """How a document is set."""

    leading: float
    """Usual distance of two lines, in font sizes."""
    width: float
    """Of usual full lines, in points."""
    words: Mapping[str, int]
    """How often each word stands in it, lower case."""

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Self:
        """Measure a document."""
        distances = [
            (before.bottom - line.bottom) / line.size
            for before, line in itertools.pairwise(lines)
            if before.page == line.page and line.size and 0.5 < (before.bottom - line.bottom) / line.size < 3
        ]
        widths = sorted(line.right - line.left for line in lines)
        words = Counter(word.casefold() for line in lines for word in _WORD.findall(line.text))
        return cls(median(distances) if distances else 1.2, widths[int(0.8 * len(widths))] if widths else 0.0, words)


def blocks(lines: Sequence[Line], setting: Setting) -> Iterator[str]:
    """Yield the blocks of lines that stand under one heading, as Markdown."""
    waiting: list[Line] = []
    for line in lines:
        if waiting and _ends_before(line, waiting, setting):
            yield _block(waiting, setting)
            waiting = []
        waiting.append(line)
    if waiting:
        yield _block(waiting, setting)


def _ends_before(line: Line, waiting: Sequence[Line], setting: Setting) -> bool:
    """Say whether a paragraph ends before a line."""
    before = waiting[-1]
    if line.fixed != before.fixed or _is_row(line) != _is_row(before):
        return True
    ends_sentence = before.text.endswith(_ENDS)
    is_below = line.page == before.page and line.bottom < before.bottom
    if line.fixed:
        return False
    if abs(line.size - before.size) > OTHER_SIZE * max(line.size, before.size) or _BULLET.match(line.text):
        return True
    if not is_below:  # the next column or page
        return ends_sentence
    if before.bottom - line.bottom > NEW_PARAGRAPH * setting.leading * line.size:
        return True
    if _NUMBERED.match(line.text) and (ends_sentence or _NUMBERED.match(waiting[0].text)):
        return True
    moved = abs(line.left - min(other.left for other in waiting)) > INDENT * line.size
    is_short = before.right - before.left < SHORT_FRAC * setting.width
    return ends_sentence and (moved or is_short) and len(waiting) + is_short + moved > 1


def _is_row(line: Line) -> bool:
    return "  " in line.text.strip() and not line.fixed


def _block(lines: Sequence[Line], setting: Setting) -> str:
    if lines[0].fixed:
        return _code(lines)
    if _is_row(lines[0]):
        rows = (" | ".join(cell.strip() for cell in line.text.split("  ") if cell.strip()) for line in lines)
        return "\n".join(escape_heading(row) for row in rows)
    text = lines[0].text.strip()
    for line in lines[1:]:
        text = _joined(text, line.text.strip(), setting.words)
    bullet = _BULLET.match(text)
    return f"- {one_line(text[bullet.end() :])}" if bullet else escape_heading(one_line(text))


def _joined(text: str, following: str, words: Mapping[str, int]) -> str:
    """Join two lines; a divided word is made whole where the document has it whole, and keeps its hyphen elsewhere."""
    divided, rest = _DIVIDED.search(text), _GOES_ON.match(following)
    if divided is None or rest is None or not rest[0][0].islower():
        return f"{text} {following}"
    whole = (divided[1] + rest[0]).casefold()
    return (text[:-1] if words.get(whole) else text) + following


def _code(lines: Sequence[Line]) -> str:
    """Return lines of code between fences, each as far from the left as it is printed."""
    left = min(line.left for line in lines)
    widths = [(line.right - line.left) / len(line.text.strip()) for line in lines if line.text.strip()]
    width = max(median(widths) if widths else 1.0, 0.1)
    return fenced("\n".join(" " * min(round((line.left - left) / width), 60) + line.text.strip() for line in lines))
