"""Sources of an answer: the sections that an episode read, and the sentences in them that state it."""

from collections.abc import Iterable
from dataclasses import dataclass

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page, Section
from slmsearch.corpus.questions import CLOSED, holds_answer, is_passage
from slmsearch.environments.searcher.evidence import read_sections
from slmsearch.episodes.episode import Episode
from slmsearch.judge.exact import is_abstention
from slmsearch.judge.typed import readings
from slmsearch.made_questions.cloze import find_spans, read_code
from slmsearch.made_questions.sentences import plain_paragraphs, split_sentences

QUOTED_CHARS = 600


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
    """Page of a PDF, or slide, on which the section begins, from 1; None if it is not known."""


def find_sources(episode: Episode, library: Library) -> list[AnswerSource]:
    """List the sections that were read, in order, each once."""
    sources, answer, quotation = [], episode.answer or "", episode.quotation
    for section_id in dict.fromkeys(section_id for turn in episode.turns for section_id in read_sections(turn)):
        section = library.section(section_id)
        page = library.page(section.page_id) if section else None
        if section and page:
            is_quoted = quotation is not None and quotation.section_id == section_id
            support = answer if is_quoted else find_support(section.text, answer)
            text, path = _quote(section.text, answer, support), str(page.metadata.get("path", ""))
            number = _find_page(page, section, library)
            sources.append(AnswerSource(page.id, page.title, section_id, section.heading, text, is_quoted, support, path, number))
    return sources


def _find_page(page: Page, section: Section, library: Library) -> int | None:
    """Return the page of a PDF on which a section begins, by its heading; the second of two equal headings has the second page."""
    numbers = [number for heading, number in page.metadata.get("section_pages", ()) if heading == section.heading]
    same = [other.id for other in library.sections(page.id) if other.heading == section.heading]
    return dict(zip(same, numbers, strict=False)).get(section.id)


def is_supported(episode: Episode, sources: Iterable[AnswerSource]) -> bool | None:
    """Return whether a section that was read states the answer; None for no answer, "I don't know", yes and no, which no text states."""
    answer = episode.answer
    if answer is None or is_abstention(answer) or answer.strip().casefold() in CLOSED:
        return None
    return any(source.supports for source in sources)


def find_support(text: str, answer: str) -> str:
    """Return the first sentence of a Markdown text, or else its first line, that states an answer; empty if none does.

    A sentence states the words of the answer, or a number, date or name that is read as the same value (`judge/typed.py`).
    """
    if not answer.strip() or is_abstention(answer):
        return ""
    sentences = [sentence for paragraph in plain_paragraphs(text, keep_code=True) for sentence in split_sentences(paragraph)]
    lines = [*sentences, *(line.strip() for line in text.splitlines())]
    if whole := next((line for line in lines if holds_answer(line, answer)), ""):
        return whole
    if is_passage(answer):
        return ""
    value = readings(answer)
    return next((line for line in sentences if any(not value.isdisjoint(readings(span.text)) for span in find_spans(*read_code(line)))), "")


def _quote(text: str, answer: str, support: str) -> str:
    """Cut a text to the excerpt, with the sentence that states the answer, or the answer itself, in the middle if the text holds it."""
    places = ((text.casefold().find(part.casefold()), part) for part in (support, answer) if part)
    found, part = next((place for place in places if place[0] >= 0), (-1, ""))
    if found < 0:
        return text[:QUOTED_CHARS]
    size = max(QUOTED_CHARS, len(part))
    start = min(max(0, found - (size - len(part)) // 2), max(0, len(text) - size))
    return text[start : start + size]
