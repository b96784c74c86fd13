"""Cloze questions: sentences of a section with a gap for a date, a number, a name, a quoted term or inline code.

A name is recognised by its capital, in every script with case; dates, numbers, quoted terms and code in any script.
"""

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slmsearch.corpus.questions import holds_answer
from slmsearch.corpus.scripts import CAPITALS, GLUED
from slmsearch.made_questions.sentences import CLOSING, CODE, OPENING, count_words, is_english, is_german

SpanKind = Literal["date", "year", "number", "name", "term", "code"]

_APART, _BEHIND = rf"(?<![^\W{GLUED}])", rf"(?![^\W{GLUED}])"
"""Boundaries before and after a word; in scripts without spaces a word may follow directly."""
_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_OTHER_MONTH = (
    r"(?:(?i:jan|feb|f\u00e9v|mar|m\u00e4r|apr|avr|abr|ma[iyjg]|ju[nli]|giu|lug|aug|ago|sep|set|o[ckt]t|out|nov|d[e\u00e9][cz]|dic)[^\W\d_]*"
    r"|(?=\S*[^\x00-\x7f])[^\s\d.,;:()]{3,15})"
)
"""Start of a month's name in most languages of Latin script, or a word of another script: between a day and a year it is a month."""
YEAR = r"(?:1\d{3}|20\d{2})"
DATE = (
    rf"\d{{1,2}} {_MONTH} \d{{4}}|{_MONTH} \d{{1,2}}, \d{{4}}|{_MONTH} \d{{4}}"
    rf"|(?:[12]?\d|3[01])\.?(?: de)? {_OTHER_MONTH}(?: de)? {YEAR}|\d{{1,2}}(?P<mark>[./])\d{{1,2}}(?P=mark){YEAR}|{YEAR}-\d\d-\d\d"
    r"|(?:\d{4}\u5e74)?\d{1,2}\u6708\d{1,2}\u65e5|\d{4}\u5e74\d{1,2}\u6708"
    r"|(?:\d{4}\ub144 ?)?\d{1,2}\uc6d4 ?\d{1,2}\uc77c|\d{4}\ub144 ?\d{1,2}\uc6d4"
)
_BEFORE_YEAR = (
    r"[Ii]n|since|en|em|nel|dal|depuis|desde|Jahre?|seit|ann\u00e9e|a\u00f1o|ano|anno|roku|roce|w|\u0432|\u0443|\u0441|\u0442\u03bf"
    r"|\u0430\u043f\u043e|\u0639\u0627\u0645|\u0633\u0646\u0629|\u0633\u0627\u0644|\u05e9\u05e0\u05ea|\u05d1\u05e9\u05e0\u05ea|n\u0103m|vuonna"
)
_AFTER_YEAR = r"[\u5e74\ub144]| (?:\u0433\.|\u0433\u043e\u0434|\u0440\.|\u0440\u043e\u043a)"
_SCALE = r"(?: (?:hundred|thousand|million|billion|trillion))?"
NUMBER = rf"\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?{_SCALE}|\d{{1,3}}(?:[.\u066c'\u2019]\d{{3}}){{2,}}|\d+(?:[.,\u066b]\d+)?{_SCALE}"
_CAPITALISED = rf"[{CAPITALS}](?:[^\W{GLUED}]|[\u2019'&-])*[^\W{GLUED}]|[{CAPITALS}]\.(?=\s[{CAPITALS}])|(?<=\w )[IVX]{{1,4}}{_BEHIND}"
_LINKING = r"(?:of|the|and|de|da|di|du|del|la|le|v[ao]n(?: de[rn])?|al|bin|for|on|upon|at)"
NAME = rf"(?:{_CAPITALISED})(?:[ ]{_LINKING}(?=[ ](?:{_LINKING}[ ])?[{CAPITALS}])|[ ](?:{_CAPITALISED}))*"
_NO_QUOTE = f"[^{re.escape(OPENING + CLOSING)}]"
_PATTERNS: tuple[tuple[SpanKind, re.Pattern[str]], ...] = (
    ("date", re.compile(rf"{_APART}(?P<asked>{DATE}){_BEHIND}")),
    (
        "year",
        re.compile(
            rf"(?:\b(?:{_BEFORE_YEAR}) |{_APART}(?<![.,])(?={YEAR}(?:{_AFTER_YEAR})))(?P<asked>{YEAR}){_BEHIND}(?!\s?[\u2013-]|s\b|,\d)"
        ),
    ),
    ("term", re.compile(rf"{_APART}[{re.escape(OPENING)}]\s?(?P<asked>{_NO_QUOTE}{{3,60}}|[{GLUED}]{{2}})[{re.escape(CLOSING)}]{_BEHIND}")),
    (
        "number",
        re.compile(
            rf"{_APART}(?<![.,$\u20ac\u00a3/:\u2013\u7b2c\uc81c-])(?P<asked>{NUMBER})(?=\s?[%\u066a]| [^\W\d_{CAPITALS}]|[{GLUED}])"
        ),
    ),
    ("name", re.compile(rf"{_APART}(?<![\u2019'.-])(?P<asked>{NAME}){_BEHIND}(?!\u2013)")),
)
MAX_SPAN_WORDS = 6
MIN_CODE, MAX_CODE = 3, 40
"""Minimum number of letters and digits, and maximum number of characters, of inline code in a gap."""
_NO_NAMES_TEXT = """\
I It Its He She They We You This That These Those There Here The A An In On At By For From To Of As If When While Where Who
What Which Whose After Before During Since Until Although Though However Because But And Or So Not No Yes All Each Every Some
Many Most Both Other Another Such Then Thus Also Today His Her Their Our My Your One Two Three Monday Tuesday Wednesday
Thursday Friday Saturday Sunday January February March April May June July August September October November December Section
Chapter Figure Table Page Note See With Without Under Over Between Among Despite According Like Unlike Its Only Even Just
Once Several Part English Mr Mrs Ms Dr Prof
"""
NO_NAMES = frozenset(_NO_NAMES_TEXT.split())
_PLACES = frozenset(("Section", "Chapter", "Figure", "Table", "Page", "Note", "Part"))

