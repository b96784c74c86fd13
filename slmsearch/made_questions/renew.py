"""Questions of pages that change: those about unchanged pages stay and keep their split, and users' corrections are added.

A correction is checked like any question: its answer is in its section, its wording finds the page, it repeats no other. It is trained on,
so the questions of its page leave the other splits.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import holds_answer
from slmsearch.corpus.records import Row, parse_question
from slmsearch.corpus.splits import assign_splits
from slmsearch.keys import content_key
from slmsearch.made_questions.cloze import Draft, Excerpt
from slmsearch.made_questions.links import add_two_hop
from slmsearch.made_questions.make import (
    CORRECTION,
    Filters,
    Kinds,
    MadeQuestions,
    Progress,
    QuestionWriter,
    excerpts_of,
    make_questions,
    make_row,
)

ACCEPTED = "accepted"
_NUMBERED = re.compile(r":paragraph_\d+\Z")
"""Id of a section that goes by its place: an edit above it gives it another, so that the others of its page count as well."""


@dataclass(frozen=True, slots=True)
class Correction:
    """Right answer according to a user."""

    id: str
    question: str
    answer: str
    section_id: str | None = None
    """Section that states it, if given."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Existing questions, and hashes of their pages."""

    rows: Sequence[Row]
    """Rows with `split`."""
    prints: Mapping[str, str]
    """Hashes of all pages at that time, by id."""
    splits: Mapping[str, str] = field(default_factory=dict)
    """Split of every page that was ever gold, by its id and by its hash: a page that was renamed, or comes back, keeps it."""
    unasked: Container[str] = ()
    """Ids of the sections that the language model is still to be asked about."""


NOTHING = Earlier((), {})
"""Value for a corpus without existing questions."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """Questions with their splits."""

    rows: tuple[Row, ...]
    made: MadeQuestions
    """Questions generated now."""
    kept: int
    """Number of questions kept."""
    corrections: Mapping[str, str]
    """Result by id: `accepted`, or the reason against."""
    left_test: int
    """Number of questions that are in `train` only because of a correction about their page."""


def print_pages(library: Library, made_by: Mapping[str, object] = MappingProxyType({})) -> dict[str, str]:
    """Hash every page, and what decides how questions are made of it."""
    return {page.id: content_key(title=page.title, content=page.content, **made_by) for page in library.pages()}


def renew_questions(
    filters: Filters,
    prints: Mapping[str, str],
    earlier: Earlier,
    corrections: Iterable[Correction] = (),
    two_hop: int = 0,
    writer: QuestionWriter | None = None,
    progress: Progress | None = None,
    kinds: Kinds = "written",
) -> Renewed:
    """Generate questions about new and changed pages and sections that were not reached, keep the others, and add corrections.

    Args:
        filters: filters of the pages and their index, with the limit of new questions.
        prints: result of `print_pages`; a page with another hash than before has changed.
        earlier: existing questions.
        corrections: corrections, the newest first; of several about one question the first that passes counts.
        two_hop: maximum number of two-hop questions.
        writer: language model that writes questions; None: all have gaps.
        progress: called with the number of pages done and their total.
        kinds: kinds of questions, where a model writes.

    Raises:
        JudgeError: the model's server does not answer.
        IndexUnusableError, EmbedderError: the index or its embedder failed.
    """
    unchanged = {page for page, made in prints.items() if earlier.prints.get(page) == made}
    kept = [row for row in earlier.rows if row["kind"] != CORRECTION and unchanged.issuperset(row["page_ids"])]
    filters.note(kept)
    drafts = {correction.id: _draft(correction, filters) for correction in corrections}
    states = {name: draft if isinstance(draft, str) else filters.refuse(draft) or ACCEPTED for name, draft in drafts.items()}
    changed = prints.keys() - unchanged
    made = make_questions(filters, 0, writer, progress, changed, kinds, earlier.unasked)
    if two_hop:
        made = add_two_hop(made, filters, 0, max(0, two_hop - sum(row["kind"] == "two_hop" for row in kept)), changed)
    corrected = [make_row(draft) for name, draft in drafts.items() if isinstance(draft, Draft) and states[name] == ACCEPTED]
    known = {page: split for page, content in prints.items() if (split := earlier.splits.get(page) or earlier.splits.get(content))}
    rows, moved = add_splits((*corrected, *kept, *made.rows), earlier.rows, filters.library, known)
    return Renewed(rows, made, len(kept), states, moved)


def _draft(correction: Correction, filters: Filters) -> Draft | str:
    """Return a draft for the section that states the answer, or the reason why there is none."""
    library, named = filters.library, correction.section_id
    if named is not None:
        section = library.section(named)
        if section is None:
            return "no such section"
        places = sorted(_excerpts_of(section.page_id, library), key=lambda excerpt: excerpt.section_id != named)
        if not _NUMBERED.search(named):
            places = [place for place in places if place.section_id == named]
    else:
        (hits,) = filters.search([correction.question])
        places = [excerpt for page_id in dict.fromkeys(hit.page_id for hit in hits) for excerpt in _excerpts_of(page_id, library)]
    for place in places:
        if holds_answer(place.text, correction.answer):
            return Draft(correction.question, correction.answer, CORRECTION, place)
    return "answer not in its section" if named else "answer in no section that the question finds"


def _excerpts_of(page_id: str, library: Library) -> Iterable[Excerpt]:
    page = library.page(page_id)
    return excerpts_of(page, library) if page else ()


def add_splits(
    rows: Sequence[Row], earlier: Sequence[Row], library: Library, known: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[Row, ...], int]:
    """Assign splits to questions: pages keep their split, and pages of corrections move to `train`.

    Args:
        rows: questions.
        earlier: questions of before, with `split`.
        library: pages.
        known: page id -> split of pages that no earlier question is about.

    Returns:
        The rows with `split`, without those that would join two splits, and the number in `train` only because of a correction.
    """
    by_id = {str(row["id"]): row for row in rows}
    questions = [parse_question(row, "a question made here", library.sections) for row in by_id.values()]
    had = {**known, **{page: str(row["split"]) for row in earlier if row["kind"] != CORRECTION for page in row["page_ids"]}}
    without = assign_splits([question for question in questions if question.kind != CORRECTION], known=had)
    without |= {str(row["id"]): str(row["split"]) for row in earlier if not row["page_ids"] and str(row["id"]) in without}
    dealt = {page: without[question.id] for question in questions if question.id in without for page in question.page_ids}
    corrected = {page: "train" for question in questions if question.kind == CORRECTION for page in question.page_ids}
    # What was left out because it joins two splits stays out: pages alone do not show it.
    kept = [question for question in questions if question.kind == CORRECTION or question.id in without]
    placed = assign_splits(kept, known=dealt | corrected)
    splits = {name: without[name] if name in without and not by_id[name]["page_ids"] else split for name, split in placed.items()}
    moved = sum(without.get(name, split) != split for name, split in splits.items())
    return tuple({**by_id[name], "split": split} for name, split in splits.items()), moved
