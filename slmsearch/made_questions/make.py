"""Questions about a corpus without any: drafted sentence by sentence, filtered, and spread evenly over the pages.

A draft is kept if its answer is in its section and in few others, its wording finds that section, and it repeats no other question. A
question that a language model wrote must also be answered by a reader of its section as intended, if there is a reader (round trip).

The same corpus, index, seed and limit give the same questions; those of a served model are as repeatable as its server.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal, Protocol, TypeVar

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import content_words, holds_answer, word_line
from slmsearch.corpus.scripts import SMALL
from slmsearch.corpus.sections import own_texts
from slmsearch.judge.exact import f1, typed_match
from slmsearch.keys import content_key
from slmsearch.made_questions.cloze import Draft, Excerpt, make_clozes
from slmsearch.made_questions.how_to import find_verbs, make_how_tos
from slmsearch.made_questions.sentences import is_usable, plain_paragraphs, split_sentences
from slmsearch.made_questions.written import MIN_SECTION_CHARS, Reader
from slmsearch.retrieval.hits import Hit, Index

BATCH = 64
"""Number of questions searched for at a time."""
PER_SECTION = 3
"""Maximum number of questions with a gap per section."""
MAX_SECTIONS_OF_PAGE = 2
"""Maximum number of sections of the gold page that may hold the answer."""
MAX_SECTIONS, MAX_SECTIONS_FRAC = 8, 0.01
"""Maximum number of sections of the corpus that may hold it: this many, or this share of all, whichever is more."""

ALIKE_F1 = 0.8
"""Smallest token F1 of the reader's answer with the intended one."""

WRITTEN = "written"
"""Kind of a question that a language model wrote."""
CORRECTION = "correction"
"""Kind of a question that a user gave with its answer."""
FREE = (WRITTEN, CORRECTION)
"""Kinds whose wording is independent of their section."""

NONE_MADE = (
    "no question could be made of {pages} ({why}); a gap needs sentences that state facts: names with capitals, dates, numbers, quoted "
    "terms or code. A language model asks about any text (judge.kind: ollama or openai), and corpus.questions takes your own questions"
)
"""Message for a corpus without questions; the remedies are the same in every language."""
_SMALL = re.compile(rf"(?<![\w.'\u2019-])[{SMALL}]+(?![\w'\u2019-])")

Item = TypeVar("Item")
Kinds = Literal["gaps", "written", "both"]
"""See `LearnConfig.questions`."""
Progress = Callable[[int, int], None]
"""Function called with the number of pages done and their total."""


@dataclass(frozen=True, slots=True)
class MadeQuestions:
    """Questions, and the number of drafts by result."""

    rows: tuple[dict[str, object], ...]
    """Rows in the form of a file of questions."""
    made: dict[str, int]
    """Drafts by kind."""
    kept: dict[str, int]
    """Questions by kind."""
    dropped: dict[str, int]
    """Drafts that were filtered out, by reason."""
    faults: dict[str, int]
    """Number of a model's replies without a usable question, by reason."""
    unasked: tuple[str, ...] = ()
    """Ids of the sections that the language model did not reach before its time was over."""


