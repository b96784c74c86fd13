"""The gate between an edited folder and its readers: what a new version of the documents has lost.

Texts are compared first, which needs no model: files that are no longer read, pages without their text or with broken letters, and facts
that many pages state no longer. Then the policy is asked (`judge_replay`).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import WORD, Question, holds_answer
from slmsearch.evaluate.statistics import mcnemar_exact

MIN_WORDS = 40
"""Number of words from which on a page can lose its text."""
SHRUNK_FRAC = 0.2
"""Share of its words below which a page has lost its text."""
BROKEN_LETTERS = 3
"""Number of further broken letters from which on a page was saved in a wrong encoding."""
LOST_PAGES, LOST_FRAC = 3, 0.05
"""Pages that may not lose facts in one edit: this many and this share of the pages that questions are known of."""
LEVEL = 0.05
"""Level of the test, two-sided, by which fewer right answers hold a version back."""
MIN_MADE, MADE_FRAC = 5, 0.2
"""Number of questions that could be made of changed pages, from which on this share must still be possible."""
NAMED = 3
"""Number of pages that a reason names."""
_SECOND = "\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122"
_BROKEN = re.compile(f"\ufffd|[\u00c2\u00c3\u00c5\u00e2\u00d0\u00d1][{_SECOND}]")
"""A replacement character, or UTF-8 read as Latin-1 or Windows-1252."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Pages of two versions that differ, by id."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        counts = {"added": self.added, "changed": self.changed, "removed": self.removed}
        return ", ".join(f"{len(pages)} {name}" for name, pages in counts.items() if pages) or "nothing"


def compare_pages(before: Mapping[str, Page], after: Mapping[str, Page]) -> Edit:
    """Return which pages were added, changed or removed, in the order of the corpora."""
    changed = (name for name, page in after.items() if name in before and before[name] != page)
    return Edit(tuple(name for name in after if name not in before), tuple(changed), tuple(name for name in before if name not in after))


def find_losses(
    before: Mapping[str, Page], after: Mapping[str, Page], edit: Edit, left_out: Mapping[str, str], questions: Sequence[Question]
) -> list[str]:
    """Return what an edit lost, a line each; empty if nothing that is known.

    Args:
        before: pages of the served version, by id.
        after: pages of the new one.
        edit: their difference.
        left_out: reasons of files that the new version leaves out, by path; a file that is gone is not among them.
        questions: known ones, of any version.
    """
    reasons = []
    paths = ((page, str(before[page].metadata.get("path", ""))) for page in edit.removed)
    for page, path in paths:
        reason = left_out.get(path) or next(
            (why for place, why in left_out.items() if place.endswith("/") and path.startswith(place)), None
        )
        if reason:
            reasons.append(f"{page}: the file is {reason}")
    for page in edit.changed:
        old, new = (len(WORD.findall(pages[page].content)) for pages in (before, after))
        broken = len(_BROKEN.findall(after[page].content)) - len(_BROKEN.findall(before[page].content))
        if old >= MIN_WORDS and new < SHRUNK_FRAC * old:
            reasons.append(f"{page}: {new} of {old} words are left")
        elif broken >= BROKEN_LETTERS:
            reasons.append(f"{page}: {broken} broken letters, as if saved in a wrong encoding")
    return [*reasons, *_find_lost_facts(before, after, edit, questions)]


def _find_lost_facts(before: Mapping[str, Page], after: Mapping[str, Page], edit: Edit, questions: Sequence[Question]) -> list[str]:
    lost, known = Counter[str](), {page for question in questions for page in question.page_ids if page in after}
    changed = set(edit.changed)
    for question in questions:
        for page in changed.intersection(question.page_ids):
            lost[page] += states(before[page], question) and not states(after[page], question)
    pages = [page for page, count in lost.most_common() if count]
    if len(pages) < max(LOST_PAGES, LOST_FRAC * len(known)):
        return []
    more = f" and {len(pages) - NAMED} more" if len(pages) > NAMED else ""
    return [f"{', '.join(pages[:NAMED])}{more}: the answers of {sum(lost.values())} questions are no longer there"]


def states(page: Page, question: Question) -> bool:
    """Return whether a page states a question's answer."""
    return any(holds_answer(page.content, answer) for answer in question.answers)


def is_stated(question: Question, find: Callable[[str], Page | None]) -> bool:
    """Return whether a question's pages are all found, and one of them states the answer."""
    pages = [find(page) for page in question.page_ids]
    return question.is_answerable and bool(pages) and None not in pages and any(states(page, question) for page in pages if page)


def still_asked(questions: Sequence[Question], before: Mapping[str, Page], after: Mapping[str, Page], most: int) -> list[Question]:
    """Choose questions whose pages state the answer in both versions, at most `most`: of every page one before any gives a second."""

    turns: dict[int, list[Question]] = defaultdict(list)
    seen = Counter[str]()
    for question in questions:
        if not question.is_closed and all(is_stated(question, version.get) for version in (before, after)):
            turns[seen[question.page_ids[0]]].append(question)
            seen[question.page_ids[0]] += 1
    chosen = [question for turn in sorted(turns) for question in turns[turn]]
    return chosen[:: max(1, len(turns.get(0, ())) // most)][:most]


def compare_made(before: int, after: int) -> list[str]:
    """Return why changed pages hold a version back, by the number of questions that could be made of them before and now; empty if not."""
    if before < MIN_MADE or after >= MADE_FRAC * before:
        return []
    return [f"of the changed pages {after} questions can be made, {before} before"]


def judge_replay(before: Sequence[bool], after: Sequence[bool]) -> list[str]:
    """Return why the policy's answers hold a version back; empty if they do not.

    Args:
        before: which of the questions that stand in both versions were answered rightly on the served one.
        after: the same questions on the new one.
    """
    found = mcnemar_exact(before, after)
    if found.lost <= found.gained or found.p > LEVEL:
        return []
    return [f"{sum(after)} instead of {sum(before)} of {len(before)} questions are answered rightly (p {found.p:.3f})"]
