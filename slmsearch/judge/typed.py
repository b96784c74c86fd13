"""Readings of an answer: the values it may state, and its text with the signs, points, operators and case that distinguish answers.

Two answers are equal if they share a reading. A value has one form for all its spellings (`judge/values.py`). Text loses case, accents,
articles and most punctuation, as in SQuAD's normalisation, but keeps marks that distinguish answers: the point of 3.5, the sign of -5, the
marks of C++, C# and .NET, the letter of Vitamin A. Code (flags, paths, identifiers, expressions) keeps its spelling.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator

from slmsearch.judge.values import Reading, numerals, read_values

MAX_VALUE_CHARS = 200
"""Maximum length of a text that states a single value, in characters."""
_WRAPS = ('"', "'", "`", "**", "*", "_", "()")
_MARKS = {
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d"), "-"),
    **dict.fromkeys(map(ord, "\u2018\u2019\u02bc\u2032"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u2033"), '"'),
}
"""Unified marks: hyphens, dashes and minus signs; single and double quotation marks and primes."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_RAISED = re.compile(r"(?<=[^\W_])([⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)(?![⁺⁻])")
_VULGAR = re.compile(r"(\d?) ?([¼-¾⅐-⅞])")
_LAST_MARK = re.compile(r"(?<=[^\s.])[.,;:]$")
_CODE = re.compile(
    r"""(?:^|\s)--?[a-z]              # flags
      | \w[@[]\w | \w_\w | ^_ | _$ | \\
      | ^(?:~|\.{1,2})?/\w            # paths
      | == | != | && | \|\| | :: | -> | => | [-+*]= | //
      | ^[^\w\s]+$ | ^\$[a-z_]\w*$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LIST_JOINTS = re.compile(r"(?:\s*[,;]\s*(?:and\s+|&\s*)?|\s+and\s+|\s+&\s+)", re.IGNORECASE)
_CODE_BLANKS = re.compile(r"\s*([^\w\s.$/\\-])\s*")
_INNER_MARK = re.compile(r"(?<=\w)[-/](?=[^\W\d])|(?<=[^\W\d])[-/](?=\w)")
_KEPT = re.compile(
    r"""(?<=\d)[.,:/*-](?=\d)      # within numbers, dates, times, scores
      | (?<![\w.])\.(?=\w)         # .5, .NET
      | (?<![\w)])-(?=[.$€£¥]?\d)  # the sign of a number
      | (?<=\w)-+(?![\w-])         # A-, i--
      | (?<=^\d)['"!]$ | (?<=^\d\d)['"!]$ | (?<=^\d\d\d)['"!]$ | (?<=\d)'(?=\d{1,2}"?$)  # feet and inches, factorials
      | (?<=[a-z])\#(?!\w)         # C#
      | (?<=\b[a-z])\*(?!\w)       # A*
      | [+<>=^%_]""",
    re.VERBOSE,
)
_DECADES = ("twent", "thirt", "fort", "fift", "sixt", "sevent", "eight", "ninet")
_SPELLED: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\bcannot\b|\bcan't\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"n't\b"), " not"),
    (
        re.compile(rf"\b(eighteen|nineteen)[ -]({'|'.join(_DECADES)})ies\b"),
        lambda match: f"{18 + (match[1] == 'nineteen')}{2 + _DECADES.index(match[2])}0s",
    ),
    (re.compile(r"^((?:blood )?(?:type )?(?:ab|a|b|o))[ -](neg|pos)(?:ative|itive)?$"), lambda match: match[1] + "+-"[match[2] == "neg"]),
    (re.compile(r"(?<=\d)(?:\+| (?:or|and) (?:newer|higher|above|upwards?|up))$"), " or later"),
    (re.compile(r"\bpct\b\.?|\bper ?cent\b"), "%"),
    (re.compile(r"\b([a-z]) sharp\b"), r"\1#"),
    (re.compile(r"\bc plus plus\b"), "c++"),
    (re.compile(r"(?<!\w)(?:no\. ?|nr\. ?|number |№ ?|#)(?=\d)"), "number "),
    (re.compile(r"^\+(?=[\d.])"), ""),
    (re.compile(r"(?<=[^\w\s])\s+(?:an?|the|\ue000)$"), ""),  # "Norwick, a": truncated
    (re.compile(r"\s*([+<>=%^]+)\s*(?=\w|$)"), r"\1"),
)
_SHORT = {"saint": "st", "doctor": "dr", "mister": "mr", "mount": "mt", "junior": "jr", "senior": "sr", "versus": "vs"}
_ARTICLES = frozenset(("a", "an", "the"))
_KEYS = frozenset(("major", "minor", "flat", "sharp"))
_LETTER_A = "\ue000"
"""Placeholder for the A of Vitamin A, which is not an article."""
_CAPITAL_A = re.compile(r"(?<=\w )A(?!\w)")
_ROMAN = re.compile(r"(?=[ivxl]{2})(xl|l?x{0,3})(ix|iv|v?i{0,3})|i|v")
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50}
_RANK = re.compile(r"(?<=\w )the (\d+)(?:st|nd|rd|th)$")


@functools.lru_cache(maxsize=8192)
def readings(text: str) -> frozenset[Reading]:
    """Return the readings of an answer; blank text has none, any other at least one."""
    tidy = _tidy(text)
    if not tidy:
        return frozenset((("raw", text.strip()),)) if text.strip() else frozenset()
    if _CODE.search(tidy):
        return frozenset((("code", _CODE_BLANKS.sub(r"\1", " ".join(tidy.split()))),))
    values = read_values(tidy) if len(tidy) <= MAX_VALUE_CHARS else ()
    return frozenset((*values, *_read_list(tidy), *(("text", form) for form in _text_forms(tidy))))


def _read_list(text: str) -> Iterator[Reading]:
    """Read a list of names or words, ignoring order and conjunctions; a list with figures may be a date or a number."""
    items = [item for item in _LIST_JOINTS.split(text.rstrip(".")) if item]
    if len(items) > 1 and not any(c.isdigit() for c in text):
        yield ("list", *sorted(min(_text_forms(item)) for item in items))


def _tidy(text: str) -> str:
    """Remove quotes and a full stop around an answer, and unify marks; raised digits stay raised: 10⁶ is 10^6."""
    text = _SURROGATE.sub("\ufffd", text)  # which text2num refuses
    text = _RAISED.sub(lambda match: f"^{unicodedata.normalize('NFKC', match[1])}", text)
    text = _VULGAR.sub(lambda match: f"{match[1]} {unicodedata.normalize('NFKC', match[2])}".strip(), text)
    text = " ".join(unicodedata.normalize("NFKC", text).translate(_MARKS).replace("\u2044", "/").split())
    before = None
    while text != before:
        before = text
        text = _LAST_MARK.sub("", text)
        for wrap in _WRAPS:
            first, last = (wrap[0], wrap[1]) if wrap in ("()") else (wrap, wrap)
            inner = text[len(first) : -len(last)]
            if inner.strip() and text == f"{first}{inner}{last}" and first not in inner and last not in inner:
                text = inner.strip()
    return text.removesuffix("()")


def _text_forms(text: str) -> Iterator[str]:
    """Yield the forms of a text: with and without "&", hyphens, articles."""
    text = _CAPITAL_A.sub(_LETTER_A, text) if text != text.upper() else text
    text = _plain_letters(text.casefold())
    for pattern, written in _SPELLED:
        text = pattern.sub(written, text)
    hyphens, ands = ("", " ") if "-" in text or "/" in text else ("",), ("", " and ") if "&" in text else ("",)
    for hyphen, also in itertools.product(hyphens, ands):
        spaced = numerals(_INNER_MARK.sub(hyphen, text.replace("&", also)))
        for form in {spaced, _RANK.sub(r"\1", spaced)}:
            words = _number_romans(_join_initials(_without_marks(form).split()))
            words = [_SHORT.get(word, word) for word in words]
            for chosen in (words, _without_articles(words)):
                yield " ".join(chosen).replace(_LETTER_A, "a") or f"marks {text}"


def _plain_letters(text: str) -> str:
    """Remove accents of Latin letters; other scripts distinguish words by such marks."""
    if text.isascii():
        return text
    from text_unidecode import unidecode

    return "".join(unidecode(c) if c.isalpha() and "LATIN" in unicodedata.name(c, "") else c for c in text)


def _without_marks(text: str) -> str:
    kept = {match.start() + i for match in _KEPT.finditer(text) for i in range(len(match[0]))}
    return "".join(c for i, c in enumerate(text) if i in kept or (unicodedata.category(c)[0] != "P" and c not in "|~`"))


def _join_initials(words: list[str]) -> list[str]:
    """Join initials: "j k rowling" becomes "jk rowling"."""
    joined: list[str] = []
    initial = False
    for word in words:
        single = len(word) == 1 and word.isalpha() and word != _LETTER_A
        if single and initial:
            joined[-1] += word
        else:
            joined.append(word)
        initial = single
    return joined


def _number_romans(words: list[str]) -> list[str]:
    """Convert Roman numerals after a word to digits: "louis xiv" becomes "louis 14"; single letters count only as a last I or V."""
    numbered = words[:1]
    for i, word in enumerate(words[1:], 1):
        is_number = bool(_ROMAN.fullmatch(word)) and (len(word) > 1 or i == len(words) - 1)
        numbered.append(str(_from_roman(word)) if is_number else word)
    return numbered


def _from_roman(word: str) -> int:
    values = [_ROMAN_VALUES[letter] for letter in word]
    return sum(-value if value < following else value for value, following in zip(values, [*values[1:], 0], strict=True))


def _without_articles(words: list[str]) -> list[str]:
    """Remove articles, but no letter names: the last "a" of several words, and that of "A minor", stay."""
    last = len(words) - 1
    return [word for i, word in enumerate(words) if word not in _ARTICLES or (word == "a" and (i == last or words[i + 1] in _KEYS))]
