"""Questions about a corpus that has none: drafted sentence by sentence, filtered, and spread evenly over the pages.

The same corpus, index, seed and limit give the same questions; those a language model writes are as repeatable as its server.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import own_texts
from slmsearch.keys import content_key
from slmsearch.questions.cloze import make_clozes
from slmsearch.questions.filters import Filters
from slmsearch.questions.sentences import Draft, Sentence, is_usable, plain_paragraphs, split_sentences
from slmsearch.questions.written import MIN_SECTION_CHARS, QuestionGenerator, SectionText

BATCH = 64
"""Questions searched for together."""
PER_SECTION = 3
"""Questions without a model a section may have."""
CLOZES_PER_SENTENCE = 1
KINDS = ("written", "cloze")

Row = dict[str, Any]
Progress = Callable[[int, int], None]
"""Called with the pages done and their total."""


@dataclass(frozen=True, slots=True)
class Made:
    """Questions, and how many drafts became of what."""

    rows: tuple[Row, ...]
    made: dict[str, int]
    """Drafts by kind."""
    kept: dict[str, int]
    """Questions by kind."""
    dropped: dict[str, int]
    """Drafts that were filtered out, by reason."""
    faults: dict[str, int]
    """Sections about which a model wrote nothing usable, by reason."""


def make_questions(
    library: Library, filters: Filters, limit: int, seed: int, generator: QuestionGenerator | None = None, progress: Progress | None = None
) -> Made:
    """Make questions about the pages of a library.

    Args:
        library: pages.
        filters: over the same pages and their index.
        limit: questions at most; 0 sets no limit.
        seed: another seed takes other sentences and gaps.
        generator: a language model that writes some, too.
        progress: told of pages.

    Raises:
        JudgeError: the model's server does not answer.
        IndexUnusableError, EmbedderError: the index or its embedder broke.
    """
    pages = list(library.pages())
    Random(f"questions/{seed}").shuffle(pages)
    maker = _Maker(filters, limit)
    for drafts in generator.write(_sections(pages, library)) if generator else ():
        maker.add(drafts)
        # Half of a limit is left for questions that need no model: one model's style is not to be all there is.
        if limit and maker.kept["written"] >= limit / 2:
            break
    maker.settle()
    # A page gives one sentence a round: with a limit, every page has its turn before one has its second.
    for done, drafts in _in_turn([_drafts_of(page, seed, library) for page in pages]):
        maker.add(drafts)
        if progress is not None:
            progress(done, len(pages))
        if limit and len(maker.taken) >= limit:
            break
    maker.settle()
    order = {page.id: number for number, page in enumerate(library.pages())}
    rows = tuple(map(_row, sorted(maker.taken, key=lambda draft: order[draft.sentence.page_id])))
    faults = dict(generator.faults) if generator else {}
    return Made(rows, _ordered(maker.made), _ordered(maker.kept), dict(maker.dropped.most_common()), faults)


class _Maker:
    """Puts drafts through the filters, a batch of searches at a time."""

    def __init__(self, filters: Filters, limit: int) -> None:
        self._filters, self._limit = filters, limit
        self.taken: list[Draft] = []
        self.made: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._waiting: list[Draft] = []
        self._per_section: Counter[str] = Counter()

    def add(self, drafts: Sequence[Draft]) -> None:
        """Take drafts in; those that fail without a search are dropped at once."""
        for draft in drafts:
            self.made[draft.kind] += 1
            reason = self._filters.reason_against(draft)
            if reason is None:
                self._waiting.append(draft)
            else:
                self.dropped[reason] += 1
        if len(self._waiting) >= BATCH:
            self.settle()

    def settle(self) -> None:
        """Search with what waits, and keep or drop it."""
        for draft, missed in zip(self._waiting, self._filters.find(self._waiting), strict=True):
            reason = missed or self._filters.reason_against(draft) or self._surplus(draft)
            if reason is not None:
                self.dropped[reason] += 1
                continue
            self._filters.take(draft)
            self._per_section[draft.sentence.section_id] += draft.kind != "written"
            self.kept[draft.kind] += 1
            self.taken.append(draft)
        self._waiting.clear()

    def _surplus(self, draft: Draft) -> str | None:
        if self._limit and len(self.taken) >= self._limit:
            return "beyond the limit"
        if draft.kind != "written" and self._per_section[draft.sentence.section_id] >= PER_SECTION:
            return f"more than {PER_SECTION} of a section"
        return None


def _sections(pages: Sequence[Page], library: Library) -> list[SectionText]:
    return [
        SectionText(page.id, page.title, section.id, section.heading, own)
        for page in pages
        for section, own in zip(library.sections(page.id), own_texts(page), strict=True)
        if len(own) >= MIN_SECTION_CHARS
    ]


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


def _drafts_of(page: Page, seed: int, library: Library) -> Iterator[list[Draft]]:
    """Yield the drafts of a page, a sentence's together, in an order drawn by seed."""
    rng = Random(f"questions/{seed}/{page.id}")
    sentences = list(_sentences(page, library))
    rng.shuffle(sentences)
    for sentence in sentences:
        clozes = list(make_clozes(sentence))
        rng.shuffle(clozes)
        yield clozes[:CLOZES_PER_SENTENCE]


def _sentences(page: Page, library: Library) -> Iterator[Sentence]:
    for section, own in zip(library.sections(page.id), own_texts(page), strict=True):
        for paragraph in plain_paragraphs(own):
            for text in split_sentences(paragraph):
                if is_usable(text):
                    yield Sentence(text, page.id, page.title, section.id, section.heading)


def _row(draft: Draft) -> Row:
    place = draft.sentence
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


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return {kind: counts[kind] for kind in KINDS if counts[kind]}