class Filters:
    """Filters that check drafts, a batch of searches at a time, and hold those that passed."""

    def __init__(self, library: Library, index: Index, top_k: int, limit: int = 0) -> None:
        """Index the sections by their words.

        Args:
            library: pages of the corpus.
            index: index of the same pages.
            top_k: number of first hits among which a question's own wording must find its page.
            limit: maximum number of questions; 0 sets no limit.
        """
        self.library, self.limit, self._index, self._top_k = library, limit, index, top_k
        self.reader: Reader | None = None
        """Reader of written questions; None: they are not read."""
        self.taken: list[Draft] = []
        self.made: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._waiting: list[Draft] = []
        self._per_section: Counter[str] = Counter()
        self.excerpts = [excerpt for page in library.pages() for excerpt in excerpts_of(page, library)]
        self._holding: dict[str, set[int]] = defaultdict(set)
        self._lines = [word_line(f"{excerpt.heading}\n{excerpt.text}") for excerpt in self.excerpts]
        self.common = frozenset(word for excerpt in self.excerpts for word in _SMALL.findall(excerpt.text))
        """Words that begin with a small letter somewhere in the corpus."""
        for number, line in enumerate(self._lines):
            for word in content_words(line):
                self._holding[word].add(number)
        self._asked: set[frozenset[str]] = set()
        self._asked_of: Counter[tuple[str, str]] = Counter()

    def reason_against(self, draft: Draft) -> str | None:
        """Return the reason to drop a draft, as far as it is known without a search; None if there is none."""
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
        """Search with the drafts' own wording; return for each the reason why it does not find its section, None if it does."""
        found = self.search([draft.question for draft in drafts])
        reasons: list[str | None] = []
        for draft, hits in zip(drafts, found, strict=True):
            hit = next((hit for hit in hits if hit.page_id == draft.place.page_id), None)
            if hit is None:
                reasons.append(f"page not among the first {self._top_k} hits")
            # Free wording may be nearer to another section of the page; a section's own words must not be.
            elif hit.section_id != draft.place.section_id and draft.kind not in FREE:
                reasons.append("another section is nearer")
            else:
                reasons.append(None)
        return reasons

    def search(self, queries: Sequence[str]) -> list[list[Hit]]:
        """Search like a policy."""
        return self._index.search(queries, self._top_k) if queries else []

    def add(self, drafts: Sequence[Draft], batch: int = BATCH) -> None:
        """Add drafts; those that fail without a search are dropped at once, the others searched for when a batch waits."""
        for draft in drafts:
            self.made[draft.kind] += 1
            reason = self.reason_against(draft)
            if reason is None:
                self._waiting.append(draft)
            else:
                self.dropped[reason] += 1
        if len(self._waiting) >= batch:
            self.settle()

    def note(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Register existing questions: they are not repeated, and count for their sections."""
        for row in rows:
            self._asked.add(content_words(row["question"]))
            for section_id in row["section_ids"][-1:]:
                self._asked_of[section_id, row["answer"].casefold()] += 1
                self._per_section[section_id] += row["kind"] == "cloze"

    def refuse(self, draft: Draft) -> str | None:
        """Return the reason to drop a draft that does not count for the limit; None registers it against repetition."""
        reason = self.reason_against(draft) or self.find([draft])[0]
        if reason is None:
            self._asked.add(content_words(draft.question))
        return reason

    def settle(self) -> None:
        """Search with the waiting drafts, and keep or drop each."""
        for draft, missed in zip(self._waiting, self._read(self._waiting, self.find(self._waiting)), strict=True):
            reason = missed or self.reason_against(draft) or self._surplus(draft)
            if reason is not None:
                self.dropped[reason] += 1
                continue
            self._asked.add(content_words(draft.question))
            self._asked_of[draft.place.section_id, draft.answer.casefold()] += 1
            self._per_section[draft.place.section_id] += draft.kind == "cloze"
            self.kept[draft.kind] += 1
            self.taken.append(draft)
        self._waiting.clear()

    def _read(self, drafts: Sequence[Draft], reasons: Sequence[str | None]) -> list[str | None]:
        """Let the reader answer the written drafts without a reason; return the reasons, with those of drafts that it answers otherwise."""
        asked = [number for number, reason in enumerate(reasons) if reason is None and drafts[number].kind == WRITTEN]
        found = list(reasons)
        if self.reader is not None and asked:
            for number, said in zip(asked, self.reader([drafts[number] for number in asked]), strict=True):
                answer = (drafts[number].answer,)
                alike = typed_match(said, answer) or f1(said, answer) >= ALIKE_F1
                found[number] = None if alike else "the reader answers otherwise"
        return found

    def _surplus(self, draft: Draft) -> str | None:
        if self.limit and len(self.taken) >= self.limit:
            return "beyond the limit"
        if draft.kind == "cloze" and self._per_section[draft.place.section_id] >= PER_SECTION:
            return f"more than {PER_SECTION} of a section"
        return None

    def _reason_elsewhere(self, draft: Draft) -> str | None:
        """Return a reason in other sections to drop a draft: they hold its answer or its sentence."""
        words = content_words(draft.answer)
        if not words:
            return "answer in many sections"
        candidates = set.intersection(*sorted((self._holding.get(word, set()) for word in words), key=len))
        allowed, wanted = max(MAX_SECTIONS, int(MAX_SECTIONS_FRAC * len(self.excerpts))), word_line(draft.answer)
        holding = [number for number in candidates if wanted in self._lines[number]]
        on_page = sum(1 for number in holding if self.excerpts[number].page_id == draft.place.page_id)
        if len(holding) > allowed or on_page > MAX_SECTIONS_OF_PAGE:
            return "answer in many sections"
        said = word_line(draft.place.text)
        repeated = draft.kind == "cloze" and sum(1 for number in holding if said in self._lines[number]) > 1
        return "sentence in several sections" if repeated else None


class QuestionWriter(Protocol):
    """Language model that writes questions about sections."""

    faults: Counter[str]
    """Number of replies without a usable question, by reason."""
    reader: Reader | None
    """Reader of its questions; None: they are not read."""

    def write(self, sections: Sequence[Excerpt], filters: Filters) -> Iterator[list[Draft]]:
        """Yield the drafts about each section, in order; the model may stop early, and leave out what the filters would drop."""
        ...


def make_questions(
    filters: Filters,
    seed: int,
    writer: QuestionWriter | None = None,
    progress: Progress | None = None,
    about: Container[str] | None = None,
    kinds: Kinds = "written",
    unasked: Container[str] = (),
) -> MadeQuestions:
    """Generate questions about the pages of a library.

    Args:
        filters: filters of the pages and their index, with the limit.
        seed: seed of the choice of sentences and gaps.
        writer: language model that writes questions; None: all have gaps.
        progress: called with the number of pages done and their total.
        about: ids of the pages to ask about; None takes all.
        kinds: kinds of questions, where a model writes.
        unasked: ids of sections of other pages that the language model is asked about, too.

    Raises:
        JudgeError: the model's server does not answer.
        IndexUnusableError, EmbedderError: the index or its embedder failed.
    """
    library, limit = filters.library, filters.limit
    pages = [page for page in library.pages() if about is None or page.id in about]
    Random(f"questions/{seed}").shuffle(pages)
    _add_how_tos(filters, pages)
    left: tuple[str, ...] = ()
    if writer is not None:
        room = limit - len(filters.taken) if limit else 0
        others = [page for page in library.pages() if about is not None and page.id not in about]
        waiting = [[excerpt for excerpt in excerpts_of(page, library) if excerpt.section_id in unasked] for page in others]
        sources = [*(excerpts_of(page, library) for page in pages), *(iter(sections) for sections in waiting if sections)]
        left = _add_written(filters, writer, sources, room / 2 if kinds == "both" else room, progress)
    if kinds != "written" or not filters.kept[WRITTEN]:
        _add_gaps(filters, seed, pages, progress)
    order = {page.id: number for number, page in enumerate(library.pages())}
    rows = tuple(map(make_row, sorted(filters.taken, key=lambda draft: order[draft.place.page_id])))
    faults = dict(writer.faults) if writer else {}
    return MadeQuestions(rows, dict(filters.made), dict(filters.kept), dict(filters.dropped.most_common()), faults, left)


def _add_written(
    filters: Filters, writer: QuestionWriter, pages: Sequence[Iterator[Excerpt]], limit: float, progress: Progress | None
) -> tuple[str, ...]:
    """Add written questions about sections of pages, up to a limit; return the ids of those that the writer left for lack of time.

    A page gives one section per round.
    """
    sections = [section for _, section in _in_turn(pages) if len(section.text) >= MIN_SECTION_CHARS]
    filters.reader, done = writer.reader, 0
    for done, drafts in enumerate(writer.write(sections, filters), start=1):
        for draft in drafts:
            if not limit or filters.kept[WRITTEN] < limit:
                filters.add([draft], min(BATCH, math.ceil(limit - filters.kept[WRITTEN])) if limit else BATCH)
        if progress is not None:
            progress(done * len(pages) // len(sections), len(pages))
        if limit and filters.kept[WRITTEN] >= limit:
            done = len(sections)  # more questions are not wanted
            break
    filters.settle()
    return tuple(section.section_id for section in sections[done:])


def _add_how_tos(filters: Filters, pages: Sequence[Page]) -> None:
    """Add how-to questions, at most half of the limit; a page gives one section per round."""
    verbs = find_verbs(excerpt.text for excerpt in filters.excerpts)
    for _, section in _in_turn([excerpts_of(page, filters.library) for page in pages]):
        if filters.limit and len(filters.taken) >= filters.limit // 2:
            break
        filters.add(
            list(make_how_tos(section, verbs)), min(BATCH, max(1, filters.limit // 2 - len(filters.taken))) if filters.limit else BATCH
        )
    filters.settle()


def _add_gaps(filters: Filters, seed: int, pages: Sequence[Page], progress: Progress | None) -> None:
    """Add questions with a gap; a page gives one sentence per round: with a limit, every page comes once before any comes twice."""
    for done, drafts in _in_turn([_drafts_of(page, seed, filters.library, filters.common) for page in pages]):
        filters.add(drafts)
        if progress is not None:
            progress(done, len(pages))
        if filters.limit and len(filters.taken) >= filters.limit:
            break
    filters.settle()


def excerpts_of(page: Page, library: Library) -> Iterator[Excerpt]:
    """Yield a page's sections, each without its sub-sections."""
    for section, own in zip(library.sections(page.id), own_texts(page), strict=True):
        name = next((name for name in (page.title, section.heading) if name.casefold() not in library.shared_names), "")
        yield Excerpt(own, page.id, name, section.id, section.heading)


def _in_turn(sources: Sequence[Iterator[Item]]) -> Iterator[tuple[int, Item]]:
    """Yield the next item of each source in turn until all are exhausted, with the number of exhausted ones."""
    active, total = list(sources), len(sources)
    while active:
        going = []
        for source in active:
            item = next(source, None)
            if item is not None:
                going.append(source)
                yield total - len(active), item
        active = going


def _drafts_of(page: Page, seed: int, library: Library, common: Container[str]) -> Iterator[list[Draft]]:
    """Yield the drafts of a page, grouped by sentence, in an order drawn by `seed`."""
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
    """Return a question in the form of a file of questions."""
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
