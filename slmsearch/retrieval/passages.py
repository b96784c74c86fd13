"""Passages of a page, the texts that are embedded: its bare title, and the text of each section, a long one in several passages.

Measured on the SQuAD pack (44 pages, 824 sections of about 1,900 characters, 400 questions): with passages of 1,000 characters the gold
page is among the first four for 98 % of the questions and the best passage is in the gold section for 64 %; with only the first 1,000
characters of each section 96 % and 46 %. Title and heading before the text raise the second figure on a generated world from 19 % (text
alone) to 54 %. The embedder reads 256 tokens: 1,000 characters of English, but hardly more letters than that of other scripts. So a letter
that is not Latin counts as four characters, a Korean syllable as nine.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from slmsearch.corpus.library import Library
from slmsearch.corpus.sections import own_texts

CHUNKER_VERSION = 3
"""Version of the chunking, part of the index key: raise it if the passages of the same page change."""
_FOREIGN, _KOREAN = re.compile("[\u0370-\u1dff\u2e80-\ud7ff\uf900-\uffef\U00020000-\U0003ffff]"), re.compile("[\uac00-\ud7a3]")
_PAD = "\uffff"


@dataclass(frozen=True, slots=True)
class Passage:
    """Embedded text with its page and section."""

    page_id: str
    section_id: str
    text: str


def make_passages(library: Library, max_chars: int) -> Iterator[Passage]:
    """Yield the passages of all pages, a page's together, the title first.

    The title is a separate passage, so that a query with a page's exact title finds it with similarity 1, even if other titles are similar.
    """
    for page in library.pages():
        sections = library.sections(page.id)
        yield Passage(page.id, sections[0].id, page.title)
        for section, text in zip(sections, own_texts(page), strict=True):
            place = page.title if section.level < 2 else f"{page.title} — {section.heading}"
            place = _padded(place)[: max_chars // 2]
            for piece in _pieces(_padded(" ".join(text.split())), max_chars - len(place) - 2):
                yield Passage(page.id, section.id, f"{place}: {piece}".replace(_PAD, ""))


def _padded(text: str) -> str:
    """Fill a text up to the length for which it counts."""
    return text if text.isascii() else _FOREIGN.sub(rf"{_PAD * 3}\g<0>", _KOREAN.sub(rf"{_PAD * 5}\g<0>", text))


def _pieces(text: str, room: int) -> list[str]:
    """Cut a text at spaces into the fewest pieces of at most `room` characters, of about equal size."""
    if len(text) <= room:
        return [text] if text else []
    count = -(-len(text) // room)
    # A little more than the mean, so that the rests at word ends do not add up to another piece.
    width = min(room, -(-len(text) // count) + 20)
    return textwrap.wrap(text, width, break_on_hyphens=False)
