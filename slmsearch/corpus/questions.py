"""Questions, the answer of unanswerable ones, and comparisons of questions with texts."""

import re
import unicodedata
from dataclasses import asdict, dataclass

from slmsearch.corpus.scripts import GLUED, MARKS
from slmsearch.corpus.view import View

UNKNOWN_ANSWER = "I don't know"
"""Gold answer of an unanswerable question; a policy that gives it has `abstained`."""
UNANSWERABLE = "unanswerable"
"""Kind of an unanswerable question."""
CLOSED = ("yes", "no")
"""Answers that no text states."""
PASSAGE_WORDS = 10
"""Number of words above which an answer is a passage; two characters of a script without spaces count as one."""
GLUED_CHARACTER = re.compile(rf"[{GLUED}][{MARKS}]*")
WORD = re.compile(rf"[{GLUED}][{MARKS}]*|[^\W{GLUED}](?:[^\W{GLUED}]|[{MARKS}])*")
"""Pattern of a word; in scripts without spaces each character is a word."""
_ASCII_WORD = re.compile(r"\w+")
_SMALL_WORDS = frozenset(
    _ASCII_WORD.findall("a an and are as at be by did do does for from had has have in is it its of on or that the to was were with")
)


@dataclass(frozen=True, slots=True)
class Question:
    """Problem to answer."""

    id: str
    question: str
    answer: str
    aliases: tuple[str, ...] = ()
    """Other right answers; they may omit the answer itself."""
    page_ids: tuple[str, ...] = ()
    """Gold pages in reading order; empty if unknown or if no page is about the subject."""
    section_ids: tuple[str, ...] = ()
    """Gold sections, one per hop, in order."""
    hops: int = 0
    """Number of sections that must be read to answer; 0 if unknown."""
    kind: str = "plain"
    """Kind: `one_hop`, `two_hop`, `count` in generated worlds, `unanswerable` everywhere, else the value of the row, or `plain`."""
    entities: tuple[str, ...] = ()
    """Names of all entities on the way to the answer, bridges included, in order; empty if unknown."""
    source: str = ""
    """Name of the source data set, if the row has one; used for grouping."""
    view: View | None = None
    """Changes to the corpus while the question is played; None: no changes. Only twins have one (`environments/searcher/twins.py`)."""
    traceparent: str | None = None
    """Span of the client that asks (W3C Trace Context), for the server of a policy's model; never stored."""
    split: object = None
    """Split that the row of the source gives; None: it is assigned. Stored beside the question."""

    @property
    def answers(self) -> tuple[str, ...]:
        """Right answers, the gold one first."""
        return (self.answer, *(a for a in self.aliases if a != self.answer))

    def row(self) -> dict[str, object]:
        """Return all fields by name, with source and view only if set; `dataclasses.asdict` would take most of a world's writing time."""
        own = ({"source": self.source} if self.source else {}) | ({"view": asdict(self.view)} if self.view else {})
        return {name: getattr(self, name) for name in FIELDS} | own

    @property
    def is_answerable(self) -> bool:
        """True if there is an answer to find."""
        return self.answer != UNKNOWN_ANSWER

    @property
    def is_closed(self) -> bool:
        """True if the answer is yes or no, which no text states."""
        return self.answer.casefold() in CLOSED


FIELDS = tuple(name for name in Question.__slots__ if name not in ("source", "view", "traceparent", "split"))
"""Fields of every stored question; `source` is stored only if set."""


def is_passage(answer: str) -> bool:
    """Return True if an answer is a passage, such as steps or an explanation; part of it is then partly right."""
    return len(answer.split()) + len(GLUED_CHARACTER.findall(answer)) // 2 > PASSAGE_WORDS


def holds_answer(text: str, answer: str) -> bool:
    """Return True if a text holds an answer as whole words, in any case and punctuation."""
    wanted = word_line(answer)
    return wanted in word_line(text) if wanted.strip() else answer.strip() in text


def word_line(text: str) -> str:
    """Return a text's words in lower case between single spaces, so that a sequence of words is a substring."""
    return f" {' '.join(_words(text))} "


def content_words(text: str) -> frozenset[str]:
    """Return the words of a question without small ones; near-duplicates have the same."""
    return frozenset(_words(text)) - _SMALL_WORDS


def _words(text: str) -> list[str]:
    return _ASCII_WORD.findall(text.lower()) if text.isascii() else WORD.findall(unicodedata.normalize("NFKC", text).casefold())
