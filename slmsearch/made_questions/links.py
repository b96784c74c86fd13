"""Two-hop questions: a sentence of one page names another page, and a few words of that page have a gap.

    Which name fills the gap: "It is named after the engineer ____."? On the page of that name, which year fills the gap:
    "... he moved to Paris in ____ to ..."?

A question is kept if its words find the first page and not the second, the first page does not hold the answer, and the first page's name
for the second finds the second page. Then no single page answers it, and both can be reached.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import holds_answer
from slmsearch.corpus.scripts import SPACELESS
from slmsearch.keys import content_key
from slmsearch.made_questions.cloze import ASKED, GAP, Excerpt, find_spans
from slmsearch.made_questions.make import BATCH, Filters, MadeQuestions, excerpts_of
from slmsearch.made_questions.names import Names
from slmsearch.made_questions.sentences import is_usable, plain_paragraphs, split_sentences

KIND = "two_hop"
PER_PAGE = 2
"""Maximum number of questions that lead to the same page."""
BEFORE, AFTER = 4, 2
"""Number of words before and after the gap on the second page: too few to find it."""
_WORD = re.compile(rf"[{SPACELESS}]{{1,3}}|[^\s{SPACELESS}]+")
"""Pattern of a word, or of up to three characters of a script without spaces."""


@dataclass(frozen=True, slots=True)
class LinkedFact:
    """Fact to ask about a page whose name is known."""

    place: Excerpt
    answer: str
    asked: str
    """Question about the fact."""


def find_facts(excerpt: Excerpt, common: Container[str] = ()) -> Iterator[LinkedFact]:
    """Find dates, numbers, names and terms in an excerpt whose neighbouring words do not contain the name of the page."""
    for sentence in _sentences(excerpt):
        for span in find_spans(sentence, common=common):
            before, after = list(_WORD.finditer(sentence, 0, span.start)), list(_WORD.finditer(sentence, span.end))
            if len(before) < BEFORE:
                continue
            end = after[:AFTER][-1].end() if after else len(sentence)
            fragment = f"{sentence[before[-BEFORE].start() : span.start]}{GAP}{sentence[span.end : end]}".replace('"', "'")
            told = excerpt.title and excerpt.title in fragment
            if not told and not holds_answer(f"{fragment} {excerpt.title}", span.text):
                asked = ASKED[span.kind][0].lower() + ASKED[span.kind][1:]
                yield LinkedFact(excerpt, span.text, f'On the page of that name, {asked}: "... {fragment} ..."?')


@dataclass(frozen=True, slots=True)
class Mention:
    """Sentence that names another page."""

    place: Excerpt
    """Sentence with its location."""
    name: str
    """Name in the sentence's spelling."""
    page_id: str
    """Id of the named page."""

    def ask(self, fact: LinkedFact) -> str:
        """Return the two-hop question."""
        gapped = self.place.text.replace(self.name, GAP).replace('"', "'")
        return f'Which name fills the gap: "{gapped}"? {fact.asked}'


def find_mentions(library: Library, seed: int) -> list[Mention]:
    """Find sentences that name another page, in an order drawn by `seed`."""
    names, mentions = Names(library), list[Mention]()
    for page in library.pages():
        for excerpt in excerpts_of(page, library):
            links = names.links_of(excerpt)
            for sentence in _sentences(excerpt):
                named = {page_id: name for name, page_id in names.find(sentence, links)}
                place = replace(excerpt, text=sentence)
                mentions += [Mention(place, name, other) for other, name in named.items() if other != page.id and name not in page.title]
    Random(f"links/{seed}").shuffle(mentions)
    return mentions


def _sentences(excerpt: Excerpt) -> Iterator[str]:
    for paragraph in plain_paragraphs(excerpt.text):
        yield from filter(is_usable, split_sentences(paragraph))


def add_two_hop(made: MadeQuestions, filters: Filters, seed: int, limit: int, about: Container[str] | None = None) -> MadeQuestions:
    """Add two-hop questions to others.

    Args:
        made: the other questions.
        filters: filters of the pages and their index.
        seed: seed of the choice of sentences.
        limit: maximum number of questions.
        about: ids of pages, of which each question must use one; None takes all.

    Raises:
        IndexUnusableError, EmbedderError: the index or its embedder failed.
    """
    rows, dropped = make_two_hop(filters, seed, limit, about)
    return replace(
        made,
        rows=(*made.rows, *rows),
        made={**made.made, KIND: len(rows) + dropped.total()},
        kept={**made.kept, KIND: len(rows)},
        dropped=dict((Counter(made.dropped) + dropped).most_common()),
    )


