"""Lines of sections that an answer may quote, and the lines that state a passage.

The lines of a section are those with text below its heading, counted from 1. The heading and blank lines are not counted: a search writes
the section's id in the place of the heading, and leaves out the blank lines around a text. A section that is shown in parts is counted as a
whole. Between quoted lines, blank lines stay.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from slmsearch.corpus.pages import Section
from slmsearch.episodes.episode import Quotation
from slmsearch.judge.exact import PASSAGE_F1, normalise_answer

_LINE = re.compile(r"^.*\S.*$", re.MULTILINE)


def body_of(section: Section) -> str:
    """Return a section's text without its heading, which a section above the first heading and a whole page do not have."""
    return section.text.partition("\n")[2].strip() if section.text.startswith("#") else section.text.strip()


def find_lines(section: Section) -> list[tuple[int, int]]:
    """Return start and end of each line that counts, as places in the section's body."""
    return [found.span() for found in _LINE.finditer(body_of(section))]


def find_quotation(sections: Iterable[Section], passage: str) -> Quotation | None:
    """Find the section, or the run of its lines, that covers a passage best, by token F1.

    Of equally good ones it is the shortest, then the first. None if even the best would be a wrong answer.
    """
    gold = normalise_answer(passage).split()
    best, found = 0.0, None
    for section in sections:
        body, spans = body_of(section), find_lines(section)
        rows = [normalise_answer(body[start:end]).split() for start, end in spans]
        score, _, lines = max(_score_runs(rows, gold), key=itemgetter(0, 1), default=(0.0, 0, None))
        if score > best:
            best, found = score, Quotation(section.id, None if lines == (1, len(rows)) else lines)
    return found if best >= PASSAGE_F1 else None


def _score_runs(rows: Sequence[Sequence[str]], gold: Sequence[str]) -> Iterator[tuple[float, int, tuple[int, int]]]:
    """Score runs of lines: token F1, length (negative), first and last line; runs too long to be right are left out."""
    longest = len(gold) * (2 / PASSAGE_F1 - 1)
    for first in range(len(rows)):
        left, shared, size = Counter(gold), 0, 0
        for last in range(first, len(rows)):
            for token in rows[last]:
                shared += left[token] > 0
                left[token] -= 1
            size += len(rows[last])
            if size > longest:
                break
            yield 2 * shared / ((size + len(gold)) or 1), first - last, (first + 1, last + 1)
