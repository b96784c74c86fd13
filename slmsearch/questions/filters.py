"""Which drafts are good enough: the answer stands in its section and in few others, the question finds its section, none repeats."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from slmsearch.corpus.library import Library
from slmsearch.corpus.sections import own_texts
from slmsearch.corpus.tables import content_words, holds_answer
from slmsearch.questions.sentences import Draft
from slmsearch.retrieval.hits import Index

MAX_SECTIONS_OF_PAGE = 2
"""Sections of the gold page that may hold the answer."""
MAX_SECTIONS, MAX_SECTIONS_FRAC = 8, 0.01
"""Sections of the whole corpus that may: this many, or this share of all, whichever is more."""


class Filters:
    """Checks drafts one after the other; a draft that passes counts as taken."""

    def __init__(self, library: Library, index: Index, top_k: int) -> None:
        """Note which sections hold which words.

        Args:
            library: pages.
            index: an open index version of the same pages.
            top_k: a question's own wording must find its page among this many.
        """
        self._index, self._top_k = index, top_k
        self._texts: list[str] = []
        self._page_ids: list[str] = []
        self._holding: dict[str, list[int]] = defaultdict(list)
        for page in library.pages():
            for section, own in zip(library.sections(page.id), own_texts(page), strict=True):
                text = f"{section.heading}\n{own}"
                for word in content_words(text):
                    self._holding[word].append(len(self._texts))
                self._texts.append(text)
                self._page_ids.append(page.id)
        self._full = {section.id: section.text for page in library.pages() for section in library.sections(page.id)}
        self._asked: set[frozenset[str]] = set()
        self._asked_of: Counter[tuple[str, str]] = Counter()

    def reason_against(self, draft: Draft) -> str | None:
        """Say why a draft is no good, as far as that is known without searching; None if nothing speaks against it."""
        place = draft.sentence
        if not holds_answer(self._full.get(place.section_id, ""), draft.answer):
            return "answer not in its section"
        if holds_answer(draft.question, draft.answer):
            return "answer in the question"
        if content_words(draft.question) in self._asked:
            return "near-duplicate"
        if self._asked_of[place.section_id, draft.answer.casefold()]:
            return "same answer asked twice of a section"
        if self._is_common(draft):
            return "answer in many sections"
        return None

    def find(self, drafts: Sequence[Draft]) -> list[str | None]:
        """Search with the drafts' own wording; say of each why it does not find its section, None if it does."""
        found = self._index.search([draft.question for draft in drafts], self._top_k) if drafts else []
        reasons: list[str | None] = []
        for draft, hits in zip(drafts, found, strict=True):
            hit = next((hit for hit in hits if hit.page_id == draft.sentence.page_id), None)
            if hit is None:
                reasons.append(f"page not among the first {self._top_k} hits")
            # Free wording may be nearer to another section of the page; a sentence's own words must not be.
            elif hit.section_id != draft.sentence.section_id and draft.kind != "written":
                reasons.append("another section is nearer")
            else:
                reasons.append(None)
        return reasons

    def take(self, draft: Draft) -> None:
        """Note a draft as taken."""
        self._asked.add(content_words(draft.question))
        self._asked_of[draft.sentence.section_id, draft.answer.casefold()] += 1

    def _is_common(self, draft: Draft) -> bool:
        words = content_words(draft.answer)
        if not words:
            return True
        lists = sorted((self._holding.get(word, []) for word in words), key=len)
        candidates = set(lists[0]).intersection(*lists[1:])
        allowed = max(MAX_SECTIONS, int(MAX_SECTIONS_FRAC * len(self._texts)))
        holding = [number for number in candidates if holds_answer(self._texts[number], draft.answer)]
        on_page = sum(1 for number in holding if self._page_ids[number] == draft.sentence.page_id)
        return len(holding) > allowed or on_page > MAX_SECTIONS_OF_PAGE
