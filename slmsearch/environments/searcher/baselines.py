"""Retrieve-then-answer without a model: one search, the best page's best passages, and the span that rules pick from them.

It plays through the same tools as a policy, so its search metrics mean the same. It makes one search and no second hop. The
question's words, weighted by their rarity, decide which passages it reads; together with the kind of span asked for they decide the answer.
No rule depends on a corpus. The random policy is in `random_turns.py`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import log
from operator import itemgetter

from slmsearch.corpus.questions import UNKNOWN_ANSWER
from slmsearch.environments.searcher.parsing import render_answer, render_call
from slmsearch.environments.searcher.tools import READ, SEARCH, Toolbox
from slmsearch.episodes.episode import ToolCall

NUM_READS = 6
"""Number of passages read of the best page, turns permitting."""
MAX_COUNTED_PAGES = 4000
"""Number of pages on which the rarity of words is counted; more change little."""


class RetrieveThenAnswer:
    """The script of the baseline: question and results so far to the next message."""

    def __init__(self, toolbox: Toolbox, max_turns: int) -> None:
        """Count the rarity of words in the corpus; an episode has at most `max_turns` messages, search and answer included."""
        self._library = toolbox.library
        self._passage_chars = toolbox.max_section_chars
        self._num_reads = max(0, min(NUM_READS, max_turns - 2))
        self._counts: Counter[str] = Counter()
        self._num_pages = 0
        for page in islice(toolbox.library.pages(), MAX_COUNTED_PAGES):
            self._counts.update(find_stems(page.content))
            self._num_pages += 1
        self._plans: dict[tuple[str, str], list[str]] = {}

    def __call__(self, question: str, results: list[str]) -> str:
        """Write the next message."""
        if not results:
            return render_call(ToolCall(SEARCH, question))
        names = (line.partition(": ")[0] for line in results[0].splitlines())
        page_id = next((found for name in names if (found := self._page_of(name))), None)
        if page_id is None:
            return render_answer(UNKNOWN_ANSWER)
        passages = results[1:]
        plan = self._plan(question, page_id)
        if len(passages) < len(plan):
            return render_call(ToolCall(READ, plan[len(passages)]))
        known = find_stems(question) | self._title_stems(page_id)
        return render_answer(pick_answer(question, passages, self._weigh(question, page_id), known) or UNKNOWN_ANSWER)

    def _page_of(self, name: str) -> str | None:
        """Return the page that an id of a page or a section, as a search shows it, names."""
        section = self._library.section(name)
        return name if self._library.page(name) else section.page_id if section else None

    def _title_stems(self, page_id: str) -> set[str]:
        page = self._library.page(page_id)
        return find_stems(page.title) if page is not None else set()

    def _weigh(self, question: str, page_id: str) -> dict[str, float]:
        """Weigh the question's words by rarity; words of the page's title do not distinguish its sentences."""
        stems = find_stems(question) - self._title_stems(page_id)
        return {stem: log((self._num_pages + 1) / (self._counts[stem] + 0.5)) for stem in stems}

    def _plan(self, question: str, page_id: str) -> list[str]:
        """Choose passages of a page, most promising first, as arguments of `read_section`; called again every turn."""
        if (question, page_id) in self._plans:
            return self._plans[question, page_id]
        weights, size = self._weigh(question, page_id), self._passage_chars
        passages = []
        for section in self._library.sections(page_id):
            for number, start in enumerate(range(0, max(1, len(section.text)), size), start=1):
                score = overlap(weights, section.text[start : start + size])
                passages.append((score, section.id if number == 1 else f"{section.id}#{number}"))
        passages.sort(key=lambda passage: -passage[0])  # stable: the earlier passage wins a tie
        self._plans[question, page_id] = [argument for _, argument in passages[: self._num_reads]]
        return self._plans[question, page_id]


ASKED_GAIN = 0.1
"""Gain in score of spans of the kind asked for; a span is accepted when its score is above 0."""
FALLBACK_COST = 0.3
"""Cost in score of spans of another kind."""
DISTANCE_COST = 0.2
"""Cost in score of spans far from the question's words."""
_FAR_CHARS = 100
_STEM_CHARS = 5
"""Length of a word's beginning that identifies it ("founded", "founder")."""

