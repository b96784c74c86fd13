"""Statements with a gap, made of the sentences of a section: what is left out is a date, a number, a name, a quoted term or code in a line.

Sentences are plain text: no blocks of code, tables, links or emphasis.
"""

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slmsearch.corpus.questions import holds_answer

MIN_WORDS, MAX_WORDS, MAX_CHARS = 5, 32, 240
_FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*\s*$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()\s]*(?:\s[^()]*)?\)")
_LINK = re.compile(r"\[([^\[\]]+)\](?:\([^()\s]*(?:\([^()]*\)[^()\s]*)?(?:\s\"[^\"]*\")?\)|\[[^\[\]]*\])")
_NOTE = re.compile(r"\[(?:\d{1,3}|note \d+|citation needed|update|clarification needed|\^[^\[\]]*)\]")
_EMPHASIS = re.compile(r"(\*{1,3}|(?<!\w)_{1,3})(?=\S)([^*_\n]+?)(?<=\S)(\1)(?!\w)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+")
_CODE = re.compile(r"(?P<marks>`+)(?P<code>[^`]+)(?P=marks)")
_HIDDEN = re.compile("\ue000(\\d+)\ue001")
_RULE = re.compile(r"^\s*(?:[-*_=]\s*){3,}$")
_END = re.compile(r"(?<=[.!?])([\"\u201d\u2019')\]]*)\s+(?=[\"\u201c\u2018'(\[]*[A-Z\u00c0-\u00de0-9]|`)")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Mt|Ft|Sr|Jr|No|Nos|vs|etc|ca?|e\.g|i\.e|cf|al|approx|est|Inc|Ltd|Co|Corp|Gen|Col|Lt|Sgt|Capt"
    r"|Rev|Hon|Gov|Sen|Rep|Pres|Fig|Figs|Eq|Sec|Vol|pp?|ed|eds|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|(?:[A-Z]\.)+[A-Z])\.$"
)
_PAIRS = (("(", ")"), ("[", "]"), ("\u201c", "\u201d"))
SpanKind = Literal["date", "year", "number", "name", "term", "code"]

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
MIN_CODE, MAX_CODE = 3, 40
"""Letters and digits that code in a line has at least, and characters at most, to be asked for."""
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

_IN_LIST = re.compile(r",? (?:and )?[A-Z]|,|\.$")
_AFTER_NAMES_TEXT = """\
and or but in on at of to for from by with as is was were are had has have who which that where when while during after
before until since into onto over under against between through became began made won took did would could can will may also
first later now then
"""
_AFTER_NAMES = frozenset(_AFTER_NAMES_TEXT.split())
GAP = "____"
ASKED = {kind: f"Which {kind} fills the gap" for kind in ("date", "year", "number", "name", "code")} | {"term": "Which words fill the gap"}
_REFERENCE = re.compile(r"(?i)\b(?:see|refer to|described in|documented in)(?: also)?(?: the)? $")
"""Comes before what a sentence only points to."""
_GLUED = re.compile(r"\w|[/\\_@=(\[-]|[.:]\w")
"""Follows what is only a part of something: of a path, a file name, a call."""
_NUMBERED = re.compile(r"\b([A-Z]\w*)\.? $")
_NEEDS_PAGE = re.compile(
    r"(?i)^(?:(?:it|its|he|his|she|her|they|their|this|these|that|those|there|here|such|both|another|other|also|the)\b)"
)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text of a section, one sentence or more, and where it stands."""

    text: str
    page_id: str
    title: str
    """Of the page."""
    section_id: str
    heading: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A question that nothing was checked of yet."""

    question: str
    answer: str
    kind: str
    """`cloze`, `written` or `correction`."""
    place: Excerpt


def plain_paragraphs(markdown: str, keep_code: bool = False) -> list[str]:
    """Return the paragraphs and list items of a section's text without marks, one line each; code in a line may keep its own."""
    text = _COMMENT.sub(" ", _FENCED.sub("\n", markdown))
    paragraphs, waiting = list[str](), list[str]()

    def end() -> None:
        if waiting:
            paragraphs.append(" ".join(" ".join(waiting).split()))
            waiting.clear()

    for line in text.split("\n"):
        if not line.strip() or line.startswith("#") or line.lstrip().startswith(("|", "```")) or _RULE.match(line):
            end()
            continue
        if _ITEM.match(line):
            end()
        waiting.append(_strip_marks(_ITEM.sub("", line.lstrip("> \t")), keep_code))
    end()
    return [paragraph for paragraph in paragraphs if paragraph]


