"""Rows in SQuAD's form: `title`, one paragraph of that article as `context`, a `question` on it, and the annotators' answers as
`answers.text`.

The rows of a title become one page: its distinct paragraphs in order under `# Title`, `SECTION_PARAGRAPHS` per `## Section k`, since the
rows lack the article's own headings. Rows of any other kind are unchanged.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.paragraphs import find_paragraph, split_paragraphs
from slmsearch.corpus.questions import UNANSWERABLE, UNKNOWN_ANSWER
from slmsearch.corpus.records import Row

SECTION_PARAGRAPHS = 3
_IN_NO_ID = re.compile(r"[\s:]")


def join_pages(rows: Iterable[tuple[Row, str]]) -> Iterator[tuple[Row, str]]:
    """Yield one page for all rows of a title, with the location of the first row."""
    titles: dict[str, tuple[str, str]] = {}
    paragraphs: dict[str, dict[str, None]] = {}
    for row, where in rows:
        if "content" in row or not _is_squad(row):
            yield row, where
            continue
        page_id, title = _name(row["title"])
        titles.setdefault(page_id, (title, where))
        paragraphs.setdefault(page_id, {})[row["context"].strip()] = None
    for page_id, (title, where) in titles.items():
        texts = [text for text in paragraphs[page_id] if text]
        groups = [texts[start : start + SECTION_PARAGRAPHS] for start in range(0, len(texts), SECTION_PARAGRAPHS)]
        sections = ["\n\n".join([f"## Section {number}", *group]) for number, group in enumerate(groups, start=1)]
        yield {"id": page_id, "title": title, "content": "\n\n".join([f"# {title}", *sections]) + "\n"}, where


def place_answers(rows: Iterable[tuple[Row, str]], pages: list[Page], by_paragraph: bool) -> Iterator[tuple[Row, str]]:
    """Yield questions with answer, aliases, page and section, and their locations; rows with a blank question are left out.

    The answer is the one that most annotators marked, on a tie the first. Without a marked answer the question is unanswerable.

    Args:
        rows: rows of any kind.
        pages: pages in which the section with the paragraph is searched.
        by_paragraph: True if every paragraph of the pages becomes a section of its own (`corpus.sections: paragraphs`).
    """
    library: Library | None = None
    for row, where in rows:
        if "answer" in row or not _is_squad(row):
            yield row, where
            continue
        if isinstance(row.get("question"), str) and not row["question"].strip():
            continue
        library = library or Library([split_paragraphs(page) for page in pages] if by_paragraph else pages)
        answers = [text for text, _ in Counter(map(str.strip, row["answers"]["text"])).most_common() if text]
        page_id, _ = _name(row["title"])
        section_id = find_paragraph(row["context"], answers, library.sections(page_id))
        made: Row = {
            "answer": answers[0] if answers else UNKNOWN_ANSWER,
            "aliases": answers[1:],
            "page_ids": [page_id],
            "section_ids": [section_id] if section_id else [],
            "kind": "plain" if answers else UNANSWERABLE,
        }
        yield {**row, **made}, where


def _is_squad(row: Row) -> bool:
    texts = answers.get("text") if isinstance(answers := row.get("answers"), Mapping) else None
    is_marked = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    return is_marked and isinstance(row.get("title"), str) and isinstance(row.get("context"), str)


def _name(title: str) -> tuple[str, str]:
    """Return the page's id and title; some versions of the set encode titles as in URLs, `Fr%C3%A9d%C3%A9ric_Chopin`."""
    title = unquote(title).replace("_", " ").strip()
    return _IN_NO_ID.sub("_", title.lower()), title