_AND = ("and", "und", "et", "y", "e", "och", "og", "\u0438", "\u0442\u0430", "\u03ba\u03b1\u03b9")
_TRAILING = ".,;:! \u3002\uff0c\u3001\uff1b\uff1a\uff01\u060c"
_IN_LIST = re.compile(rf",? (?:(?:{'|'.join(_AND)}) )?[{CAPITALS}]|,|\.$")
_LISTED = (", ", *(f" {word} " for word in _AND))
_AFTER_NAMES_TEXT = """\
and or but in on at of to for from by with as is was were are had has have who which that where when while during after
before until since into onto over under against between through became began made won took did would could can will may also
first later now then
"""
_AFTER_NAMES = frozenset(_AFTER_NAMES_TEXT.split())
_BEFORE_NAMES = tuple(f" {word} " for word in ("von", "mit", "durch", "bei", "f\u00fcr", "als", "gegen", "ohne"))
GAP = "____"
ASKED = {kind: f"Which {kind} fills the gap" for kind in ("date", "year", "number", "name", "code")} | {"term": "Which words fill the gap"}
_SEE = (
    r"\b(?i:see|refer to|described in|documented in|siehe|vgl\.|voir|v\u00e9ase|vedi|viz|\u0441\u043c\.)"
    r"(?: also)?(?: the)? |(?:\u53c2\u89c1|\u53c2\u9605|\u53c3\u898b|\u53c3\u95b1)\s?|\u0627\u0646\u0638\u0631 (?:\w+ )?"
)
_REFERENCE = re.compile(
    rf"(?:{_SEE})[{re.escape(OPENING)}]?$|\d(?:\.\d+\.?| ?[\u7ae0\u8282\u7bc0\uc7a5\uc808]),?\s?[{re.escape(OPENING)}]$"
)
"""Text before a mere reference: a verb, or the number of a section whose title follows."""
_POINTED_AT = re.compile(r"[^.\u3002]{0,60}?(?:\u53c2\u7167|\u3054\u89a7|\ucc38\uc870|\ucc38\uace0)")
"""Text after a reference in Japanese and Korean, where the verb comes last."""
_GOES_ON = re.compile(rf"[^\W{GLUED}]|[/\\_@=(\[-]|[.:]\w")
"""Character after a part of something longer: a path, a file name, a call."""
_COMES_FROM = re.compile(rf"(?:[^\W{GLUED}]|[/\\=@])$")
"""Character before such a part."""
_NUMBERED = re.compile(rf"\b([{CAPITALS}]\w*)\.? $|[\u8868\u56f3\u56fe\u5716\u7ae0\u8282\u7bc0\u9875\u9801]\s?$")
_NEEDS_PAGE = re.compile(
    r"(?i)^(?:(?:it|its|he|his|she|her|they|their|this|these|that|those|there|here|such|both|another|other|also|the)\b)"
)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text of a section, one or more sentences, with its location."""

    text: str
    page_id: str
    title: str
    """Name of the page in a question: its title, or this section's heading if many pages share the title; empty if they share both."""
    section_id: str
    heading: str


