"""Questions about a corpus that has none: drafted sentence by sentence, filtered, and spread evenly over the pages.

Kept is a draft whose answer stands in its section and in few others, whose wording finds that section, and that repeats no other.

The same corpus, index, seed and limit give the same questions; those a language model writes are as repeatable as its server.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import content_words, holds_answer, word_line
from slmsearch.corpus.scripts import SMALL
from slmsearch.corpus.sections import own_texts
from slmsearch.keys import content_key
from slmsearch.made_questions.cloze import Draft, Excerpt, make_clozes
from slmsearch.made_questions.sentences import is_usable, plain_paragraphs, split_sentences
from slmsearch.made_questions.written import MIN_SECTION_CHARS, QuestionGenerator
from slmsearch.retrieval.hits import Hit, Index

BATCH = 64
"""Questions searched for together."""
PER_SECTION = 3
"""Questions without a model a section may have."""
MAX_SECTIONS_OF_PAGE = 2
"""Sections of the gold page that may hold the answer."""
MAX_SECTIONS, MAX_SECTIONS_FRAC = 8, 0.01
"""Sections of the whole corpus that may: this many, or this share of all, whichever is more."""

CORRECTION = "correction"
"""Kind of a question that somebody gave with its answer."""
FREE = ("written", CORRECTION)
"""Kinds that are not worded as their section is."""

NONE_MADE = (
    "no question could be made of {pages} ({why}); a gap needs sentences that state facts: names with capitals, dates, numbers, quoted "
    "terms or code. A language model asks about any text (judge.kind: ollama or openai), and corpus.questions takes your own questions"
)
"""Message; the ways out are the same in every language."""
_SMALL = re.compile(rf"(?<![\w.'\u2019-])[{SMALL}]+(?![\w'\u2019-])")

Progress = Callable[[int, int], None]
"""Called with the pages done and their total."""


@dataclass(frozen=True, slots=True)
class MadeQuestions:
    """Questions, and how many drafts became of what."""

    rows: tuple[dict[str, object], ...]
    """As a file of questions holds them."""
    made: dict[str, int]
    """Drafts by kind."""
    kept: dict[str, int]
    """Questions by kind."""
    dropped: dict[str, int]
    """Drafts that were filtered out, by reason."""
    faults: dict[str, int]
    """Sections about which a model wrote nothing usable, by reason."""


class Filters:
    """Checks drafts, a batch of searches at a time, and holds those that passed."""

    def __init__(self, library: Library, index: Index, top_k: int, limit: int = 0) -> None:
        """Note which sections hold which words.

        Args:
            library: pages.
            index: of the same pages.
            top_k: among so many first hits a question's own wording must find its page.
            limit: questions taken at most; 0 sets no limit.
        """
        self.library, self.limit, self._index, self._top_k = library, limit, index, top_k
        self.taken: list[Draft] = []
        self.made: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._waiting: list[Draft] = []
        self._per_section: Counter[str] = Counter()
        self._excerpts = [excerpt for page in library.pages() for excerpt in excerpts_of(page, library)]
        self._holding: dict[str, set[int]] = defaultdict(set)
        self._lines = [word_line(f"{excerpt.heading}\n{excerpt.text}") for excerpt in self._excerpts]
        self.common = frozenset(word for excerpt in self._excerpts for word in _SMALL.findall(excerpt.text))
        """Words that begin with a small letter somewhere."""
        for number, line in enumerate(self._lines):
            for word in content_words(line):
                self._holding[word].add(number)
        self._asked: set[frozenset[str]] = set()
        self._asked_of: Counter[tuple[str, str]] = Counter()

    def reason_against(self, draft: Draft) -> str | None:
        """Say why a draft is no good, as far as that is known without searching; None if nothing speaks against it."""
        place, section = draft.place, self.library.section(draft.place.section_id)
        if section is None or not holds_answer(section.text, draft.answer):
            return "answer not in its section"
        if holds_answer(draft.question, draft.answer):
            return "answer in the question"
        if content_words(draft.question) in self._asked:
            return "near-duplicate"
        if draft.kind == CORRECTION:
            return None
        if self._asked_of[place.section_id, draft.answer.casefold()]:
            return "same answer asked twice of a section"
        return self._reason_elsewhere(draft)

    def find(self, drafts: Sequence[Draft]) -> list[str | None]:
        """Search with the drafts' own wording; say of each why it does not find its section, None if it does."""
        found = self.search([draft.question for draft in drafts])
        reasons: list[str | None] = []
        for draft, hits in zip(drafts, found, strict=True):
            hit = next((hit for hit in hits if hit.page_id == draft.place.page_id), None)
            if hit is None:
                reasons.append(f"page not among the first {self._top_k} hits")
            # Free wording may be nearer to another section of the page; a sentence's own words must not be.
            elif hit.section_id != draft.place.section_id and draft.kind not in FREE:
                reasons.append("another section is nearer")
            else:
                reasons.append(None)
        return reasons

    def search(self, queries: Sequence[str]) -> list[list[Hit]]:
        """Search as a policy does."""
        return self._index.search(queries, self._top_k) if queries else []

    def add(self, drafts: Sequence[Draft]) -> None:
        """Take drafts in; those that fail without a search are dropped at once."""
        for draft in drafts:
            self.made[draft.kind] += 1
            reason = self.reason_against(draft)
            if reason is None:
                self._waiting.append(draft)
            else:
                self.dropped[reason] += 1
        if len(self._waiting) >= BATCH:
            self.settle()

    def note(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take questions into account that are there already: they are not repeated, and count for their sections."""
        for row in rows:
            self._asked.add(content_words(row["question"]))
            for section_id in row["section_ids"][-1:]:
                self._asked_of[section_id, row["answer"].casefold()] += 1
                self._per_section[section_id] += row["kind"] == "cloze"

    def refuse(self, draft: Draft) -> str | None:
        """Say why a draft that does not count for the limit is no good; None takes it, and nothing may repeat it."""
        reason = self.reason_against(draft) or self.find([draft])[0]
        if reason is None:
            self._asked.add(content_words(draft.question))
        return reason

    def settle(self) -> None:
        """Search with what waits, and keep or drop it."""
        for draft, missed in zip(self._waiting, self.find(self._waiting), strict=True):
            reason = missed or self.reason_against(draft) or self._surplus(draft)
            if reason is not None:
                self.dropped[reason] += 1
                continue
            self._asked.add(content_words(draft.question))
            self._asked_of[draft.place.section_id, draft.answer.casefold()] += 1
            self._per_section[draft.place.section_id] += draft.kind != "written"
            self.kept[draft.kind] += 1
            self.taken.append(draft)
        self._waiting.clear()

    def _surplus(self, draft: Draft) -> str | None:
        if self.limit and len(self.taken) >= self.limit:
            return "beyond the limit"
        if draft.kind != "written" and self._per_section[draft.place.section_id] >= PER_SECTION:
            return f"more than {PER_SECTION} of a section"
        return None

    def _reason_elsewhere(self, draft: Draft) -> str | None:
        """Say what other sections have against a draft: they hold its answer or its sentence."""
        words = content_words(draft.answer)
        if not words:
            return "answer in many sections"
        candidates = set.intersection(*sorted((self._holding.get(word, set()) for word in words), key=len))
        allowed, wanted = max(MAX_SECTIONS, int(MAX_SECTIONS_FRAC * len(self._excerpts))), word_line(draft.answer)
        holding = [number for number in candidates if wanted in self._lines[number]]
        on_page = sum(1 for number in holding if self._excerpts[number].page_id == draft.place.page_id)
        if len(holding) > allowed or on_page > MAX_SECTIONS_OF_PAGE:
            return "answer in many sections"
        said = word_line(draft.place.text)
        repeated = draft.kind == "cloze" and sum(1 for number in holding if said in self._lines[number]) > 1
        return "sentence in several sections" if repeated else None


def make_questions(
    filters: Filters,
    seed: int,
    generator: QuestionGenerator | None = None,
    progress: Progress | None = None,
    about: Container[str] | None = None,
) -> MadeQuestions:
    """Make questions about the pages of a library.

    Args:
        filters: over the pages and their index, with the limit.
        seed: another seed takes other sentences and gaps.
        generator: a language model that writes some, too.
        progress: told of pages.
        about: ids of the pages to ask about; None takes all.

    Raises:
        JudgeError: the model's server does not answer.
        IndexUnusableError, EmbedderError: the index or its embedder broke.
    """
    library, limit = filters.library, filters.limit
    pages = [page for page in library.pages() if about is None or page.id in about]
    Random(f"questions/{seed}").shuffle(pages)
    sections = (section for page in pages for section in excerpts_of(page, library))
    long_enough = [section for section in sections if generator and len(section.text) >= MIN_SECTION_CHARS]
    for drafts in generator.write(long_enough) if generator else ():
        filters.add(drafts)
        # Half of a limit is left for questions that need no model: one model's style is not to be all there is.
        if limit and filters.kept["written"] >= limit / 2:
            break
    filters.settle()
    # A page gives one sentence a round: with a limit, every page has its turn before one has its second.
    for done, drafts in _in_turn([_drafts_of(page, seed, library, filters.common) for page in pages]):
        filters.add(drafts)
        if progress is not None:
            progress(done, len(pages))
        if limit and len(filters.taken) >= limit:
            break
    filters.settle()
    order = {page.id: number for number, page in enumerate(library.pages())}
    rows = tuple(map(make_row, sorted(filters.taken, key=lambda draft: order[draft.place.page_id])))
    faults = dict(generator.faults) if generator else {}
    return MadeQuestions(rows, dict(filters.made), dict(filters.kept), dict(filters.dropped.most_common()), faults)


def excerpts_of(page: Page, library: Library) -> Iterator[Excerpt]:
    """Yield a page's sections, each without those below it."""
    for section, own in zip(library.sections(page.id), own_texts(page), strict=True):
        name = next((name for name in (page.title, section.heading) if name.casefold() not in library.shared_names), "")
        yield Excerpt(own, page.id, name, section.id, section.heading)


def _in_turn(sources: Sequence[Iterator[list[Draft]]]) -> Iterator[tuple[int, list[Draft]]]:
    """Take the next drafts of each source in turn until all have ended; yields how many have."""
    active, total = list(sources), len(sources)
    while active:
        going = []
        for source in active:
            drafts = next(source, None)
            if drafts is not None:
                going.append(source)
                yield total - len(active), drafts
        active = going


def _drafts_of(page: Page, seed: int, library: Library, common: Container[str]) -> Iterator[list[Draft]]:
    """Yield the drafts of a page, a sentence's together, in an order drawn by seed."""
    rng = Random(f"questions/{seed}/{page.id}")
    sentences = [
        replace(section, text=sentence)
        for section in excerpts_of(page, library)
        for paragraph in plain_paragraphs(section.text, keep_code=True)
        for sentence in split_sentences(paragraph)
        if is_usable(sentence)
    ]
    rng.shuffle(sentences)
    for sentence in sentences:
        clozes = list(make_clozes(sentence, common))
        rng.shuffle(clozes)
        yield clozes[:1]


def make_row(draft: Draft) -> dict[str, object]:
    """Return a question as a file of questions holds it."""
    place = draft.place
    key = content_key(question=draft.question, answer=draft.answer, section=place.section_id)
    return {
        "id": f"{draft.kind[0]}-{key[:12]}",
        "question": draft.question,
        "answer": draft.answer,
        "aliases": [],
        "page_ids": [place.page_id],
        "section_ids": [place.section_id],
        "hops": 1,
        "kind": draft.kind,
    }
