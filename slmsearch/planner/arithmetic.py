"""Arithmetic read out of text: expressions in digits and words, and short stories about who has how many of something.

    What is 48 / 2 plus half of 6?
    Mira has 14 shells. Tovan has 3 times as many shells as Mira. How many shells does Tovan have?

Nothing is evaluated as code. A reader does a limited number of operations in one question and then loses the thread: it
answers with the last thing it had worked out. What it cannot read it does not answer.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from slmsearch.planner.numbers import CARDINALS, MAX_DIGITS, NUMBER, parse_number

MAX_TEXT_CHARS = 4000
MAX_TOKENS = 200
MAX_NESTING = 20


class Unreadable(ValueError):
    """The text is neither an expression nor a story this reader knows."""


class _Lost(Exception):
    """More operations than the reader can do in one question."""


@dataclass(slots=True)
class _Head:
    """Does operations while it can, and remembers the last result."""

    max_operations: int
    operations: int = 0
    last: Fraction = field(default_factory=Fraction)

    def apply(self, operator: str, left: Fraction, right: Fraction) -> Fraction:
        if self.operations >= self.max_operations:
            raise _Lost
        self.operations += 1
        self.last = _OPERATIONS[operator](left, right)
        if len(str(self.last)) > 2 * MAX_DIGITS:
            raise Unreadable("a number too long to write")
        return self.last


def _divide(left: Fraction, right: Fraction) -> Fraction:
    if not right:
        raise Unreadable("a division by zero")
    return left / right


_OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
}


def compute(text: str, max_operations: int) -> Fraction:
    """Read a question and compute its answer, which is wrong where it takes more than `max_operations` operations.

    Raises:
        Unreadable: the text is not understood.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise Unreadable("too long")
    head = _Head(max_operations)
    try:
        story = _read_story(text)
        return story.answer(head) if story is not None else _Expression(text).value(head)
    except _Lost:
        return head.last


# Stories

_NAME, _ITEM, _COUNT = r"[A-Z][a-z]+", r"[a-z]+", r"\d+"
_HAS = re.compile(rf"(?P<who>{_NAME}) has (?P<n>{_COUNT}) {_ITEM}")
_MORE = re.compile(rf"(?P<who>{_NAME}) has (?P<n>{_COUNT}) (?P<how>more|fewer|less) {_ITEM} than (?P<a>{_NAME})")
_TIMES = re.compile(rf"(?P<who>{_NAME}) has (?P<n>{_COUNT} times|\w+ times|twice|half) as many {_ITEM} as (?P<a>{_NAME})")
_BOTH = re.compile(rf"(?P<who>{_NAME}) has as many {_ITEM} as (?P<a>{_NAME}) and (?P<b>{_NAME}) (?:together|combined)")
_ASK_ONE = re.compile(rf"How many {_ITEM} does (?P<a>{_NAME}) have")
_ASK_BOTH = re.compile(rf"How many {_ITEM} do (?P<a>{_NAME}) and (?P<b>{_NAME}) have (?:together|altogether|in all|in total)")
_ASK_MORE = re.compile(rf"How many more {_ITEM} does (?P<a>{_NAME}) have than (?P<b>{_NAME})")
_SENTENCE = re.compile(r"[^.?!]+")

_Term = str | Fraction
_Equation = tuple[str, _Term, _Term]


@dataclass(slots=True)
class _Story:
    """Who has what in terms of whom, and what is asked."""

    equations: dict[str, _Equation]
    asked: _Equation
    known: dict[str, Fraction] = field(default_factory=dict)

    def answer(self, head: _Head) -> Fraction:
        return self._work_out(self.asked, head, frozenset())

    def _work_out(self, equation: _Equation, head: _Head, waiting: frozenset[str]) -> Fraction:
        operator, left, right = equation
        a, b = self._term(left, head, waiting), self._term(right, head, waiting)
        return a if operator == "=" else head.apply(operator, a, b)

    def _term(self, term: _Term, head: _Head, waiting: frozenset[str]) -> Fraction:
        if isinstance(term, Fraction):
            return term
        if term not in self.known:
            if term not in self.equations or term in waiting or len(waiting) > MAX_NESTING:
                raise Unreadable(f"nothing says how many {term} has")
            self.known[term] = self._work_out(self.equations[term], head, waiting | {term})
        return self.known[term]


def _read_story(text: str) -> _Story | None:
    """Read a story; None if this is none."""
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text) if sentence.strip()]
    asked = next((found for sentence in reversed(sentences) if (found := _asked(sentence)) is not None), None)
    if asked is None:
        return None
    return _Story({who: equation for sentence in sentences if (told := _told(sentence)) for who, equation in [told]}, asked)


