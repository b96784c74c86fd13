"""Rows of published question sets, which bring the passages that their questions were written on.

- SQuAD: `title`, one paragraph of that article as `context`, `question`, and the annotators' answers as `answers.text`.
- HotpotQA with distractors: `context` as pairs of title and sentences, `supporting_facts`, `type`; as in its JSON, or as on the Hub. Also
  2WikiMultihopQA, which adds `evidences`.
- MuSiQue: `paragraphs` with `title`, `paragraph_text` and `is_supporting`, `question_decomposition`, `answer_aliases`, `answerable`; also
  with `text` or `content` instead, and without decomposition.

The passages of a title become one page: its distinct paragraphs in order under `# Title`. SQuAD's stand three to a `## Section k`, since
its rows lack the article's own headings. Rows of any other kind are unchanged.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.paragraphs import find_paragraph, split_paragraphs
from slmsearch.corpus.questions import CLOSED, UNANSWERABLE, UNKNOWN_ANSWER
from slmsearch.corpus.records import Row
from slmsearch.corpus.row_files import as_text
from slmsearch.errors import CorpusError

SECTION_PARAGRAPHS = 3
_IN_NO_ID = re.compile(r"[\s:]")


class SetPassage(NamedTuple):
    """Paragraph of a page that a published set brings."""

    title: str
    text: str


class SetRow(NamedTuple):
    """Row of a published set."""

    passages: list[SetPassage]
    """Passages that the row brings."""
    gold: list[SetPassage]
    """Passages that the question needs, in reading order."""
    answers: list[str]
    """Accepted answers, the best first; empty if the question has none."""
    fields: Row
    """Further fields of the question."""


def join_pages(rows: Iterable[tuple[Row, str]]) -> Iterator[tuple[Row, str]]:
    """Yield one page for all passages of a title, with the location of the first row."""
    first: dict[str, tuple[str, str, int]] = {}
    paragraphs: dict[str, dict[str, None]] = {}
    for row, where in rows:
        found = None if "content" in row else read_set_row(row, where)
        if found is None:
            yield row, where
            continue
        for passage in found.passages:
            page_id, title = _name(passage.title)
            first.setdefault(page_id, (title, where, SECTION_PARAGRAPHS if _is_squad(row) else 0))
            paragraphs.setdefault(page_id, {})[passage.text.strip()] = None
    for page_id, (title, where, together) in first.items():
        texts = [as_text(text) for text in paragraphs[page_id] if text]
        if together:
            groups = [texts[start : start + together] for start in range(0, len(texts), together)]
            texts = ["\n\n".join([f"## Section {number}", *group]) for number, group in enumerate(groups, start=1)]
        yield {"id": page_id, "title": title, "content": "\n\n".join([f"# {title}", *texts]) + "\n"}, where


def place_answers(rows: Iterable[tuple[Row, str]], pages: list[Page], by_paragraph: bool) -> Iterator[tuple[Row, str]]:
    """Yield questions with answer, aliases, pages and sections, and their locations; rows with a blank question are left out.

    Args:
        rows: rows of any kind.
        pages: pages in which the sections with the passages are searched.
        by_paragraph: True if every paragraph of the pages becomes a section of its own (`corpus.sections: paragraphs`).
    """
    library: Library | None = None
    for row, where in rows:
        found = None if "answer" in row and _is_squad(row) else read_set_row(row, where)
        if found is None:
            yield row, where
            continue
        if isinstance(row.get("question"), str) and not row["question"].strip():
            continue
        library = library or Library([split_paragraphs(page) for page in pages] if by_paragraph else pages)
        placed = [
            (name, find_paragraph(text, found.answers, library.sections(name))) for title, text in found.gold for name in [_name(title)[0]]
        ]
        made: Row = {
            "answer": found.answers[0] if found.answers else UNKNOWN_ANSWER,
            "aliases": found.answers[1:],
            "page_ids": list(dict.fromkeys(page_id for page_id, _ in placed)),
            "section_ids": list(dict.fromkeys(section_id for _, section_id in placed if section_id)),
            **found.fields,
            **({} if found.answers else {"kind": UNANSWERABLE}),
        }
        yield {**row, **made}, where


def read_set_row(row: Row, where: str) -> SetRow | None:
    """Read a row of a known form; None for any other.

    Raises:
        CorpusError: the row is of a form whose passages are missing.
    """
    return _read_squad(row) if _is_squad(row) else _read_hotpot(row, where) or _read_musique(row, where)


def _is_squad(row: Row) -> bool:
    texts = answers.get("text") if isinstance(answers := row.get("answers"), Mapping) else None
    return _are_texts(texts) and isinstance(row.get("title"), str) and isinstance(row.get("context"), str)


def _read_squad(row: Row) -> SetRow:
    """Read a row of SQuAD; its answer is the one that most annotators marked, on a tie the first."""
    passage = SetPassage(row["title"], row["context"])
    answers = [text for text, _ in Counter(map(str.strip, row["answers"]["text"])).most_common() if text]
    return SetRow([passage], [passage], answers, {"kind": "plain"})


def _read_hotpot(row: Row, where: str) -> SetRow | None:
    if "supporting_facts" not in row or "question" not in row:
        return None
    context, facts = row.get("context"), row["supporting_facts"]
    if isinstance(context, Mapping):  # as on the Hub
        context = list(zip(_listed(context.get("title")), _listed(context.get("sentences")), strict=False))
    passages = [
        SetPassage(title, " ".join(map(str.strip, sentences)))
        for title, sentences in _pairs(context)
        if isinstance(title, str) and _are_texts(sentences)
    ]
    if not passages:
        raise CorpusError(f"{where}: a row of HotpotQA without contexts; take the distractor file, which has ten paragraphs a question")
    names = _listed(facts.get("title")) if isinstance(facts, Mapping) else [title for title, _ in _pairs(facts)]
    needed = list(dict.fromkeys(filter(_is_text, names)))
    lacking = set(needed) - {passage.title for passage in passages}
    if lacking:
        raise CorpusError(f"{where}: the contexts lack the gold paragraph {min(lacking)!r}; take the distractor file, which has all")
    gold = [passage for name in needed for passage in passages if passage.title == name]
    answer = row.get("answer")
    if not isinstance(answer, str) or not answer.strip():
        raise CorpusError(f"{where}: a row of HotpotQA without an answer; take a file with answers, not a test's")
    answers = [answer.strip()]
    is_closed = answers[0].casefold() in CLOSED
    if not is_closed and row.get("type") == "bridge":
        gold.sort(key=lambda passage: answers[0] in passage.text)  # the paragraph with the answer is read last
    kind = "yesno" if is_closed else row.get("type") or "plain"
    source = row.get("source") or ("2wikimultihopqa" if "evidences" in row else "hotpotqa")
    fields = {"id": row.get("_id") or row.get("id"), "kind": kind, "hops": len(gold), "source": source}
    return SetRow(passages, gold, answers, fields)


def _read_musique(row: Row, where: str) -> SetRow | None:
    items = [item for item in _listed(row.get("paragraphs")) if isinstance(item, Mapping)]
    if "question_decomposition" not in row and not any("is_supporting" in item for item in items):
        return None
    whole = [(item, text) for item in items if isinstance(item.get("title"), str) and (text := _text_of(item))]
    if not whole:
        raise CorpusError(f"{where}: a row of MuSiQue without paragraphs; each has title, paragraph_text and is_supporting")
    steps = [step.get("paragraph_support_idx") for step in _listed(row.get("question_decomposition")) if isinstance(step, Mapping)]
    needed = [(item, text) for item, text in whole if item.get("is_supporting")]
    needed.sort(key=lambda found: steps.index(found[0].get("idx")) if found[0].get("idx") in steps else len(steps))
    answers = [row.get("answer"), row.get("answer_aliases")]
    texts = [text.strip() for given in answers for text in (given if isinstance(given, list) else [given]) if isinstance(text, str)]
    accepted = list(dict.fromkeys(filter(None, texts))) if row.get("answerable") is not False else []
    name, parted, _ = str(row.get("id")).partition("__")  # as in 3hop1__9285_5188
    passages, gold = ([SetPassage(item["title"], text) for item, text in found] for found in (whole, needed))
    fields = {
        "kind": name if parted else "plain",
        "hops": len(gold) or len(steps),
        "source": row.get("source") or ("musique" if steps else None),
    }
    return SetRow(passages, gold, accepted, fields)


def _text_of(item: Mapping[str, Any]) -> str:
    """Return the text of a paragraph, whose field has another name in sets that follow MuSiQue."""
    return next((text for name in ("paragraph_text", "text", "content") if isinstance(text := item.get(name), str) and text.strip()), "")


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _pairs(values: Any) -> list[tuple[Any, Any]]:
    """Return the first two values of each item that has them."""
    return [(item[0], item[1]) for item in _listed(values) if len(_listed(item)) > 1]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and all(map(_is_text, values))


def _name(title: str) -> tuple[str, str]:
    """Return the page's id and title; some versions of the set encode titles as in URLs, `Fr%C3%A9d%C3%A9ric_Chopin`."""
    title = unquote(title).replace("_", " ").strip()
    return _IN_NO_ID.sub("_", title.lower()), title