def make_two_hop(
    filters: Filters, seed: int, limit: int, about: Container[str] | None = None
) -> tuple[list[dict[str, object]], Counter[str]]:
    """Return rows in the form of a file of questions, and the number of dropped mentions by reason; see `add_two_hop`."""
    rows, dropped, chance = list[dict[str, object]](), Counter[str](), Random(f"facts/{seed}")
    taken: Counter[str] = Counter()
    asked: set[str] = set()

    @functools.cache
    def facts_of(page_id: str) -> list[LinkedFact]:
        page = filters.library.page(page_id)
        excerpts = excerpts_of(page, filters.library) if page else ()
        facts = [fact for excerpt in excerpts for fact in find_facts(excerpt, filters.common)]
        times = Counter(fact.asked for fact in facts)
        return [fact for fact in facts if times[fact.asked] == 1]  # a few words may occur twice on a page, with other answers

    mentions = find_mentions(filters.library, seed)
    if about is not None:
        mentions = [mention for mention in mentions if mention.place.page_id in about or mention.page_id in about]
    for start in range(0, len(mentions) if limit else 0, BATCH):
        batch = [mention for mention in mentions[start : start + BATCH] if taken[mention.page_id] < PER_PAGE]
        facts = _choose_facts(batch, filters, chance, facts_of)
        for mention, fact, reason in zip(batch, facts, _reasons_against(batch, facts, filters), strict=True):
            if isinstance(fact, str) or reason or mention.ask(fact) in asked or taken[mention.page_id] >= PER_PAGE:
                dropped[reason or "repeated"] += 1
                continue
            asked.add(mention.ask(fact))
            taken[mention.page_id] += 1
            rows.append(_row(mention, fact))
            if len(rows) >= limit:
                return rows, dropped
        dropped["repeated"] += len(mentions[start : start + BATCH]) - len(batch)
    return rows, +dropped


def _choose_facts(
    mentions: Sequence[Mention], filters: Filters, chance: Random, facts_of: Callable[[str], Sequence[LinkedFact]]
) -> list[LinkedFact | str]:
    """Search with each name and choose a fact of its page, if possible in the found section; otherwise give the reason for none."""
    chosen: list[LinkedFact | str] = []
    for mention, hits in zip(mentions, filters.search([mention.name for mention in mentions]), strict=True):
        found = [hit.section_id for hit in hits if hit.page_id == mention.page_id]
        if not found:
            chosen.append("its name does not find the second page")
            continue
        told = [fact for fact in facts_of(mention.page_id) if mention.name not in fact.asked]
        nearest = [fact for fact in told if fact.place.section_id in found]
        chosen.append(chance.choice(nearest or told) if told else "nothing to ask on the second page")
    return chosen


def _reasons_against(mentions: Sequence[Mention], facts: Sequence[LinkedFact | str], filters: Filters) -> list[str | None]:
    """Search with each question, and with each name and its question; return why one page alone answers, or why a page cannot be
    reached."""
    asked = [(mention, fact) for mention, fact in zip(mentions, facts, strict=True) if isinstance(fact, LinkedFact)]
    found = filters.search([text for mention, fact in asked for text in (mention.ask(fact), f"{mention.name} {fact.asked}")])
    pairs = iter(zip(found[::2], found[1::2], strict=True))
    reasons: list[str | None] = []
    for mention, fact in zip(mentions, facts, strict=True):
        if isinstance(fact, str):
            reasons.append(fact)
            continue
        by_question, by_name = ({hit.page_id: hit.section_id for hit in hits} for hits in next(pairs))
        page = filters.library.page(mention.place.page_id)
        if page is None or holds_answer(page.content, fact.answer):
            reasons.append("answer on the first page")
        elif mention.page_id in by_question:
            reasons.append("the question finds the second page")
        elif by_question.get(mention.place.page_id) != mention.place.section_id:
            reasons.append("the question does not find the first page's section")
        elif by_name.get(mention.page_id) != fact.place.section_id:
            reasons.append("its name does not find the second page's section")
        else:
            reasons.append(None)
    return reasons


def _row(mention: Mention, fact: LinkedFact) -> dict[str, object]:
    first, second, question = mention.place, fact.place, mention.ask(fact)
    key = content_key(question=question, answer=fact.answer, section=second.section_id)
    return {
        "id": f"t-{key[:12]}",
        "question": question,
        "answer": fact.answer,
        "aliases": [],
        "page_ids": [first.page_id, second.page_id],
        "section_ids": [first.section_id, second.section_id],
        "hops": 2,
        "entities": [mention.name],
        "kind": KIND,
    }
