"""What an episode found and read, measured against a question's gold pages and sections."""

from dataclasses import dataclass

from slmsearch.corpus.questions import Question
from slmsearch.searcher.episode import Episode, Turn
from slmsearch.searcher.tools import READ, SEARCH, VIEW


@dataclass(frozen=True, slots=True)
class Evidence:
    """Search metrics of one episode; None where the question does not say what is gold."""

    first_hit: bool | None
    any_hit: bool | None
    gold_read: bool | None
    found_frac: float = 0.0
    """Share of the gold pages that some search showed; 0.0 where none is known."""
    read_frac: float = 0.0
    """Share of the gold sections that were read; 0.0 where none is known."""


def gather_evidence(question: Question, episode: Episode) -> Evidence:
    """Measure which gold pages the searches showed and which gold sections were read."""
    searches = [turn for turn in episode.turns if turn.call is not None and turn.call.name == SEARCH]
    first_hit = any_hit = gold_read = None
    found_frac = read_frac = 0.0
    if question.page_ids:
        first_hit = bool(searches) and question.page_ids[0] in shown_pages(searches[0])
        shown = {page_id for turn in searches for page_id in shown_pages(turn)}
        any_hit = shown.issuperset(question.page_ids)
        found_frac = len(shown.intersection(question.page_ids)) / len(set(question.page_ids))
    if question.section_ids:
        read = {section_id for turn in episode.turns for section_id in read_sections(turn)}
        gold_read = read.issuperset(question.section_ids)
        read_frac = len(read.intersection(question.section_ids)) / len(set(question.section_ids))
    return Evidence(first_hit, any_hit, gold_read, found_frac, read_frac)


def shown_pages(turn: Turn) -> tuple[str, ...]:
    """Pages a turn's search showed; empty for anything but a served search."""
    return turn.result.page_ids if turn.result is not None and _is_served(turn, SEARCH) else ()


def read_sections(turn: Turn) -> tuple[str, ...]:
    """Sections a turn read; empty for anything but a served read."""
    return turn.result.section_ids if turn.result is not None and _is_served(turn, READ) else ()


def opened_pages(turn: Turn) -> tuple[str, ...]:
    """Pages a turn viewed or read a section of."""
    return turn.result.page_ids if turn.result is not None and (_is_served(turn, VIEW) or _is_served(turn, READ)) else ()


def _is_served(turn: Turn, tool: str) -> bool:
    return turn.call is not None and turn.call.name == tool and turn.result is not None and turn.result.served
