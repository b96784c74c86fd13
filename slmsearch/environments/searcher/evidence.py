"""Evidence of an episode: pages found and sections read, compared with a question's gold pages and sections."""

from dataclasses import dataclass

from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.tools import READ, SEARCH, VIEW
from slmsearch.episodes.episode import CallMade, Episode, Turn


@dataclass(frozen=True, slots=True)
class Evidence:
    """Search metrics of one episode; None where the question names no gold."""

    first_hit: bool | None
    any_hit: bool | None
    gold_read: bool | None
    read_frac: float = 0.0
    """Share of the gold sections that were read; 0.0 where none is known."""


def gather_evidence(question: Question, episode: Episode) -> Evidence:
    """Measure which gold pages the searches showed and which gold sections were read."""
    first_hit = any_hit = gold_read = None
    read_frac = 0.0
    if question.page_ids:
        first_hit = question.page_ids[0] in _first_shown(episode)
        shown = {page_id for turn in episode.turns for page_id in shown_pages(turn)}
        any_hit = shown.issuperset(question.page_ids)
    if question.section_ids:
        read = {section_id for turn in episode.turns for section_id in read_sections(turn)}
        gold_read = read.issuperset(question.section_ids)
        read_frac = len(read.intersection(question.section_ids)) / len(set(question.section_ids))
    return Evidence(first_hit, any_hit, gold_read, read_frac)


def shown_pages(turn: Turn) -> tuple[str, ...]:
    """Return the pages that a turn's searches showed; empty for all but served searches."""
    return tuple(page_id for made in turn.made if _is_served(made, SEARCH) for page_id in made.result.page_ids)


def read_sections(turn: Turn) -> tuple[str, ...]:
    """Return the sections whose text a turn showed: those that it read, and those that a search showed with their text."""
    return tuple(section_id for made in turn.made if _is_served(made, READ, SEARCH) for section_id in made.result.section_ids)


def opened_pages(turn: Turn) -> tuple[str, ...]:
    """Return the pages that a turn viewed, or whose text it showed."""
    viewed = (page_id for made in turn.made if _is_served(made, VIEW, READ) for page_id in made.result.page_ids)
    searched = (section_id for made in turn.made if _is_served(made, SEARCH) for section_id in made.result.section_ids)
    return (*viewed, *(section_id.rpartition(":")[0] for section_id in searched))


def _first_shown(episode: Episode) -> tuple[str, ...]:
    """Return the pages that the first search showed, if it was served."""
    made = next((made for turn in episode.turns for made in turn.made if made.call.name == SEARCH), None)
    return made.result.page_ids if made is not None and made.result.served else ()


def _is_served(made: CallMade, *tools: str) -> bool:
    return made.call.name in tools and made.result.served