@dataclass(frozen=True, slots=True)
class Draft:
    """Question before any check."""

    question: str
    answer: str
    kind: str
    """Kind: `cloze`, `how_to`, `written` or `correction`."""
    place: Excerpt


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Part of a sentence."""

    start: int
    end: int
    kind: SpanKind
    text: str


def find_spans(sentence: str, codes: Sequence[tuple[int, int]] = (), common: Container[str] = ()) -> list[TextSpan]:
    """Find the spans for gaps, in order of kinds (code first, then dates); spans do not overlap.

    Args:
        sentence: plain text.
        codes: spans of code in it; no other kind is found there.
        common: words that elsewhere begin with a small letter: at the start of a sentence their capital does not mark a name.
    """
    found = [TextSpan(start, end, "code", sentence[start:end]) for start, end in codes]
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(sentence):
            span = _span(sentence, kind, *match.span("asked"), common)
            if span and not any(span.start < other.end and other.start < span.end for other in found):
                found.append(span)
    return [span for span in found if not _is_part(sentence, span)]


def _is_part(sentence: str, span: TextSpan) -> bool:
    """Return True if a span is only part of something longer or a mere reference; for code, also if it is too short or long."""
    before, after = sentence[: span.start], sentence[span.end :]
    if span.kind in ("name", "term") and _POINTED_AT.match(after):
        return True
    if _REFERENCE.search(before) or _COMES_FROM.search(before) or _GOES_ON.match(after):
        return True
    return span.kind == "code" and (len(span.text) > MAX_CODE or sum(map(str.isalnum, span.text)) < MIN_CODE)


def _span(sentence: str, kind: SpanKind, start: int, end: int, common: Container[str]) -> TextSpan | None:
    text = sentence[start:end].rstrip(_TRAILING)
    if kind == "name":
        start, text = _trim_name(sentence, start, text, common)
        if not text or _is_loose(sentence, start, text):
            return None
        if is_german(sentence) and not sentence[:start].endswith(_BEFORE_NAMES):
            if " " in text:  # two adjacent nouns need not belong together
                return None
            kind = "term"
    if not text.strip() or count_words(text) > MAX_SPAN_WORDS or not any(c.isalnum() for c in text):
        return None
    if kind == "number":
        numbered = _NUMBERED.search(sentence[:start])  # "Section 12" is not a quantity
        if len(text) < 2 or (numbered and numbered[1] not in NO_NAMES - _PLACES):
            return None
    return TextSpan(start, start + len(text), kind, text)


def _trim_name(sentence: str, start: int, text: str, common: Container[str]) -> tuple[int, str]:
    """Return start and text of a name without words that do not belong to it; empty if none is left."""
    words = text.split()
    is_first = start == 0 or sentence[:start].endswith(": ")
    # At the start of a sentence a capital proves nothing: a name there needs at least two.
    while words and (words[0] in NO_NAMES or not words[0][0].isupper()):
        start += len(words.pop(0)) + 1
    while words and not words[-1][0].isupper():
        words.pop()
    text = " ".join(words).removesuffix("'s").removesuffix("\u2019s")
    if not words or (start == 0 and len(words) < 2) or sentence[start : start + len(text)] != text or len(text) < 3:
        return start, ""
    if is_first and (words[0].lower() in common or not is_english(sentence)):
        return start, ""
    return start, text


def _is_loose(sentence: str, start: int, name: str) -> bool:
    """Return True if a name is part of a list, or a single word that may describe the next one: "Tibetan activists"."""
    after = sentence[start + len(name) :]
    if _IN_LIST.match(after) and sentence[:start].endswith(_LISTED):
        return True
    following = re.match(r" ([a-z]+)", after)
    is_adjective = following is not None and following[1] not in _AFTER_NAMES and is_english(sentence)
    return " " not in name and (len(name) < 4 or is_adjective)


def read_code(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text without its marks of code, and the spans of that code."""
    plain, places, end = "", list[tuple[int, int]](), 0
    for match in CODE.finditer(text):
        plain += text[end : match.start()]
        places.append((len(plain), len(plain) + len(match["code"])))
        plain, end = plain + match["code"], match.end()
    return plain + text[end:], places


def make_clozes(sentence: Excerpt, common: Container[str] = ()) -> Iterator[Draft]:
    """Yield a question for each span whose words occur only once in the sentence, and not in the title of the page or the heading.

    Args:
        sentence: a single sentence, with marks around code.
        common: as in `find_spans`.
    """
    text, codes = read_code(sentence.text)
    place = replace(sentence, text=text)
    for span in find_spans(text, codes, common):
        rest = f"{text[: span.start]} {GAP} {text[span.end :]}"
        told = f"{sentence.title} | {sentence.heading}" if span.kind == "code" else sentence.title
        if holds_answer(rest, span.text) or holds_answer(told, span.text) or not any(c.isalpha() for c in rest):
            continue
        if (question := _question(place, span)) is not None:
            yield Draft(question, span.text, "cloze", place)


def _question(sentence: Excerpt, span: TextSpan) -> str | None:
    """Return the question for a span; None if the sentence needs its page's name, and the page has none."""
    text = f"{sentence.text[: span.start]}{GAP}{sentence.text[span.end :]}".replace('"', "'")
    asked = f'{ASKED[span.kind]}: "{text}"'
    if sentence.title.casefold() in sentence.text.casefold() and not _NEEDS_PAGE.match(sentence.text):
        return asked
    if not sentence.title:
        return None
    return f'According to "{sentence.title}": {asked[0].lower()}{asked[1:]}'