_WORD = re.compile(r"\w+(?:[.,'\u2019:-]\w+)*")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be been but by can did do does for from had has have he her his how in into is it its many much name "
        "named of on or she that the their there they this to was were what when where which who whom whose why will with"
    )
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"\u201c(]?[A-Z0-9])|\n+")
_CAPITALISED = r"[^\W\d_a-z][\w'\u2019-]*"
_YEAR = re.compile(r"\b(?P<span>[12]\d{3})\b")
_NUMBER = re.compile(
    r"\b(?P<span>\d+(?:[.,]\d+)*|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand)\b", re.IGNORECASE
)
_NAME = re.compile(rf"\b(?P<span>{_CAPITALISED}(?:\s+(?:(?:of|de|the|von|van)\s+)*{_CAPITALISED})*)")
_NOUN = re.compile(r"\b(?:an?|the|of|in|by|as|for|to|is|was|are|were|her|his|its|their)\s+(?P<span>[a-z-]+(?:\s[a-z-]+)?)")
_ASKS_YEAR = re.compile(r"\b(?:when|year|date)\b", re.IGNORECASE)
_ASKS_NUMBER = re.compile(r"\bhow (?:many|much|long|old|tall|high|far|large|big)\b|\b(?:number|population|length|height)\b", re.IGNORECASE)
_ASKS_NAME = re.compile(
    r"\b(?:who|whom|whose|where)\b|\b(?:what|which) (?:author|book|city|college|company|country|firm|mountain|museum|person|place|prize|"
    r"river|school|state|town|university|village)\b",
    re.IGNORECASE,
)


def find_stems(text: str) -> set[str]:
    """Find the beginnings of a text's words, common words left out."""
    return {_stem(word) for word in _WORD.findall(text)} - _STOP_WORDS


def overlap(weights: Mapping[str, float], text: str) -> float:
    """Sum the weights of the words that occur in a text."""
    return sum(weights.get(stem, 0.0) for stem in find_stems(text))


def pick_answer(question: str, texts: Sequence[str], weights: Mapping[str, float], known: set[str]) -> str | None:
    """Pick the most promising span, or None if no span is accepted.

    Args:
        question: decides what kind of span is asked for.
        texts: passages that were read, most promising first, headings included.
        weights: stem -> weight, of stems that distinguish sentences.
        known: stems of the question and of the page's title; an answer must have a stem beside them.
    """
    sentences = [line for text in texts for line in _SENTENCE_END.split(text) if line.strip() and not line.startswith("#")]
    rated = (found for line in sentences for found in _rate(question, line, weights, known))
    score, best = max(rated, key=itemgetter(0), default=(0.0, ""))
    return best if score > 0 else None


def _rate(question: str, sentence: str, weights: Mapping[str, float], known: set[str]) -> Iterator[tuple[float, str]]:
    """Score every span of a sentence: the share of the question's weight in it, minus the costs of the span."""
    share = overlap(weights, sentence) / (sum(weights.values()) or 1.0)
    anchors = [match.span() for match in _WORD.finditer(sentence) if _stem(match[0]) in weights]
    asked, others = _kinds(question)
    for patterns, cost in ((asked, -ASKED_GAIN), (others, FALLBACK_COST)):
        for pattern in patterns:
            for match in pattern.finditer(sentence):
                stems = find_stems(match["span"])
                if stems and not stems <= known:
                    start, end = match.span("span")
                    gaps = (max(first - end, start - last, 0) for first, last in anchors)
                    far = min((*gaps, _FAR_CHARS)) / _FAR_CHARS
                    yield share - cost - DISTANCE_COST * far, match["span"]


def _kinds(question: str) -> tuple[tuple[re.Pattern[str], ...], tuple[re.Pattern[str], ...]]:
    """Return the kinds of span that a question asks for, and acceptable other kinds."""
    if _ASKS_YEAR.search(question):
        return (_YEAR,), (_NUMBER,)
    if _ASKS_NUMBER.search(question):
        return (_NUMBER,), ()
    if _ASKS_NAME.search(question):
        return (_NAME,), (_NOUN,)
    return (_NAME, _NOUN), (_NUMBER,)


def _stem(word: str) -> str:
    lowered = re.sub(r"['\u2019]s$", "", word.casefold())
    return lowered if lowered in _STOP_WORDS or lowered[0].isdigit() else lowered[:_STEM_CHARS]
