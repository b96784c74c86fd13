"""Sources of an answer: the sections that an episode read, and the sentences in them that state it."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from math import inf

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page, Section
from slmsearch.corpus.questions import CLOSED, content_words, holds_answer, is_passage
from slmsearch.environments.searcher.evidence import read_sections
from slmsearch.environments.searcher.quoting import body_of
from slmsearch.episodes.episode import Episode
from slmsearch.judge.exact import is_abstention
from slmsearch.judge.typed import readings
from slmsearch.made_questions.cloze import find_spans, read_code
from slmsearch.made_questions.sentences import plain_paragraphs, split_sentences

QUOTED_CHARS = 600
_GO_ON = re.compile(r"\n\(page \d+ of \d+; go on with [^\n]*\)\Z")
"""Line below a part of a section."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """A section that was read."""

    page_id: str
    title: str
    section_id: str
    heading: str
    text: str
    """Excerpt of at most `QUOTED_CHARS` characters, around the answer if the section holds it; never shorter than such an answer."""
    quoted: bool = False
    """True if the answer is this section, or lines of it."""
    supports: str = ""
    """Sentence or line that states the answer: its words, or the same number, date or name; empty if the section does not state it."""
    path: str = ""
    """File of the page in its folder; empty if the page is no document of a folder."""
    page: int | None = None
    """Page of a PDF, or slide, on which the supporting sentence begins, or else the section, from 1; None if it is not known."""
    under: tuple[str, ...] = ()
    """Headings above the section's, the outermost first, without the title."""


def find_sources(episode: Episode, library: Library, question: str = "") -> list[AnswerSource]:
    """List the sections that were read, in order, each once; of several sentences that state the answer the nearest to the question."""
    sources, answer, quotation = [], episode.answer or "", episode.quotation
    for section_id in dict.fromkeys(section_id for turn in episode.turns for section_id in read_sections(turn)):
        section = library.section(section_id)
        page = library.page(section.page_id) if section else None
        if section and page:
            is_quoted = quotation is not None and quotation.section_id == section_id
            support = answer if is_quoted else find_support(_shown(section, episode), answer, question)
            text, path = _quote(section.text, answer, support), str(page.metadata.get("path", ""))
            sections = library.sections(page.id)
            number, under = _find_page(page, section, sections, support or answer), _find_above(section, sections, page.title)
            sources.append(AnswerSource(page.id, page.title, section_id, section.heading, text, is_quoted, support, path, number, under))
    return sources


def _find_above(section: Section, sections: Sequence[Section], title: str) -> tuple[str, ...]:
    """Return the headings above a section's, from the sections of its page in their order."""
    above: list[Section] = []
    for other in sections:
        above = [one for one in above if one.level < other.level]
        if other.id == section.id:
            break
        above.append(other)
    return tuple(one.heading for one in above if one.heading != title)


def _find_page(page: Page, section: Section, sections: Sequence[Section], part: str) -> int | None:
    """Return the page of a PDF on which a part of a section begins, else the section, by its heading.

    The second of two equal headings has the second page. Where another page begins within the section, its first words stand there; none
    does after the page on which the next section begins.
    """
    numbers: dict[str, list[int]] = defaultdict(list)
    for heading, number in page.metadata.get("section_pages", ()):
        numbers[heading].append(number)
    begins = {other.id: numbers[other.heading].pop(0) for other in sections if numbers[other.heading]}
    first_words = page.metadata.get("page_begins", ())
    if (found := begins.get(section.id, 1 if first_words and section.id == sections[0].id else None)) is None:
        return None
    rest = dropwhile(lambda other: other.id != section.id, sections)
    last = next((begins[other.id] for other in islice(rest, 1, None) if other.level <= section.level and other.id in begins), inf)
    text = _bare(section.text)
    end, place = text.find(_bare(part)), 0
    for number, first in first_words:
        if not found < number <= last or 2 * len(words := _bare(first)) <= len(first):
            continue  # what is left of a line to write on, or of dots, may stand anywhere
        if (begin := text.find(words, place)) >= 0:
            if begin > end:
                break
            found, place = number, begin
    return found


def _bare(text: str) -> str:
    """Write the words of a text without the marks between them, in which a sentence and the Markdown that it was read from differ."""
    return " ".join(("", *_WORD.findall(text.casefold())))


def is_supported(episode: Episode, sources: Iterable[AnswerSource]) -> bool | None:
    """Return whether a section that was read states the answer; None for no answer, "I don't know", yes and no, which no text states."""
    answer = episode.answer
    if answer is None or is_abstention(answer) or answer.strip().casefold() in CLOSED:
        return None
    return any(source.supports for source in sources)


def _shown(section: Section, episode: Episode) -> str:
    """Return the parts of a section's text that an episode showed, in their order; all of it where a program read it."""
    body, places = body_of(section), set[tuple[int, int]]()
    begin = section.text.find(body)
    for made in (made for turn in episode.turns for made in turn.made if section.id in made.result.section_ids):
        if not made.result.text:
            return section.text
        part = _GO_ON.sub("", made.result.text)
        if (start := section.text.find(part)) >= 0:
            places.add((start, start + len(part)))
        else:  # a search shows the beginnings of several
            places.add((begin, begin + bisect_left(range(len(body)), True, key=lambda end: body[: end + 1] not in made.result.text)))
    parts: list[tuple[int, int]] = []
    for start, stop in sorted(places):
        if parts and start <= (before := parts[-1])[1]:
            parts[-1] = (before[0], max(before[1], stop))
        else:
            parts.append((start, stop))
    return "\n\n".join(section.text[start:stop] for start, stop in parts)


def find_support(text: str, answer: str, question: str = "") -> str:
    """Return a sentence of a Markdown text, or else a line, that states an answer; empty if none does.

    A sentence states the words of the answer, or a number, date or name that is read as the same value (`judge/typed.py`). Of several
    that do it is the one with most words of the question, of equal ones the first.
    """
    asked = content_words(question)

    def choose(found: Iterable[str]) -> str:
        return max(found, key=lambda line: len(asked & content_words(line)), default="")

    if not answer.strip() or is_abstention(answer):
        return ""
    sentences = [sentence for paragraph in plain_paragraphs(text, keep_code=True) for sentence in split_sentences(paragraph)]
    lines = [line.strip() for line in text.splitlines()]
    for kept in (sentences, lines):
        if whole := choose(line for line in kept if holds_answer(line, answer)):
            return whole
    if is_passage(answer):
        return ""
    value = readings(answer)
    return choose(line for line in sentences if any(not value.isdisjoint(readings(span.text)) for span in find_spans(*read_code(line))))


def _quote(text: str, answer: str, support: str) -> str:
    """Cut a text to the excerpt, with the sentence that states the answer, or the answer itself, in the middle if the text holds it."""
    found = next(filter(None, (_find(text, part) for part in (support, answer) if part)), None)
    if found is None:
        return text[:QUOTED_CHARS]
    length = found.end() - found.start()
    size = max(QUOTED_CHARS, length)
    start = min(max(0, found.start() - (size - length) // 2), max(0, len(text) - size))
    return text[start : start + size]


def _find(text: str, part: str) -> re.Match[str] | None:
    """Find a part of a text as it is written, or else its words, whatever marks stand between them in the text."""
    words = r"[\W_]+".join(map(re.escape, _WORD.findall(part)))
    exact = re.search(re.escape(part), text, re.IGNORECASE)
    return exact or (re.search(rf"(?<![^\W_]){words}(?![^\W_])", text, re.IGNORECASE) if words else None)
