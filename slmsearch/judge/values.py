"""Values in answers: numbers, money, quantities with units, years, ranges, times, dates and versions.

`read_values` returns a value in a form that is equal for all its spellings: "5 km", "5,000 metres" and "five kilometers" read alike.
text2num reads number words, pint units, packaging versions (docs/judges.md compares libraries), whatever the locale or the current date.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    import pint

Reading = tuple[str, ...]
"""Kind of a value, and its canonical form."""


def _any_of(patterns: Mapping[str, str]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns.values())


def _named(patterns: Mapping[str, str], text: str) -> str | None:
    """Return the name of the first pattern that matches the whole text, or None."""
    return next((name for name, pattern in patterns.items() if re.fullmatch(pattern, text, re.IGNORECASE)), None)


_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALED = re.compile(rf"(?<![\w.,])(\d{{1,20}}(?:\.\d{{1,6}})?)[ -]?({'|'.join(_SCALES)})\b", re.IGNORECASE)
_SHARED_SCALE = re.compile(rf"(?i)(?<![\w.,])([\d.]+)( ?- ?| to | and )(?=[$€£¥₩₹₽]?[\d.]+ ({'|'.join(_SCALES)})\b)")
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d,])")
_SPACED = re.compile(r"(?<![\w.,])\d{1,3}(?:[ '_]\d{3})+(?![\d,'_])")
_DECIMAL_COMMA = re.compile(r"(?<![\w.,])(\d{1,9}),(\d{1,2})(?![\w,]|\.\d)")
_SECOND = re.compile(r"(?<=\d )second\b|(?<=\bone )second\b|(?<=\bper )second\b", re.IGNORECASE)
_MANY = re.compile(r"\b((?:dozen|hundred|thousand|[mbtr]+illion)s\b)", re.IGNORECASE)
_YEAR_WORDS = re.compile(r"\b(1[0-9]|20) (\d\d)\b")
_WORD_HYPHEN = re.compile(r"(?<=[a-z])-(?=[a-z])", re.IGNORECASE)
_AND_PART = re.compile(r"\b(\d+) and (?:an?|1) (half|quarter)\b", re.IGNORECASE)
_PART_OF = {"half": "2", "quarter": "4"}
_PARTS = re.compile(r"\b(?:(\d+|an?) )?(half|quarter|3rd|4th|5th|6th|8th|10th|100th)s?", re.IGNORECASE)
_OPERATORS = {
    ">=": r">=|≥|at least|no less than|no fewer than|not less than|(?:a )?minimum of",
    "<=": r"<=|≤|at most|no more than|not more than|up to|(?:a )?maximum of",
    "!=": r"!=|≠",
    "~=": r"~=",
    "": r"==|=|exactly|precisely",
    ">": r">|more than|greater than|over|above|exceeding|after",
    "<": r"<|less than|fewer than|under|below|lower than|before",
    "^": r"\^",
}
_TRAILING = {
    ">=": r"\+|(?:or|and) (?:later|newer|higher|above|more|greater|over|older|up|upwards)",
    "<=": r"(?:or|and) (?:earlier|lower|below|less|fewer|under|younger)",
}
_OPERATOR = re.compile(rf"(?P<op>{_any_of(_OPERATORS)})(?:\s+|(?<!\w))", re.IGNORECASE)
_LEAD = re.compile(
    r"\A(?:[~≈]\s*|(?:approximately|approx\.?|about|around|roughly|circa|ca\.|c\.|nearly|almost|in|on|at|the(?: year)?|an?)\s+)+",
    re.IGNORECASE,
)
"""Words before a value that do not change it."""
_MONEY = {
    "USD": r"us ?\$|\$|usd|(?:us |u\.s\. |american )?dollars?",
    "EUR": r"€|eur|euros?",
    "GBP": r"£|gbp|(?:british )?pounds?(?: sterling)?",
    "JPY": r"¥|jpy|(?:japanese )?yen",
    "INR": r"₹|inr|(?:indian )?rupees?",
    "CNY": r"cny|rmb|(?:chinese )?yuan",
    "CHF": r"chf|swiss francs?",
    "KRW": r"₩|krw|(?:south korean )?won",
    "RUB": r"₽|rub|(?:russian )?rou?bles?",
}
_SHORT_SCALES = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}
"""Letters that scale an amount of money; after other numbers they are units."""
_NUMBER = (
    r"(?P<sign>[-+] ?|minus |negative |plus )?(?P<digits>\d{1,30}(?:\.\d{1,30})?|\.\d{1,30})"
    r"(?:(?P<exp> ?[x\u00d7*·] ?10 ?\^ ?|e|\^)(?P<power>[-+]?\d{1,2})(?!\d)|(?P<whole> \d{1,9})?/(?P<divisor>\d{1,9}))?"
)
_AMOUNT = re.compile(
    rf"(?P<minus>-)?(?:(?P<money>{_any_of(_MONEY)}) ?)?{_NUMBER}"
    rf"(?:[ -]?(?P<unit>[^\W\d_].*?|[°%€£¥$₹₩₽].*?))??(?: ?(?P<trailing>{_any_of(_TRAILING)}))?",
    re.IGNORECASE,
)
_PERCENT = re.compile(r"%|per ?cent|pct\.?", re.IGNORECASE)
_NOUN = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_UNIT = re.compile(r"(?:[a-zµμ°Ω]|\^-?[1-4](?! *[\d^])|[ /]|\*(?!\*))+", re.IGNORECASE)
_DEGREES = re.compile(r"(?:°|degrees? |deg\.? )\s?(?:(?P<c>c(?:elsius)?)|(?P<f>f(?:ahrenheit)?))", re.IGNORECASE)
_OWN_UNITS = ("@alias bit = b", "_kilobyte = 1000 * byte = KB", "_kilobit = 1000 * bit = Kb", "_gigabit = 1e9 * bit = Gb")
_ERA_DOTS = re.compile(r"\b(?:b\.c|a\.d|c\.e|b\.c\.e)\.", re.IGNORECASE)
_ERA = re.compile(r"(ad |ce )?(\d{1,4})( ?(?:ad|ce))?( ?bce?)?", re.IGNORECASE)
_BARE_YEAR = range(100, 2101)
"""Numbers that may be years without an era."""
_RANGE = re.compile(
    r"(?i)(?:from |(between ))?([$€£¥₩₹₽]?)(-?\d{1,12}(?:\.\d{1,9})?)(?: ?([^\d\s-]+)(?=\D+\d[\d.]* ?\4$))?"
    r"(?: ?- ?| to |(?(1) and |(?!))| through | until )\2?(-?\d{1,12}(?:\.\d{1,9})?) ?([^\d]*)"
)
_TIME = re.compile(r"(\d{1,2})(?:(?P<mark>[:.])(\d\d))?(?::(\d\d))?(?: ?(?P<half>[ap])\.?m\.?| o'?clock)?", re.IGNORECASE)
_NAMED_TIMES = {"noon": "12:00", "midday": "12:00", "midnight": "0:00"}
_TIME_RANGE = re.compile(r"(?:from |(between ))?(.{1,20}?)(?: ?- ?| to |(?(1) and |(?!))| until | till )(.{1,20})", re.IGNORECASE)
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DATE_PART = re.compile(r"(?P<word>[a-z]+)|(?P<number>\d+)(?:st|nd|rd|th)?", re.IGNORECASE)
_ISO = re.compile(r"(\d{4})[-/.](\d{1,2})(?:[-/.](\d{1,2}))?")
_NUMERIC_DATE = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})")
_VERSION = re.compile(
    r"(?P<name>v\.? ?|version |ver\. ?|release )?(?P<number>\d+(?:\.\d+)*(?:[-._]?[a-z]+[-._]?\d*)?)"
    rf"(?: ?(?P<trailing>{_any_of(_TRAILING)}))?",
    re.IGNORECASE,
)
_MINOR = re.compile(r"[1-9]\d?\.[1-3]0")
"""Numbers read as a version, not as a decimal: 3.10 is not 3.1."""


def numerals(text: str) -> str:
    """Convert numbers in English words, and with scale words, to digits without thousands separators; other text stays."""
    from text_to_num import alpha2digit

    in_words = not any(c.isdigit() for c in text)
    text = re.sub(r"\b(?:a|one) dozen\b", "12", text, flags=re.IGNORECASE)
    text = _SHARED_SCALE.sub(r"\1 \3\2", text)
    text = _GROUPED.sub(lambda match: match[0].replace(",", ""), text)
    text = _SCALED.sub(lambda match: format(Decimal(match[1]) * _SCALES[match[2].lower()], "f"), text)
    parts = _MANY.split(_SECOND.sub("sec", text))  # text2num reads "millions" as 1000000
    text = "".join(part if i % 2 else alpha2digit(part, "en", threshold=0) for i, part in enumerate(parts))
    return _YEAR_WORDS.sub(r"\1\2", text) if in_words else text  # "nineteen eighty-four"


def read_values(text: str) -> Iterator[Reading]:
    """Yield the values that a whole text may state; text around a value, except "about" or "in", means no value."""
    text = numerals(_SPACED.sub(lambda match: re.sub(r"[ '_]", "", match[0]), _WORD_HYPHEN.sub(" ", text)))
    text = _DECIMAL_COMMA.sub(r"\1.\2", text)
    text = _PARTS.sub(_write_part, _AND_PART.sub(lambda match: f"{match[1]} 1/{_PART_OF[match[2].lower()]}", text))
    text = _ERA_DOTS.sub(lambda match: match[0].replace(".", ""), text)
    found = _OPERATOR.match(text)
    operator = (_named(_OPERATORS, found["op"]) or "") if found else ""
    text = _LEAD.sub("", text[found.end() :] if found else text, count=1)
    yield from _read_amount(text, operator)
    yield from _read_version(text, operator)
    yield from _read_date(text, operator)
    if not operator:
        yield from _read_range(text)
        yield from _read_time(text)
        yield from _read_time_range(text)


def _write_part(match: re.Match[str]) -> str:
    count, part = match[1] or "", match[2].lower()
    if not count and part not in _PART_OF:
        return match[0]  # "third" may be a rank
    return f"{count if count.isdigit() else 1}/{_PART_OF.get(part) or part[:-2]}"


def _read_amount(text: str, operator: str) -> Iterator[Reading]:
    if era := _ERA.fullmatch(text):
        year, named = int(era[2]), bool(era[1] or era[3] or era[4])
        if named or year in _BARE_YEAR:
            yield ("year", operator, str(-year if era[4] else year))
        if named:
            return
    match = _AMOUNT.fullmatch(text)
    if match is None or (value := _value_of(match)) is None:
        return
    unit, money = (match["unit"] or "").strip(), match["money"]
    operator = (_named(_TRAILING, match["trailing"]) if match["trailing"] else operator) or ""
    if money or (_named(_MONEY, unit) and not money):
        scale = _SHORT_SCALES.get(unit.lower(), 1) if money else 1
        if not money or not unit or scale > 1 or _named(_MONEY, unit) == _named(_MONEY, money):
            yield ("money", operator, str(value * scale), _named(_MONEY, money or unit) or "")
    if money:
        return
    if not unit:
        if not _MINOR.fullmatch(match["digits"]):
            yield ("number", operator, str(value))
    elif _PERCENT.fullmatch(unit):
        yield ("percent", operator, str(value))
    else:
        for name in (unit, f"deg{unit}") if unit in ("C", "F") else (unit,):
            if factors := _base_unit(name):
                scale_to, offset, base = factors
                yield ("quantity", operator, f"{float(value) * scale_to + offset:.10g}", base)
        if _NOUN.fullmatch(unit):
            yield ("count", operator, str(value), unit.lower())


def _value_of(match: re.Match[str]) -> Fraction | None:
    """Return the number that an amount states; None if it divides by zero."""
    value = Fraction(f"0{match['digits']}")
    if match["divisor"]:
        if not int(match["divisor"]):
            return None
        part = Fraction(1, int(match["divisor"]))
        value = value + int(match["whole"]) * part if match["whole"] else value * part
    elif match["power"]:
        power = int(match["power"])
        base = value if match["exp"] == "^" else Fraction(10)
        if base == 0 and power < 0:
            return None
        value = base**power * (1 if match["exp"] == "^" else value)
    negative = (match["sign"] or "").strip().lower() in ("-", "minus", "negative")
    return -value if negative != bool(match["minus"]) else value


@functools.lru_cache(maxsize=1024)
def _base_unit(unit: str) -> tuple[float, float, str] | None:
    """Return factor, offset and name of the base units of a unit; None if pint does not know it."""
    import pint

    unit = _DEGREES.sub(lambda match: "degC" if match["c"] else "degF", unit).replace("°", "degree")
    unit = re.sub(r"\b(sq|cu)\b\.?", lambda match: {"sq": "square", "cu": "cubic"}[match[1].lower()], unit, flags=re.IGNORECASE)
    unit = re.sub(r"(?<=[a-z])([23])\b", r"^\1", unit.replace(".", "").replace("-", " ").replace("·", "*").replace("µ", "μ"))
    if len(unit) > 40 or not _UNIT.fullmatch(unit):
        return None
    for name in dict.fromkeys((unit, unit.lower())):
        try:
            at_zero, at_one = (_units().Quantity(number, name).to_base_units() for number in (0.0, 1.0))
        except (pint.PintError, AssertionError, AttributeError, TypeError, ValueError, ZeroDivisionError, OverflowError, MemoryError):
            continue  # a word, possibly in capitals
        return at_one.magnitude - at_zero.magnitude, at_zero.magnitude, str(at_one.units)
    return None


@functools.cache
def _units() -> "pint.UnitRegistry[float]":
    import pint

    units: pint.UnitRegistry[float] = pint.UnitRegistry(cache_folder=None, on_redefinition="ignore")
    units.load_definitions(_OWN_UNITS)
    return units


def _read_range(text: str) -> Iterator[Reading]:
    if match := _RANGE.fullmatch(text):
        _, money, first, _, last, rest = match.groups()
        if len(first) == 4 and len(last) == 2 and first.isdigit() and last.isdigit():
            last = first[:2] + last  # 1914-18
        unit = (money + rest).strip().lower()
        yield ("range", str(Fraction(first)), str(Fraction(last)), "%" if _PERCENT.fullmatch(unit) else _named(_MONEY, unit) or unit)


def _read_time(text: str) -> Iterator[Reading]:
    match = _TIME.fullmatch(_NAMED_TIMES.get(text.lower().removeprefix("12 "), text))
    if match is None or match[0].isdigit() or (match["mark"] == "." and not match["half"]):
        return
    hour, minute, second = (int(match[i] or 0) for i in (1, 3, 4))
    if match["half"]:
        if not 1 <= hour <= 12:
            return
        hour = hour % 12 + (12 if match["half"].lower() == "p" else 0)
    yield ("time", str(hour), str(minute), str(second))


def _read_time_range(text: str) -> Iterator[Reading]:
    match = _TIME_RANGE.fullmatch(text)
    ends = [next(_read_time(end), None) for end in match.groups()[1:]] if match else []
    if len(ends) == 2 and ends[0] and ends[1]:
        yield ("times", *ends[0][1:], *ends[1][1:])


def _read_date(text: str, operator: str) -> Iterator[Reading]:
    """Read a date with at least two known parts; a missing part stays missing."""
    if (match := _ISO.fullmatch(text)) and (match[3] or ("." not in text and match[2] <= match[1][2:])):  # 2003-04 is two years
        candidates = [(int(match[1]), int(match[2]), int(match[3] or 0))]
    elif match := _NUMERIC_DATE.fullmatch(text):
        first, second, year = map(int, match.groups())
        candidates = list({(year, first, second), (year, second, first)})
    else:
        candidates = [parts] if (parts := _date_parts(text)) else []
    valid = [parts for parts in candidates if _is_date(*parts)]
    if len(valid) == 1:  # 7/4/1776 is two dates
        yield ("date", operator, *(str(part) for part in valid[0]))


def _date_parts(text: str) -> tuple[int, int, int] | None:
    """Return year, month and day of a date with a month's name, 0 for a missing one; None if there is any other word."""
    year = month = day = 0
    weekday = next((i for i, name in enumerate(_WEEKDAYS) if re.search(rf"\b{name[:3]}", text, re.IGNORECASE)), -1)
    if re.sub(r"[\s,.-]", "", _DATE_PART.sub("", text)):
        return None
    for part in _DATE_PART.finditer(text):
        word, number = (part["word"] or "").lower(), part["number"] or ""
        if word in ("of", "the") or (len(word) >= 3 and any(name.startswith(word) for name in _WEEKDAYS)):
            continue
        named = next((i for i, name in enumerate(_MONTHS, 1) if len(word) >= 3 and name.startswith(word)), 0)
        if named and not month:
            month = named
        elif 1 <= len(number) <= 2 and not day:
            day = int(number)
        elif 3 <= len(number) <= 4 and not year and part[0].isdigit():
            year = int(number)
        else:
            return None
    is_day = weekday < 0 or not (year and day and _is_date(year, month, day)) or date(year, month, day).weekday() == weekday
    return (year, month, day) if month and (year or day) and is_day else None


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        date(year or 2000, month, day or 1)
    except ValueError:
        return False
    return True


def _read_version(text: str, operator: str) -> Iterator[Reading]:
    match = _VERSION.fullmatch(text)
    if match is None:
        return
    number, trailing = match["number"], match["trailing"]
    operator = (_named(_TRAILING, trailing) if trailing else operator) or ""
    if match["name"] or number.count(".") > 1 or _MINOR.fullmatch(number) or operator in ("~=", "^"):
        try:
            yield ("version", operator, str(Version(number)))
        except InvalidVersion:
            return
        if match["name"] and re.fullmatch(r"\d{1,30}(\.\d{1,30})?", number) and not _MINOR.fullmatch(number):
            yield ("number", operator, str(Fraction(number)))