def _strip_marks(line: str, keep_code: bool) -> str:
    codes = list[str]()

    def hide(match: re.Match[str]) -> str:  # what looks like a mark in code is none
        codes.append(match["code"].strip())
        return f"\ue000{len(codes) - 1}\ue001"

    line = _CODE.sub(hide, _LINK.sub(r"\1", _IMAGE.sub(" ", line.replace("\ue000", ""))))
    line = _NOTE.sub("", _TAG.sub("", line))
    for _ in range(2):  # strong around emphasis
        line = _EMPHASIS.sub(r"\2", line)
    line = line.replace("`", "").replace("\\", "")
    return _HIDDEN.sub(lambda match: f"`{codes[int(match[1])]}`" if keep_code else codes[int(match[1])], line)


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph at ends of sentences; full stops of abbreviations and initials are none."""
    parts, start = list[str](), 0
    for match in _END.finditer(paragraph):
        if _ABBREVIATION.search(paragraph[max(0, match.start() - 14) : match.start()]):
            continue
        parts.append(paragraph[start : match.end()].strip())
        start = match.end()
    return [part for part in [*parts, paragraph[start:].strip()] if part]


def is_usable(sentence: str) -> bool:
    """Say whether a sentence is a whole statement of a sensible length, with closed brackets and quotations."""
    words = sentence.split()
    if not MIN_WORDS <= len(words) <= MAX_WORDS or len(sentence) > MAX_CHARS or not sentence.endswith((".", '."', ".\u201d")):
        return False
    if not (sentence[0].isupper() or sentence[0] == "`") or words[0] == "See":
        return False
    if any(mark in sentence for mark in ("?", "...", "\u2026", "http")):
        return False
    balanced = all(sentence.count(opening) == sentence.count(closing) for opening, closing in _PAIRS)
    return balanced and sentence.count('"') % 2 == 0 and sum(map(str.isalpha, sentence)) > len(sentence) / 2


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a sentence."""

    start: int
    end: int
    kind: SpanKind
    text: str


def find_spans(sentence: str, codes: Sequence[tuple[int, int]] = (), common: Container[str] = ()) -> list[Span]:
    """Find what can be asked for, in order of kinds (code first, then dates); spans do not overlap.

    Args:
        sentence: plain text.
        codes: where code stands in it; nothing else is found there.
        common: words that elsewhere begin with a small letter: at the start of a sentence their capital makes no name.
    """
    found = [Span(start, end, "code", sentence[start:end]) for start, end in codes]
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(sentence):
            span = _span(sentence, kind, *match.span(pattern.groups), common)
            if span and not any(span.start < other.end and other.start < span.end for other in found):
                found.append(span)
    return [span for span in found if not _is_part(sentence, span)]


def _is_part(sentence: str, span: Span) -> bool:
    """Say whether a span is only a part of something, or what the sentence points to; of code, whether it is too short or long."""
    before, after = sentence[: span.start], sentence[span.end :]
    if _REFERENCE.search(before) or re.search(r"[\w/\\=@]$", before) or _GLUED.match(after):
        return True
    return span.kind == "code" and (len(span.text) > MAX_CODE or sum(map(str.isalnum, span.text)) < MIN_CODE)


def _span(sentence: str, kind: SpanKind, start: int, end: int, common: Container[str]) -> Span | None:
    text = sentence[start:end].rstrip(".,;:!")
    if kind == "name":
        words = text.split()
        is_first = start == 0 or sentence[:start].endswith(": ")
        # At the start of a sentence a capital says nothing: a name there has two at least.
        while words and (words[0] in NO_NAMES or not words[0][0].isupper()):
            start += len(words.pop(0)) + 1
        while words and not words[-1][0].isupper():
            words.pop()
        text = " ".join(words).removesuffix("'s").removesuffix("\u2019s")
        if not words or (start == 0 and len(words) < 2) or sentence[start : start + len(text)] != text or len(text) < 3:
            return None
        if is_first and words[0].lower() in common:
            return None
    if kind == "name" and _IN_LIST.match(sentence[start + len(text) :]) and sentence[:start].endswith((", ", " and ")):
        return None
    # A lone capitalised word may describe the next one: "Tibetan activists".
    following = re.match(r" ([a-z]+)", sentence[start + len(text) :])
    is_adjective = following is not None and following[1] not in _AFTER_NAMES
    if kind == "name" and len(text.split()) == 1 and (len(text) < 4 or is_adjective):
        return None
    if not text.strip() or len(text.split()) > MAX_SPAN_WORDS or not any(c.isalnum() for c in text):
        return None
    if kind == "number":
        numbered = _NUMBERED.search(sentence[:start])  # "Section 12" is no quantity
        if len(text) < 2 or (numbered and numbered[1] not in NO_NAMES - _PLACES):
            return None
    return Span(start, start + len(text), kind, text)


def read_code(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text without the marks of code in it, and where that code stands."""
    plain, places, end = "", list[tuple[int, int]](), 0
    for match in _CODE.finditer(text):
        plain += text[end : match.start()]
        places.append((len(plain), len(plain) + len(match["code"])))
        plain, end = plain + match["code"], match.end()
    return plain + text[end:], places


def make_clozes(sentence: Excerpt, common: Container[str] = ()) -> Iterator[Draft]:
    """Yield a question for each span whose words stand nowhere else in the sentence, and not in the title of the page or the heading.

    Args:
        sentence: one, code in it with its marks.
        common: as in `find_spans`.
    """
    text, codes = read_code(sentence.text)
    place = replace(sentence, text=text)
    for span in find_spans(text, codes, common):
        rest = f"{text[: span.start]} {GAP} {text[span.end :]}"
        told = f"{sentence.title} | {sentence.heading}" if span.kind == "code" else sentence.title
        if holds_answer(rest, span.text) or holds_answer(told, span.text) or not any(c.isalpha() for c in rest):
            continue
        yield Draft(_question(place, span), span.text, "cloze", place)


def _question(sentence: Excerpt, span: Span) -> str:
    text = f"{sentence.text[: span.start]}{GAP}{sentence.text[span.end :]}".replace('"', "'")
    asked = f'{ASKED[span.kind]}: "{text}"'
    if sentence.title.casefold() in sentence.text.casefold() and not _NEEDS_PAGE.match(sentence.text):
        return asked
    return f'According to "{sentence.title}": {asked[0].lower()}{asked[1:]}'
