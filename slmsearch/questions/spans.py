"""What of a sentence a question can ask for: a date, a number, a name, a quoted term."""

import re
from dataclasses import dataclass
from typing import Literal

SpanKind = Literal["date", "year", "number", "name", "term"]

MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
DATE = rf"(?:\d{{1,2}} {MONTH} \d{{4}}|{MONTH} \d{{1,2}}, \d{{4}}|{MONTH} \d{{4}})"
YEAR = r"(?:1\d{3}|20\d{2})"
_SCALE = r"(?: (?:hundred|thousand|million|billion|trillion))?"
NUMBER = rf"\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?{_SCALE}|\d+(?:\.\d+)?{_SCALE}"
_CAPITALISED = r"[A-Z\u00c0-\u00de][\w\u2019'&-]*\w|[A-Z]\.(?=\s[A-Z])|(?<=\w )[IVX]{1,4}(?!\w)"
_LINKING = r"(?:of|the|and|de|da|di|du|del|la|le|von|van|der|den|al|bin|for|on|upon|at)"
NAME = rf"(?:{_CAPITALISED})(?:[ ]{_LINKING}(?=[ ](?:{_LINKING}[ ])?[A-Z\u00c0-\u00de])|[ ](?:{_CAPITALISED}))*"
_PATTERNS: tuple[tuple[SpanKind, re.Pattern[str]], ...] = (
    ("date", re.compile(rf"\b{DATE}\b")),
    ("year", re.compile(rf"(?<=\b[Ii]n )(?<!\d){YEAR}\b(?!\s?[\u2013-]|s\b|,\d)|(?<=\bsince ){YEAR}\b(?!\s?[\u2013-]|s\b)")),
    ("term", re.compile(r"[\"\u201c]([^\"\u201c\u201d]{3,60})[\"\u201d]")),
    ("number", re.compile(rf"(?<![\w.,$\u20ac\u00a3/:\u2013-])(?:{NUMBER})(?=%| (?:per cent|percent)\b| [a-z])")),
    ("name", re.compile(rf"(?<![\w\u2019'.-])(?:{NAME})(?![\w\u2013])")),
)
MAX_SPAN_WORDS = 6
_NO_NAMES_TEXT = """\
I It Its He She They We You This That These Those There Here The A An In On At By For From To Of As If When While Where Who
What Which Whose After Before During Since Until Although Though However Because But And Or So Not No Yes All Each Every Some
Many Most Both Other Another Such Then Thus Also Today His Her Their Our My Your One Two Three Monday Tuesday Wednesday
Thursday Friday Saturday Sunday January February March April May June July August September October November December Section
Chapter Figure Table Page Note See With Without Under Over Between Among Despite According Like Unlike Its Only Even Just
Once Several Part English Mr Mrs Ms Dr Prof
"""
NO_NAMES = frozenset(_NO_NAMES_TEXT.split())

_IN_LIST = re.compile(r",? (?:and )?[A-Z]|,|\.$")
_AFTER_NAMES_TEXT = """\
and or but in on at of to for from by with as is was were are had has have who which that where when while during after
before until since into onto over under against between through became began made won took did would could can will may also
first later now then
"""
_AFTER_NAMES = frozenset(_AFTER_NAMES_TEXT.split())


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a sentence."""

    start: int
    end: int
    kind: SpanKind
    text: str


def find_spans(sentence: str) -> list[Span]:
    """Find what can be asked for, in order of kinds (dates first); spans do not overlap."""
    found: list[Span] = []
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(sentence):
            span = _span(sentence, kind, *match.span(pattern.groups))
            if span and not any(span.start < other.end and other.start < span.end for other in found):
                found.append(span)
    return found


def _span(sentence: str, kind: SpanKind, start: int, end: int) -> Span | None:
    text = sentence[start:end].rstrip(".,;:!")
    if kind == "name":
        words = text.split()
        # At the start of a sentence a capital says nothing: a name there has two at least.
        while words and words[0] in NO_NAMES:
            start += len(words.pop(0)) + 1
        while words and not words[-1][0].isupper():
            words.pop()
        text = " ".join(words)
        if not words or (start == 0 and len(words) < 2) or sentence[start : start + len(text)] != text or len(text) < 3:
            return None
    if kind == "name" and _IN_LIST.match(sentence[start + len(text) :]) and sentence[:start].endswith((", ", " and ")):
        return None
    if kind == "name" and len(text.split()) == 1 and (len(text) < 4 or _is_adjective(text, sentence[start + len(text) :])):
        return None
    if not text.strip() or len(text.split()) > MAX_SPAN_WORDS or not any(c.isalnum() for c in text):
        return None
    if kind == "number" and len(text) < 2:
        return None
    return Span(start, start + len(text), kind, text)


def _is_adjective(word: str, rest: str) -> bool:
    """Guess whether a lone capitalised word describes the next one: "Tibetan activists"."""
    following = re.match(r" ([a-z]+)", rest)
    return following is not None and following[1] not in _AFTER_NAMES
