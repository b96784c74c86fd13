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
ANSWER_MARK = "####"
_MARKED = re.compile(rf"{ANSWER_MARK}\s*([^\n]*)")
_SIGNED = re.compile(
    rf"(?P<sign>(?<![\w.%)\]}}])[-\u2212](?=[$\d.]))?\$?\s*"
    rf"(?:(?P<whole>\d+) +(?=\d+\s*/\s*\d))?(?P<number>{_LITERAL})(?:\s*/\s*(?P<below>{_LITERAL}))?"
)
"""A number with its sign, a fraction or a mixed number; a dash after a word or before a space is no sign."""
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_HUNDREDTHS = {"percent", "cent", "cents"}

_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_SCALED = re.compile(rf"({NUMBER.pattern})[ -]({'|'.join(_SCALES)})\b", re.IGNORECASE)
_JOINT = re.compile(r"(?<=[a-z])-(?=[a-z])|(?<=thousand),(?= )|(?<=million),(?= )", re.IGNORECASE)
_ORDINAL = re.compile(r"(?:\b(\d+) )?(?<![/\d.,])(\d+)(?:st|nd|rd|th)s?\b")
_WORD = re.compile(r"[a-z]+")

_FRACTIONS = {"third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10, "twelfth": 12}
MULTIPLES = {
    "twice": (2,), "double": (2,), "doubled": (2,), "doubles": (2,), "couple": (2,), "pair": (2,), "both": (2,),
    "thrice": (3,), "triple": (3,), "tripled": (3,), "half": (2,), "halves": (2,), "quarter": (4, 25), "quarters": (4, 25),
    "dozen": (12,), "dozens": (12,), **{word + plural: (n,) for word, n in _FRACTIONS.items() for plural in ("", "s")},
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
    return {value for literal in NUMBER.findall(in_digits(text)) if (value := _value(literal)) is not None}


def find_literals(text: str) -> set[Fraction | None]:
    """Find every number in digits, also inside a word such as "USD35"; None stands for one that is too long to read."""
    return {_value(literal) for literal in re.findall(_LITERAL, text)}


def implied_numbers(text: str) -> set[Fraction]:
    """Find the numbers that a text's words and marks imply: 2 of "twice", 7 of "week", 0.8 and 0.2 of "80 %", 2.75 of "2 3/4"."""
    words = set(_WORD.findall(text.lower()))
    multiples = {n for word in words for n in MULTIPLES.get(word, ())}
    implied = {Fraction(n) for word in words for n in UNITS.get(word, ())} | set(map(Fraction, multiples))
    implied |= {Fraction(1, n) for n in multiples}
    fractions = [_signed(match) for match in _SIGNED.finditer(in_digits(text)) if match["below"]]
    implied |= {abs(value) for value in fractions if value is not None}
    if words & _HUNDREDTHS or "%" in text:
        parts = [number / 100 for number in find_numbers(text)]
        implied |= {Fraction(100), *parts, *(1 - part for part in parts), *(1 + part for part in parts)}
    return implied


def count_quantities(text: str) -> int:
    """Count the quantities of a text: numbers, and words such as "half"; the caller counts references."""
    words = _WORD.findall(text.lower())
    return len(NUMBER.findall(in_digits(text))) + sum(word in MULTIPLES or word in UNITS for word in words)


def in_digits(text: str) -> str:
    """Write the numbers of a text in digits: "three hundred and five" as 305, "5 million" as 5000000, "four-fifths" as 4/5.

    An ordinal such as "third" is left out: it names no quantity.
    """
    from text_to_num import alpha2digit

    text = _SCALED.sub(lambda match: _write_scaled(match[1], match[2]), text)
    written = alpha2digit(_JOINT.sub(" ", text), "en", threshold=0)
    return _ORDINAL.sub(lambda match: f"{match[1]}/{match[2]}" if match[1] else " ", written)


def _write_scaled(literal: str, scale: str) -> str:
    value = _value(literal)
    return literal if value is None else format_number(value * _SCALES[scale.lower()])


def parse_number(text: str | None) -> Fraction | None:
    """Read a text that is one number (sign, `$`, thousands commas, `n/d` and `%` allowed); None for anything else."""
    if text is None:
        return None
    bare = text.strip().rstrip(".").removesuffix("%").strip()
    match = _SIGNED.fullmatch(bare)
    return _signed(match) if match else None


def last_number(text: str) -> Fraction | None:
    """Read an answer from prose: the first number after the last `####` if there is one, else the last number."""
    marked = _MARKED.findall(text)
    matches = list(_SIGNED.finditer(marked[-1] if marked else text))
    return _signed(matches[0 if marked else -1]) if matches else None


def extract_answer(worked: str) -> str | None:
    """Extract GSM8K's gold answer from a worked solution; None where there is no `####`."""
    marked = _MARKED.findall(worked)
    return _GROUPED.sub("", marked[-1].strip()) if marked else None


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
    whole, value, below = (_value(match[name] or default) for name, default in (("whole", "0"), ("number", ""), ("below", "1")))
    if whole is None or value is None or not below:
        return None
    return -(whole + value / below) if match["sign"] else whole + value / below


def _value(literal: str) -> Fraction | None:
    digits = literal.replace(",", "")
    return Fraction(digits) if len(digits) <= MAX_DIGITS else None
