"""Questions, the answer that stands for knowing that there is none, and what texts have in common with them."""

import re
import unicodedata
from dataclasses import asdict, dataclass

from slmsearch.corpus.scripts import GLUED, MARKS
from slmsearch.corpus.view import View

UNKNOWN_ANSWER = "I don't know"
"""Gold answer of an unanswerable question; saying it is what `abstained` means."""
UNANSWERABLE = "unanswerable"
"""Kind of such a question."""
WORD = re.compile(rf"[{GLUED}][{MARKS}]*|[^\W{GLUED}](?:[^\W{GLUED}]|[{MARKS}])*")
"""Where no space parts words, each character is one."""
_ASCII_WORD = re.compile(r"\w+")
_SMALL_WORDS = frozenset(
    _ASCII_WORD.findall("a an and are as at be by did do does for from had has have in is it its of on or that the to was were with")
)


@dataclass(frozen=True, slots=True)
class Question:
    """One problem to answer."""

    id: str
    question: str
    answer: str
    aliases: tuple[str, ...] = ()
    """Other right answers; the answer itself need not be repeated."""
    page_ids: tuple[str, ...] = ()
    """Gold pages in the order a reader passes through them; empty if unknown or if no page is about the subject."""
    section_ids: tuple[str, ...] = ()
    """Gold sections, one per hop, in order."""
    hops: int = 0
    """Sections that must be read to answer; 0 if unknown."""
    kind: str = "plain"
    """`one_hop`, `two_hop`, `count` in generated worlds, `unanswerable` everywhere, else what the row says, or `plain`."""
    entities: tuple[str, ...] = ()
    """Names of all entities the question passes through, bridges included, in order; empty if unknown."""
    source: str = ""
    """Data set that it was taken from, where its row says; a name to group by."""
    view: View | None = None
    """How the corpus is seen while it is played; None: as it is. Only twins have one (`environments/searcher/twins.py`)."""

    @property
    def answers(self) -> tuple[str, ...]:
        """All right answers, the gold one first."""
        return (self.answer, *(a for a in self.aliases if a != self.answer))

    def row(self) -> dict[str, object]:
        """Return all fields by name, source and view only where there is one; `dataclasses.asdict` takes most of a world's writing time."""
        own = ({"source": self.source} if self.source else {}) | ({"view": asdict(self.view)} if self.view else {})
        return {name: getattr(self, name) for name in FIELDS} | own

    @property
    def is_answerable(self) -> bool:
        """Whether there is an answer to find."""
        return self.answer != UNKNOWN_ANSWER

    @property
    def is_closed(self) -> bool:
        """Whether the answer is yes or no, which no text states."""
        return self.answer.casefold() in ("yes", "no")


FIELDS = tuple(name for name in Question.__slots__ if name not in ("source", "view"))
"""Those that every stored question has; one with a source has that, too."""


def holds_answer(text: str, answer: str) -> bool:
    """Tell whether a text holds an answer as whole words, whatever the case and punctuation."""
    wanted = word_line(answer)
    return wanted in word_line(text) if wanted.strip() else answer.strip() in text


def word_line(text: str) -> str:
    """Return a text's words in lower case between single spaces: one line is part of another where its words stand there together."""
    return f" {' '.join(_words(text))} "


def content_words(text: str) -> frozenset[str]:
    """Return the words of a question without small ones; near-duplicates have the same."""
    return frozenset(_words(text)) - _SMALL_WORDS


def _words(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())
