"""Numbers in text: find them, read an answer, compare and write them. All are exact fractions.

The gold answer of a GSM8K problem follows `####` at the end of its worked solution, without thousands commas (Cobbe et
al. 2021, "Training Verifiers to Solve Math Word Problems").
"""

import re
from fractions import Fraction

MAX_DIGITS = 40
"""Largest number of digits of a number: longer ones do not occur in problems, and computing with them takes too long."""
_LITERAL = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
NUMBER = re.compile(rf"(?<![\w#.])(?:{_LITERAL})(?![\d#])")
"""A number without its sign; not the digits of a reference such as `#12` or of a word."""
_ANSWER_MARK = re.compile(r"####\s*([^\n]*)")
_SIGNED = re.compile(rf"(?P<sign>(?<!\d)[-\u2212])?\s*\$?\s*(?P<number>{_LITERAL})(?:\s*/\s*(?P<below>{_LITERAL}))?")

_RATIO = re.compile(rf"({_LITERAL})\s*/\s*({_LITERAL})")
_HUNDREDTHS = {"percent", "cent", "cents"}

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
    "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
CARDINALS = {word: Fraction(n) for n, word in enumerate(_ONES)} | {word: Fraction(10 * n) for n, word in enumerate(_TENS, start=2)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6}
_WORD = re.compile(r"[a-z]+")

MULTIPLES = {
    "twice": (2,), "double": (2,), "doubled": (2,), "doubles": (2,), "couple": (2,), "pair": (2,), "both": (2,),
    "thrice": (3,), "triple": (3,), "tripled": (3,), "half": (2,), "halves": (2,), "third": (3,), "thirds": (3,),
    "quarter": (4, 25), "quarters": (4, 25), "fourth": (4,), "fourths": (4,), "fifth": (5,), "tenth": (10,),
    "dozen": (12,), "dozens": (12,),
}  # fmt: skip
"""Words that imply a number without naming it."""
UNITS = {
    "percent": (100,), "cent": (100,), "cents": (100,), "dollar": (100,), "dollars": (100,), "minute": (60,), "minutes": (60,),
    "hour": (60, 24), "hours": (60, 24), "day": (24, 7, 30), "days": (24, 7, 30), "daily": (7, 30), "week": (7, 52, 4),
    "weeks": (7, 52, 4), "weekly": (7, 52, 4), "month": (12, 4, 30), "months": (12, 4, 30), "monthly": (12,), "year": (12, 52, 365),
    "years": (12, 52, 365), "annual": (12, 52), "annually": (12, 52), "decade": (10,), "foot": (12, 3), "feet": (12, 3), "yard": (3,),
    "yards": (3,), "nickel": (5,), "nickels": (5,), "dime": (10,), "dimes": (10,), "penny": (1,), "pennies": (1,),
    "inches": (12,), "pound": (16,), "pounds": (16,), "ounces": (16,), "gallon": (4,), "gallons": (4,),
}  # fmt: skip
"""Units, and the numbers that are commonly known of them."""


def find_numbers(text: str) -> set[Fraction]:
    """Find every number that a text names, in digits or in words, without signs."""
    found = {value for literal in NUMBER.findall(text) if (value := _value(literal)) is not None}
    return found | set(_spelled(text))


def implied_numbers(text: str) -> set[Fraction]:
    """Find the numbers that a text's words and marks imply: 2 of "twice", 7 of "week", 0.8 and 0.2 of "80 %", 0.75 of "3/4"."""
    words = set(_WORD.findall(text.lower()))
    multiples = {n for word in words for n in MULTIPLES.get(word, ())}
    implied = {Fraction(n) for word in words for n in UNITS.get(word, ())} | set(map(Fraction, multiples))
    implied |= {Fraction(1, n) for n in multiples}
    implied |= {a / b for literals in _RATIO.findall(text) if (a := _value(literals[0])) is not None and (b := _value(literals[1]))}
    if words & _HUNDREDTHS or "%" in text:
        parts = [number / 100 for number in find_numbers(text)]
        implied |= {Fraction(100), *parts, *(1 - part for part in parts), *(1 + part for part in parts)}
    return implied


def count_quantities(text: str) -> int:
    """Count the quantities of a text: numbers, and words such as "half"; the caller counts references."""
    words = _WORD.findall(text.lower())
    return len(NUMBER.findall(text)) + sum(1 for _ in _spelled(text)) + sum(word in MULTIPLES or word in UNITS for word in words)


def _spelled(text: str) -> list[Fraction]:
    """Read cardinals in words: "seventy-two", "three hundred and five"."""
    found: list[Fraction] = []
    total, current, open_ = 0, 0, False
    for word in [*_WORD.findall(text.lower()), ""]:
        if word in CARDINALS:
            current, open_ = current + int(CARDINALS[word]), True
        elif word in _SCALES and open_:
            if word == "hundred":
                current *= 100
            else:
                total, current = total + current * _SCALES[word], 0
        elif not (word == "and" and open_ and (total or current >= 100)):
            if open_:
                found.append(Fraction(total + current))
            total, current, open_ = 0, 0, False
    return found


def parse_number(text: str | None) -> Fraction | None:
    """Read a text that is one number (sign, `$`, thousands commas, `n/d` and `%` allowed); None for anything else."""
    if text is None:
        return None
    bare = text.strip().rstrip(".").removesuffix("%").strip()
    match = _SIGNED.fullmatch(bare)
    return _signed(match) if match else None


def last_number(text: str) -> Fraction | None:
    """Read an answer from prose: the number after the last `####` if there is one, else the last number."""
    marked = _ANSWER_MARK.findall(text)
    matches = list(_SIGNED.finditer(marked[-1] if marked else text))
    return _signed(matches[-1]) if matches else None


def extract_answer(worked: str) -> str | None:
    """Extract GSM8K's gold answer from a worked solution; None where there is no `####`."""
    marked = _ANSWER_MARK.findall(worked)
    return marked[-1].strip().replace(",", "") if marked else None


def format_number(value: Fraction) -> str:
    """Write a number so that it reads back exactly: an integer, a decimal that ends, else a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    below, places = value.denominator, 0
    while below % 2 == 0 or below % 5 == 0:
        below //= 2 if below % 2 == 0 else 5
        places += 1
    if below != 1 or places > 12:
        return f"{value.numerator}/{value.denominator}"
    digits = f"{abs(value.numerator) * 10**places // value.denominator:0{places + 1}d}"
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}".rstrip("0")


def _signed(match: re.Match[str]) -> Fraction | None:
    value, below = _value(match["number"]), _value(match["below"] or "1")
    if value is None or not below:
        return None
    return -value / below if match["sign"] else value / below


def _value(literal: str) -> Fraction | None:
    digits = literal.replace(",", "")
    return Fraction(digits) if len(digits) <= MAX_DIGITS else None
