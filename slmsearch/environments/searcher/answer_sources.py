"""Sources of an answer: the sections that an episode read."""

from dataclasses import dataclass

from slmsearch.corpus.library import Library
from slmsearch.environments.searcher.evidence import read_sections
from slmsearch.episodes.episode import Episode

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


def find_sources(episode: Episode, library: Library) -> list[AnswerSource]:
    """List the sections that were read, in order, each once."""
    sources, answer, quotation = [], episode.answer or "", episode.quotation
    for section_id in dict.fromkeys(section_id for turn in episode.turns for section_id in read_sections(turn)):
        section = library.section(section_id)
        page = library.page(section.page_id) if section else None
        if section and page:
            is_quoted = quotation is not None and quotation.section_id == section_id
            sources.append(AnswerSource(page.id, page.title, section_id, section.heading, _quote(section.text, answer), is_quoted))
    return sources


def _quote(text: str, answer: str) -> str:
    """Cut a text to the excerpt, with the answer in the middle if the text holds it."""
    found = text.casefold().find(answer.casefold()) if answer else -1
    if found < 0:
        return text[:QUOTED_CHARS]
    size = max(QUOTED_CHARS, len(answer))
    start = min(max(0, found - (size - len(answer)) // 2), max(0, len(text) - size))
    return text[start : start + size]
