"""Conversion of rows of a file to pages and questions, and back: every accepted spelling of a field, and errors that name the row.

Questions come in three spellings: the project's own (`page_ids`, `section_ids`); the SQuAD pack's (`page_id` and `section` = k, the k-th
`##` heading counted from 1); and wiki-trivia's (`filename`, which gives the page id). Other fields are ignored.

`answer` may be a list, as in NQ-open: the first is the answer, the others are aliases. `answerable: false` makes "I don't know" the answer,
as in MuSiQue, whose unanswerable rows still name the removed answer.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

from slmsearch.corpus.pages import Page, Section
from slmsearch.corpus.questions import UNANSWERABLE, UNKNOWN_ANSWER, Question
from slmsearch.errors import CorpusError
from slmsearch.keys import content_key

Row = Mapping[str, Any]
SectionsOf = Callable[[str], list[Section]]
"""Function that returns the sections of a page by its id; empty if there is no such page."""


def parse_page(row: Row, where: str) -> Page:
    """Parse a page from a row of `id`, `title`, `content` and optional `metadata`; errors give its location `where`.

    Raises:
        CorpusError: a field is missing or of a wrong type.
    """
    metadata = _get(row, "metadata", where, dict) or {}
    if metadata:  # as a corpus stores it
        metadata = json.loads(json.dumps(metadata, ensure_ascii=False, default=str).encode("utf-8", "replace"))
    return Page(_label(row, "id", where), _text(row, "title", where), _text(row, "content", where), metadata)


def write_rows(file: IO[bytes], rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as JSON, one per line."""
    file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def page_row(page: Page) -> dict[str, object]:
    """Return the row from which `parse_page` reads a page."""
    row: dict[str, object] = {"id": page.id, "title": page.title, "content": page.content}
    return row | {"metadata": dict(page.metadata)} if page.metadata else row


def parse_question(row: Row, where: str, sections_of: SectionsOf) -> Question:
    """Parse a question from a row, in any of the three spellings.

    Ids of missing pages and sections are kept: validation reports them all.

    Raises:
        CorpusError: a field is missing or of a wrong type.
    """
    question, is_answerable = _text(row, "question", where), _flag(row, "answerable", where)
    answer, *others = _answers(row, where) if is_answerable else [UNKNOWN_ANSWER]
    page_ids = _page_ids(row, where)
    section_ids = _section_ids(row, where, page_ids, sections_of)
    hops, kind = _get(row, "hops", where, int), _text(row, "kind", where) if row.get("kind") is not None else "plain"
    if row.get("id") is None:
        # The id depends on the content alone, not on the order of the file.
        question_id = f"q-{content_key(question=question, answer=answer, pages=page_ids, sections=section_ids)[:12]}"
    else:
        question_id = _label(row, "id", where)
    return Question(
        id=question_id,
        question=question,
        answer=answer,
        aliases=tuple(dict.fromkeys(alias for alias in (*others, *_labels(row, "aliases", where)) if alias != answer))
        if is_answerable
        else (),
        page_ids=page_ids,
        section_ids=section_ids,
        hops=len(section_ids) if hops is None else hops,
        kind=kind if is_answerable else UNANSWERABLE,
        entities=_labels(row, "entities", where),
        source=_text(row, "source", where) if isinstance(row.get("source"), str) else "",  # other data sets may store anything there
        split=row.get("split"),
    )


def _answers(row: Row, where: str) -> tuple[str, ...]:
    """Return the right answers; a list, as in NQ-open, holds several equally right ones."""
    if not isinstance(row.get("answer"), list):
        return (_label(row, "answer", where),)
    answers = _labels(row, "answer", where)
    if not answers:
        raise CorpusError(f"{where}: 'answer' is an empty list; write an answer, or answerable: false")
    return answers


def _page_ids(row: Row, where: str) -> tuple[str, ...]:
    if row.get("page_ids") is not None:
        return _labels(row, "page_ids", where)
    if row.get("page_id") is not None:
        return (_label(row, "page_id", where),)
    if row.get("filename") is not None:
        # Wiki-trivia's page ids are its file names in this form.
        return (_text(row, "filename", where).removesuffix(".md").lower().replace(" ", "_"),)
    return ()


def _section_ids(row: Row, where: str, page_ids: tuple[str, ...], sections_of: SectionsOf) -> tuple[str, ...]:
    if row.get("section_ids") is not None:
        return _labels(row, "section_ids", where)
    number = _get(row, "section", where, int)
    if number is None or not page_ids:
        return ()
    seconds = [section for section in sections_of(page_ids[-1]) if section.level == 2]
    if 1 <= number <= len(seconds):
        return (seconds[number - 1].id,)
    return (f"{page_ids[-1]}:##{number}",)


def _label(row: Row, field: str, where: str) -> str:
    """Return an id or an answer; numbers keep their spelling."""
    return _cleaned(_get(row, field, where, str, int, float, required=True), field, where)


def _labels(row: Row, field: str, where: str) -> tuple[str, ...]:
    values = _get(row, field, where, list, tuple) or ()
    for value in values:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise CorpusError(f"{where}: {field!r} must be a list of strings; it holds {type(value).__name__}")
    return tuple(_cleaned(value, field, where) for value in values)


def _text(row: Row, field: str, where: str) -> str:
    return _cleaned(_get(row, field, where, str, required=True), field, where)


def _flag(row: Row, field: str, where: str) -> bool:
    """Return a truth value; a missing one is true."""
    value = row.get(field, True)
    if value is not None and not isinstance(value, bool):
        raise CorpusError(f"{where}: field {field!r} must be true or false, not {json.dumps(value, default=str)[:40]}")
    return value is not False


def _cleaned(value: str | int | float, field: str, where: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise CorpusError(f"{where}: {field!r} is {value}, which stands for a missing number; write the value, or remove the row")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(f"{where}: {field!r} holds half of a surrogate pair, which UTF-8 has no bytes for; remove it") from error
    return text if field == "content" else text.strip()


def _get(row: Row, field: str, where: str, *types: type, required: bool = False) -> Any:
    value = row.get(field)
    if value is None:
        if required:
            raise CorpusError(f"{where}: field {field!r} is missing; it holds {', '.join(sorted(map(str, row))) or 'nothing'}")
        return None
    # True is an int to Python, but not a valid number here.
    if isinstance(value, bool) or not isinstance(value, types):
        raise CorpusError(f"{where}: field {field!r} must be {' or '.join(t.__name__ for t in types)}, not {type(value).__name__}")
    return value
