"""The sentences of a section, as plain text: no code, tables, links or emphasis."""

import re
from dataclasses import dataclass

MIN_WORDS, MAX_WORDS, MAX_CHARS = 5, 32, 240
_FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*\s*$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()\s]*(?:\s[^()]*)?\)")
_LINK = re.compile(r"\[([^\[\]]+)\](?:\([^()\s]*(?:\([^()]*\)[^()\s]*)?(?:\s\"[^\"]*\")?\)|\[[^\[\]]*\])")
_NOTE = re.compile(r"\[(?:\d{1,3}|note \d+|citation needed|update|clarification needed|\^[^\[\]]*)\]")
_EMPHASIS = re.compile(r"(\*{1,3}|(?<!\w)_{1,3})(?=\S)([^*_\n]+?)(?<=\S)(\1)(?!\w)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+")
_RULE = re.compile(r"^\s*(?:[-*_=]\s*){3,}$")
_END = re.compile(r"(?<=[.!?])([\"\u201d\u2019')\]]*)\s+(?=[\"\u201c\u2018'(\[]*[A-Z\u00c0-\u00de0-9])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Mt|Ft|Sr|Jr|No|Nos|vs|etc|ca?|e\.g|i\.e|cf|al|approx|est|Inc|Ltd|Co|Corp|Gen|Col|Lt|Sgt|Capt"
    r"|Rev|Hon|Gov|Sen|Rep|Pres|Fig|Figs|Eq|Sec|Vol|pp?|ed|eds|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|(?:[A-Z]\.)+[A-Z])\.$"
)
_PAIRS = (("(", ")"), ("[", "]"), ("\u201c", "\u201d"))


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence and where it stands."""

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
    """`cloze` or `written`."""
    sentence: Sentence


def plain_paragraphs(markdown: str) -> list[str]:
    """Return the paragraphs and list items of a section's text without marks, one line each."""
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
        waiting.append(_strip_marks(_ITEM.sub("", line.lstrip("> \t"))))
    end()
    return [paragraph for paragraph in paragraphs if paragraph]


def _strip_marks(line: str) -> str:
    line = _LINK.sub(r"\1", _IMAGE.sub(" ", line))
    line = _NOTE.sub("", _TAG.sub("", line))
    for _ in range(2):  # strong around emphasis
        line = _EMPHASIS.sub(r"\2", line)
    return line.replace("`", "").replace("\\", "")


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
    if not sentence[0].isupper() or "?" in sentence or "..." in sentence or "\u2026" in sentence or "http" in sentence:
        return False
    balanced = all(sentence.count(opening) == sentence.count(closing) for opening, closing in _PAIRS)
    return balanced and sentence.count('"') % 2 == 0 and sum(map(str.isalpha, sentence)) > len(sentence) / 2
