"""Picking an answer from texts by rules: the question's words, weighted, and the kind of span it asks for.

Nothing here knows any corpus. It is all the reading that the baseline without a model does.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

ASKED_GAIN = 0.1
"""Added to the score of spans of the kind asked for; a span is believed when its score is above 0."""
FALLBACK_COST = 0.3
"""Taken from spans of another kind."""
DISTANCE_COST = 0.2
"""Taken from spans far from the question's words."""
_FAR_CHARS = 100
_STEM_CHARS = 5
"""Words with equal beginnings count as one ("founded", "founder")."""

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


@dataclass(frozen=True, slots=True)
class _Candidate:
    text: str
    score: float


def pick_answer(question: str, texts: Sequence[str], weights: Mapping[str, float], known: set[str]) -> str | None:
    """Pick the most promising span, or None where nothing is believable.

    Args:
        question: decides what kind of span is asked for.
        texts: what was read, most promising first, headings included.
        weights: weight of each stem that tells sentences apart.
        known: stems of which an answer must not be made up entirely: those of the question and of the page's title.
    """
    sentences = [line for text in texts for line in _SENTENCE_END.split(text) if line.strip() and not line.startswith("#")]
    candidates = [candidate for line in sentences for candidate in _rate(question, line, weights, known)]
    best = max(candidates, key=lambda candidate: candidate.score, default=None)
    return best.text if best is not None and best.score > 0 else None


def _rate(question: str, sentence: str, weights: Mapping[str, float], known: set[str]) -> Iterator[_Candidate]:
    """Score every span of a sentence: the share of the question's weight found there, less what speaks against the span."""
    share = overlap(weights, sentence) / (sum(weights.values()) or 1.0)
    anchors = [match.span() for match in _WORD.finditer(sentence) if _stem(match[0]) in weights]
    asked, others = _kinds(question)
    for patterns, cost in ((asked, -ASKED_GAIN), (others, FALLBACK_COST)):
        for pattern in patterns:
            for match in pattern.finditer(sentence):
                stems = find_stems(match["span"])
                if stems and not stems <= known:
                    far = min(_distance(match.span("span"), anchors), _FAR_CHARS) / _FAR_CHARS
                    yield _Candidate(match["span"], share - cost - DISTANCE_COST * far)


def _kinds(question: str) -> tuple[tuple[re.Pattern[str], ...], tuple[re.Pattern[str], ...]]:
    """Kinds of span a question asks for, and what else might do."""
    if _ASKS_YEAR.search(question):
        return (_YEAR,), (_NUMBER,)
    if _ASKS_NUMBER.search(question):
        return (_NUMBER,), ()
    if _ASKS_NAME.search(question):
        return (_NAME,), (_NOUN,)
    return (_NAME, _NOUN), (_NUMBER,)


def _distance(span: tuple[int, int], anchors: Sequence[tuple[int, int]]) -> int:
    """Characters between a span and the nearest word of the question."""
    return min((max(start - span[1], span[0] - end, 0) for start, end in anchors), default=_FAR_CHARS)


def _stem(word: str) -> str:
    lowered = re.sub(r"['\u2019]s$", "", word.casefold())
    return lowered if lowered in _STOP_WORDS or lowered[0].isdigit() else lowered[:_STEM_CHARS]
