"""Questions over two pages: a sentence of one page names another, and a few words of that one have a gap.

    Which name fills the gap: "It is named after the engineer ____."? On the page of that name, which year fills the gap:
    "... he moved to Paris in ____ to ..."?

Kept is a question whose words find the first page and not the second, whose answer does not stand on the first, and whose second page
is found by its title: one page alone does not answer it, and both can be reached.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import holds_answer
from slmsearch.keys import content_key
from slmsearch.questions.cloze import ASKED, GAP, Excerpt, find_spans
from slmsearch.questions.make import BATCH, Filters, Made, excerpts_of
from slmsearch.questions.sentences import is_usable, plain_paragraphs, split_sentences

KIND = "two_hop"
PER_PAGE = 2
"""Questions that lead to the same page."""
BEFORE, AFTER = 4, 2
"""Words around the gap of the second page: so few do not find it."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What can be asked about a page once its name is known."""

    place: Excerpt
    answer: str
    asked: str
    """The question about it."""


def find_facts(excerpt: Excerpt) -> Iterator[Fact]:
    """Find dates, numbers, names and terms in an excerpt whose neighbouring words do not name its page."""
    for paragraph in plain_paragraphs(excerpt.text):
        for sentence in filter(is_usable, split_sentences(paragraph)):
            for span in find_spans(sentence):
                before, after = sentence[: span.start].split(), sentence[span.end :].split()
                near = " ".join(before[-BEFORE:]), " ".join(after[:AFTER])
                behind = "" if sentence[span.end : span.end + 1].strip() else " "
                fragment = f"{near[0]} {GAP}{behind}{near[1]}".replace('"', "'")
                if len(before) >= BEFORE and not holds_answer(f"{fragment} {excerpt.title}", span.text) and excerpt.title not in fragment:
                    asked = ASKED[span.kind][0].lower() + ASKED[span.kind][1:]
                    yield Fact(excerpt, span.text, f'On the page of that name, {asked}: "... {fragment} ..."?')


@dataclass(frozen=True, slots=True)
class Link:
    """A sentence that names the page of a fact."""

    place: Excerpt
    """The sentence, and where it stands."""
    fact: Fact

    @property
    def question(self) -> str:
        """The question over both pages."""
        gapped = self.place.text.replace(self.fact.place.title, GAP).replace('"', "'")
        return f'Which name fills the gap: "{gapped}"? {self.fact.asked}'


def names_page(sentence: str, title: str) -> bool:
    """Say whether a sentence names a page once, and not something longer: "Ho Chi Minh" is not in "Ho Chi Minh City"."""
    name = re.escape(title)
    longer = re.search(rf"[A-Z][\w'-]* {name}|{name}(?:-\w|(?: (?:d[aeo]|del|of|the))? [A-Z])", sentence)
    return sentence.count(title) == 1 and longer is None


def find_links(library: Library, seed: int) -> list[Link]:
    """Find sentences that name another page, each with something to ask about that page; which and in what order is drawn by seed."""
    facts: dict[str, list[Fact]] = defaultdict(list)
    for page in library.pages():
        if len(page.title.split()) > 1:  # of one word alone nobody knows which page it means
            for excerpt in excerpts_of(page, library):
                facts[page.title] += find_facts(excerpt)
    by_words: dict[tuple[str, ...], str] = {tuple(title.split()): title for title, found in facts.items() if found}
    lengths = sorted({len(words) for words in by_words})
    links, chance = list[Link](), Random(f"links/{seed}")
    for page in library.pages():
        for excerpt in excerpts_of(page, library):
            for paragraph in plain_paragraphs(excerpt.text):
                for sentence in filter(is_usable, split_sentences(paragraph)):
                    words = [word.strip(".,;:!?()[]\"'") for word in sentence.split()]
                    runs = (tuple(words[i : i + n]) for n in lengths for i in range(len(words) - n + 1))
                    for title in dict.fromkeys(by_words[run] for run in runs if run in by_words):
                        if names_page(sentence, title) and title not in page.title and page.title not in title:
                            links.append(Link(replace(excerpt, text=sentence), chance.choice(facts[title])))
    chance.shuffle(links)
    return links


def add_two_hop(made: Made, filters: Filters, seed: int, limit: int, about: Container[str] | None = None) -> Made:
    """Make questions over two pages beside others.

    Args:
        made: the others.
        filters: over the pages and their index.
        seed: another one takes other sentences.
        limit: questions at most.
        about: ids of pages of which one is to be part of each question; None takes all.

    Raises:
        IndexUnusableError, EmbedderError: the index or its embedder broke.
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
    """Return rows as a file of questions holds them, and how many links were dropped for which reason; see `add_two_hop`."""
    rows, dropped = list[dict[str, object]](), Counter[str]()
    taken: Counter[str] = Counter()
    asked: set[str] = set()
    links = find_links(filters.library, seed)
    if about is not None:
        links = [link for link in links if link.place.page_id in about or link.fact.place.page_id in about]
    for start in range(0, len(links) if limit else 0, BATCH):
        batch = links[start : start + BATCH]
        for link, reason in zip(batch, _reasons_against(batch, filters), strict=True):
            page_id = link.fact.place.page_id
            reason = reason or ("repeated" if link.question in asked or taken[page_id] >= PER_PAGE else None)
            if reason is not None:
                dropped[reason] += 1
                continue
            asked.add(link.question)
            taken[page_id] += 1
            rows.append(_row(link))
            if len(rows) >= limit:
                return rows, dropped
    return rows, dropped


def _reasons_against(links: Sequence[Link], filters: Filters) -> list[str | None]:
    """Search with each question and each title; say why one page alone answers, or why both cannot be reached."""
    found = filters.search([text for link in links for text in (link.question, link.fact.place.title)])
    reasons: list[str | None] = []
    for link, by_question, by_title in zip(links, found[::2], found[1::2], strict=True):
        first, second = link.place, link.fact.place
        page = filters.library.page(first.page_id)
        sections = {hit.page_id: hit.section_id for hit in by_question}
        if page is None or holds_answer(page.content, link.fact.answer):
            reasons.append("answer on the first page")
        elif second.page_id in sections:
            reasons.append("the question finds the second page")
        elif sections.get(first.page_id) != first.section_id:
            reasons.append("the question does not find the first page's section")
        elif {hit.page_id: hit.section_id for hit in by_title}.get(second.page_id) != second.section_id:
            reasons.append("its title does not find the second page's section")
        else:
            reasons.append(None)
    return reasons


def _row(link: Link) -> dict[str, object]:
    first, second = link.place, link.fact.place
    key = content_key(question=link.question, answer=link.fact.answer, section=second.section_id)
    return {
        "id": f"t-{key[:12]}",
        "question": link.question,
        "answer": link.fact.answer,
        "aliases": [],
        "page_ids": [first.page_id, second.page_id],
        "section_ids": [first.section_id, second.section_id],
        "hops": 2,
        "kind": KIND,
    }
