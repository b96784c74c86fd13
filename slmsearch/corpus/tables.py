"""Pages and questions as flat rows for column checks; what nests or spans rows becomes a number in a column.

Not here: the checks themselves and their severity (`expectations`).
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question

Row = dict[str, str | int]

_WORD = re.compile(r"\w+")
_SMALL_WORDS = frozenset(
    _WORD.findall("a an and are as at be by did do does for from had has have in is it its of on or that the to was were with")
)
ANSWER_IN_SECTION_KINDS = ("one_hop", "two_hop", "plain", "template", "cloze", "written")
"""Kinds whose answer is copied from a section; counts are not written down, and unanswerable ones have none."""


def page_rows(pages: Sequence[Page], library: Library) -> list[Row]:
    """Describe each page in numbers."""
    owners = Counter(section.id for page in library.pages() for section in library.sections(page.id))
    looks = Counter(_looks(page_id) for page_id in {page.id for page in pages})
    rows: list[Row] = []
    for page in pages:
        sections = library.sections(page.id)
        rows.append(
            {
                "id": page.id,
                "look_alikes": looks[_looks(page.id)] - 1,
                "title_chars": len(page.title.strip()),
                "content_chars": len(page.content.strip()),
                "sections": len(sections),
                "sections_with_text": sum(1 for section in sections if section.level == 0 or "\n" in section.text),
                "shared_section_ids": sum(1 for section in sections if owners[section.id] > 1),
            }
        )
    return rows


def _looks(name: str) -> str:
    """Return what is seen of a name: characters composed, and without those that format text and show nothing."""
    return unicodedata.normalize("NFC", "".join(char for char in name if unicodedata.category(char) != "Cf"))


def question_rows(questions: Sequence[tuple[Question, str]], library: Library) -> list[Row]:
    """Describe each question in numbers: 1 where something is wrong with it, or how many things are."""
    leaking = _leaking(questions)
    duplicates = _near_duplicates([question for question, _ in questions])
    return [
        {
            "id": question.id,
            "question_chars": len(question.question.strip()),
            "answer_chars": len(question.answer.strip()),
            "missing_pages": sum(1 for page_id in question.page_ids if library.page(page_id) is None),
            "missing_sections": sum(1 for section_id in question.section_ids if library.section(section_id) is None),
            "answer_missing": int(_answer_is_missing(question, library)),
            "leaking": int(question.id in leaking),
            "near_duplicate": int(question.id in duplicates),
        }
        for question, _ in questions
    ]


def holds_answer(text: str, answer: str) -> bool:
    """Tell whether a text holds an answer as whole words, whatever the case and punctuation."""
    wanted = _words(answer)
    if not wanted:
        return answer.strip() in text
    return f" {' '.join(wanted)} " in f" {' '.join(_words(text))} "


def _answer_is_missing(question: Question, library: Library) -> bool:
    if question.kind not in ANSWER_IN_SECTION_KINDS or not question.section_ids or question.answer == UNKNOWN_ANSWER:
        return False
    # In generated worlds the last hop holds the answer, as whole words. Elsewhere the order of sections may mean nothing, and
    # people mark parts of words: in SQuAD "manual" stands in "manually".
    is_plain = question.kind == "plain"
    gold = question.section_ids if is_plain else question.section_ids[-1:]
    texts = [section.text for section_id in gold if (section := library.section(section_id))]
    held = any(holds_answer(text, answer) or (is_plain and answer in text) for text in texts for answer in question.answers)
    # A missing section is a finding of its own.
    return bool(texts) and not held


def _leaking(questions: Sequence[tuple[Question, str]]) -> set[str]:
    """Return the questions one of whose gold pages or entities is gold in another split as well."""
    splits: dict[str, set[str]] = defaultdict(set)
    for question, split in questions:
        for node in _gold(question):
            splits[node].add(split)
    return {question.id for question, _ in questions if any(len(splits[node]) > 1 for node in _gold(question))}


def _gold(question: Question) -> list[str]:
    return [f"page {page_id}" for page_id in question.page_ids] + [f"entity {name}" for name in question.entities]


def _near_duplicates(questions: Sequence[Question]) -> set[str]:
    """Return the questions that use the same words as another one, small words, order and repetition aside."""
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for question in questions:
        groups[content_words(question.question)].append(question.id)
    return {question_id for group in groups.values() if len(group) > 1 for question_id in group}


def content_words(text: str) -> frozenset[str]:
    """Return the words of a question without small ones; near-duplicates have the same."""
    return frozenset(_words(text)) - _SMALL_WORDS


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
