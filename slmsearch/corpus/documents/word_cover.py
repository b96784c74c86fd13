"""The title on the cover of a Word document that has no style of titles: the lines with the largest letters above all text."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from slmsearch.corpus.documents.text import one_line
from slmsearch.corpus.documents.word_styles import WORD, Styles, value

LARGER = 1.3
"""Smallest size of a title's letters, as a multiple of the size of the text's letters."""
MAX_CHARS = 200
MAX_LINES = 4
_MAX_COVER = 20
"""Paragraphs of a cover."""
_SAMPLE = 300
"""Paragraphs that tell how large text and headings are."""
_NEXT_LINE = 0.75
"""Size of the other lines of a title, measured by its largest."""


def find_cover_title(root: Any, styles: Styles) -> list[Any]:
    """Return the paragraphs that are the title on the cover; none where nothing above the first heading is large enough.

    A first heading that is larger than all others is a line of the cover.
    """
    found = [
        (paragraph, text, _level(paragraph, styles), _size(paragraph, styles)) for paragraph, text in islice(_paragraphs(root), _SAMPLE)
    ]
    sizes = Counter[int]()
    for _, text, _, size in found:
        sizes[size] += len(text)
    body = sizes.most_common(1)[0][0] if sizes else 0
    cover = []
    for number, line in enumerate(found[:_MAX_COVER]):
        others = [size for _, _, level, size in found[number + 1 :] if level]
        if line[2] and (number or not others or line[3] <= max(others)):
            break
        cover.append(line)
    largest = max((size for *_, size in cover), default=0)
    if not cover or largest < LARGER * body:
        return []
    first = next(number for number, line in enumerate(cover) if line[3] == largest)
    title: list[tuple[Any, str]] = []
    for paragraph, text, level, size in cover[first:]:
        if size < max(_NEXT_LINE * largest, LARGER * body) or (title and level):
            break
        title.append((paragraph, text))
    is_short = len(title) <= MAX_LINES and sum(len(text) + 1 for _, text in title) <= MAX_CHARS
    return [paragraph for paragraph, _ in title] if is_short else []


def _paragraphs(root: Any) -> Iterator[tuple[Any, str]]:
    """Yield the paragraphs outside tables that have text of their own, with it; those of text boxes where they are anchored."""
    for paragraph in root.iter(f"{WORD}p"):
        text = one_line("".join(part.text or "" for run in _runs(paragraph) for part in run.iterfind(f"{WORD}t")))
        if text and next(paragraph.iterancestors(f"{WORD}tc"), None) is None:
            yield paragraph, text


def _runs(paragraph: Any) -> Iterator[Any]:
    """Yield the runs of a paragraph, those in fields and controls, too, without those of text boxes that are anchored in it."""
    return (run for run in paragraph.iter(f"{WORD}r") if next(run.iterancestors(f"{WORD}p")) is paragraph)


def _level(paragraph: Any, styles: Styles) -> int:
    return styles.level(value(paragraph, "pPr/pStyle") or styles.default)


def _size(paragraph: Any, styles: Styles) -> int:
    """Return the size of most letters of a paragraph, in half points."""
    usual = styles.size(value(paragraph, "pPr/pStyle") or styles.default)
    sizes = Counter[int]()
    for run in _runs(paragraph):
        own = value(run, "rPr/sz") or ""
        sizes[int(own) if own.isdecimal() else usual] += len("".join(run.itertext(f"{WORD}t")))
    return sizes.most_common(1)[0][0]
