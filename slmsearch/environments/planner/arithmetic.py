"""Arithmetic read from text: expressions in digits and words, and short stories about numbers of things that persons have.

    What is 48 / 2 plus half of 6?
    Mira has 14 shells. Tovan has 3 times as many shells as Mira. How many shells does Tovan have?

No text is evaluated as code. A reader does a limited number of operations in one question; beyond that it answers with its last result.
It does not answer text that it cannot read.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from slmsearch.environments.planner.numbers import MAX_DIGITS, NUMBER, in_digits, parse_number

MAX_TEXT_CHARS = 4000
MAX_TOKENS = 200
MAX_NESTING = 20


class Unreadable(ValueError):
    """An error: the text is neither an expression nor a story that this reader knows."""


class _Lost(Exception):
    """An error: the question needs more operations than the reader can do."""


@dataclass(slots=True)
class _Head:
    """The reader's memory: it does operations up to its limit, and remembers the last result."""

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
        sentences = _SENTENCE.findall(text)
        asked = next((found for sentence in reversed(sentences) if (found := _asked(sentence))), None)
        if asked is None:
            return _Expression(text, head).value()
        return _Story(dict(told for sentence in sentences if (told := _told(sentence))), head).work_out(asked)
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


class _Story:
    """Quantities of a story, each in terms of others."""

    def __init__(self, equations: dict[str, _Equation], head: _Head) -> None:
        self._equations, self._head = equations, head
        self._known: dict[str, Fraction] = {}

    def work_out(self, equation: _Equation, waiting: frozenset[str] = frozenset()) -> Fraction:
        operator, left, right = equation
        a, b = self._term(left, waiting), self._term(right, waiting)
        return a if operator == "=" else self._head.apply(operator, a, b)

    def _term(self, term: _Term, waiting: frozenset[str]) -> Fraction:
        if isinstance(term, Fraction):
            return term
        if term not in self._known:
            if term not in self._equations or term in waiting or len(waiting) > MAX_NESTING:
                raise Unreadable(f"nothing says how many {term} has")
            self._known[term] = self.work_out(self._equations[term], waiting | {term})
        return self._known[term]


def _asked(sentence: str) -> _Equation | None:
    if match := _ASK_ONE.search(sentence):
        return "=", match["a"], Fraction(0)
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
        factor = Fraction(2) if how == "twice" else parse_number(in_digits(how))
        return (match["who"], ("*", match["a"], factor)) if factor is not None else None
    if match := _BOTH.search(sentence):
        return match["who"], ("+", match["a"], match["b"])
    if match := _HAS.search(sentence):
        return match["who"], ("=", Fraction(match["n"]), Fraction(0))
    return None


# Expressions

LABEL = re.compile(r"^\s*[A-Za-z][\w ]{0,40}:")
"""A label that the answer will have: "Mira: 48 plus 2?"."""
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

    def __init__(self, text: str, head: _Head) -> None:
        self._tokens = _tokenise(_OPENING.sub("", LABEL.sub("", text)).strip().rstrip("?.!= ").strip())
        self._place, self._head = 0, head

    def value(self) -> Fraction:
        value = self._sum(0)
        if self._place < len(self._tokens):
            raise Unreadable("something is left over")
        return value

    def _take(self, expected: str = "") -> tuple[str, str]:
        if self._place >= len(self._tokens):
            raise Unreadable("something is missing")
        self._place += 1
        token = self._tokens[self._place - 1]
        if expected and token[0] != expected:
            raise Unreadable(f"{token[1]!r} stands in a wrong place")
        return token

    def _sum(self, depth: int, level: int = 1) -> Fraction:
        """Read a sum (level 1), a product (level 2) or a factor (level 3)."""
        if level == 3:
            return self._atom(depth)
        value = self._sum(depth, level + 1)
        while self._place < len(self._tokens) and (binary := _BINARY.get(self._tokens[self._place][0])) and binary[1] == level:
            self._place += 1
            value = self._head.apply(binary[0], value, self._sum(depth, level + 1))
        return value

    def _atom(self, depth: int) -> Fraction:
        if depth > MAX_NESTING:
            raise Unreadable("too deep")
        kind, text = self._take()
        match kind:
            case "number":
                number = parse_number(text.rstrip("%").strip())
                if number is None:
                    raise Unreadable("a number too long")
                return number / 100 if text.endswith("%") else number
            case "minus":
                return -self._atom(depth + 1)
            case "open":
                value = self._sum(depth + 1)
                self._take("close")
                return value
            case "half" | "twice":
                return self._head.apply("/" if kind == "half" else "*", self._atom(depth + 1), Fraction(2))
            case "pair":
                left = self._atom(depth + 1)
                self._take("and")
                return self._head.apply(_PAIRS[text.split()[0]], left, self._atom(depth + 1))
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