def _asked(sentence: str) -> _Equation | None:
    zero = Fraction(0)
    if match := _ASK_ONE.search(sentence):
        return "=", match["a"], zero
    if match := _ASK_BOTH.search(sentence):
        return "+", match["a"], match["b"]
    if match := _ASK_MORE.search(sentence):
        return "-", match["a"], match["b"]
    return None


def _told(sentence: str) -> tuple[str, _Equation] | None:
    if match := _MORE.search(sentence):
        return match["who"], ("+" if match["how"] == "more" else "-", match["a"], Fraction(match["n"]))
    if match := _TIMES.search(sentence):
        how = match["n"].removesuffix(" times")
        if how == "half":
            return match["who"], ("/", match["a"], Fraction(2))
        factor = Fraction(2) if how == "twice" else CARDINALS.get(how) or parse_number(how)
        return (match["who"], ("*", match["a"], factor)) if factor is not None else None
    if match := _BOTH.search(sentence):
        return match["who"], ("+", match["a"], match["b"])
    if match := _HAS.search(sentence):
        return match["who"], ("=", Fraction(match["n"]), Fraction(0))
    return None


# Expressions

_LABEL = re.compile(r"^\s*[A-Za-z][\w ]{0,40}:")
"""What the answer will be called: "Mira: 48 plus 2?"."""
_OPENING = re.compile(
    r"^\s*(?:what is|what's|what are|how much is|how many is|how many are|calculate|compute|work out|find)\b", re.IGNORECASE
)
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>{NUMBER.pattern})(?P<percent>\s*%|\s*percent\b)?"
    r"|(?P<minus>-|\u2212|minus\b)|(?P<plus>\+|plus\b|added to\b)"
    r"|(?P<times>\*|\u00d7|x\b|times\b|multiplied by\b|of\b)|(?P<over>/|\u00f7|divided by\b|over\b)"
    r"|(?P<open>\()|(?P<close>\))|(?P<half>half of\b|half\b)|(?P<twice>twice\b|double\b)"
    r"|(?P<pair>sum of\b|difference between\b|difference of\b|product of\b)|(?P<and>and\b)|(?P<skip>the\b|\$))",
    re.IGNORECASE,
)
_PAIRS = {"sum": "+", "difference": "-", "product": "*"}
_BINARY = {"plus": ("+", 1), "minus": ("-", 1), "times": ("*", 2), "over": ("/", 2)}


class _Expression:
    """An expression with the usual precedence, read by recursive descent."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokenise(_OPENING.sub("", _LABEL.sub("", text)).strip().rstrip("?.!= ").strip())
        self._place = 0

    def value(self, head: _Head) -> Fraction:
        value = self._sum(head, 0)
        if self._place < len(self._tokens):
            raise Unreadable("something is left over")
        return value

    def _peek(self) -> str:
        return self._tokens[self._place][0] if self._place < len(self._tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self._place >= len(self._tokens):
            raise Unreadable("something is missing")
        self._place += 1
        return self._tokens[self._place - 1]

    def _sum(self, head: _Head, depth: int, level: int = 1) -> Fraction:
        """Read a sum (level 1) or a product (level 2)."""
        value = self._sum(head, depth, 2) if level == 1 else self._atom(head, depth)
        while (binary := _BINARY.get(self._peek())) and binary[1] == level:
            self._take()
            right = self._sum(head, depth, 2) if level == 1 else self._atom(head, depth)
            value = head.apply(binary[0], value, right)
        return value

    def _atom(self, head: _Head, depth: int) -> Fraction:
        if depth > MAX_NESTING:
            raise Unreadable("too deep")
        kind, text = self._take()
        if kind == "number":
            number = parse_number(text.rstrip("%").strip())
            if number is None:
                raise Unreadable("a number too long")
            return number / 100 if text.endswith("%") else number
        if kind == "minus":
            return -self._atom(head, depth + 1)
        if kind == "open":
            value = self._sum(head, depth + 1)
            if self._take()[0] != "close":
                raise Unreadable("a bracket is not closed")
            return value
        if kind in ("half", "twice"):
            return head.apply("/" if kind == "half" else "*", self._atom(head, depth + 1), Fraction(2))
        if kind == "pair":
            left = self._atom(head, depth + 1)
            if self._take()[0] != "and":
                raise Unreadable("a pair lacks its second half")
            return head.apply(_PAIRS[text.split()[0]], left, self._atom(head, depth + 1))
        raise Unreadable(f"{text!r} stands where a number is expected")


def _tokenise(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or len(tokens) >= MAX_TOKENS:
            raise Unreadable(f"{text[place : place + 20]!r} is not understood")
        kind = match.lastgroup or ""
        if kind == "percent":
            tokens.append(("number", f"{match['number']}%"))
        elif kind != "skip":
            tokens.append((kind, match[0].strip().lower()))
        place = match.end()
    if not tokens:
        raise Unreadable("nothing to compute")
    return tokens
