"""Values of a spreadsheet's cells as people see them: by number format, and in full where a narrow column would shorten them.

A date whose format has year, month and day as numbers is written year first, since their order depends on the reader's locale. Other dates
follow their format.
"""

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from openpyxl.styles.numbers import is_date_format

_QUOTED = re.compile(r'"([^"]*)"|\\(.)|_.|\*.|\[\$([^\]\-]*)[^\]]*\]|\[[^\]]*\]', re.DOTALL)
_DIGITS = re.compile(r"[#0?][#0?,]*(?:\.[#0?]*)?,*|\.[#0?]+,*")
_DATE_TOKEN = re.compile(r"\[?(y+|m+|d+|h+|s+(?:\.0+)?)\]?|am/pm|a/p", re.IGNORECASE)
_MARK = "\x00"


class _Section(NamedTuple):
    """Part of a number format: for positive numbers, negative numbers, or zero."""

    before: str
    after: str
    places: int | None
    """Digits after the point; None for as many as the number has."""
    width: int
    """Minimum number of digits before the point."""
    groups: bool
    scale: int
    """Powers of ten by which the number is divided."""


def show_value(value: object, code: str) -> str:
    """Return a cell's value in its number format."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, timedelta):
        return _show_duration(value)
    if isinstance(value, datetime | date | time):
        return _show_date(value, code)
    if isinstance(value, int | float | Decimal):
        return _show_number(value, code)
    return str(value).strip()


def _show_number(value: int | float | Decimal, code: str) -> str:
    number = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not number.is_finite():
        return ""
    sections = _sections(code)
    picked = 1 if number < 0 and len(sections) > 1 else 2 if number == 0 and len(sections) > 2 else 0
    section = sections[picked]
    if section is None:
        return _general(number)
    if picked == 1:
        number = -number
    if section.places is None:
        text = _general(number.scaleb(-section.scale)) if section.width else ""
    else:
        shown = round(number.scaleb(-section.scale), section.places) if abs(number) < Decimal(10) ** 20 else number
        text = f"{shown:{',' if section.groups else ''}.{section.places}f}"
        if not shown:
            text = text.lstrip("-")
        whole, dot, rest = text.partition(".")
        sign, digits = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
        text = f"{sign}{digits.zfill(section.width)}{dot}{rest}"
    sign = "-" if text.startswith("-") and section.before.strip() else ""
    return f"{sign}{section.before}{text.removeprefix(sign)}{section.after}".strip()


def _general(number: Decimal) -> str:
    """Return an integer in full, any other number with eleven digits, as a wide column shows it."""
    if number == number.to_integral_value():
        return f"{number:.0f}" if number else "0"
    if abs(number) < Decimal("0.0001"):
        return f"{float(number):.6g}".replace("e", "E")
    places = max(2, 10 - len(f"{abs(number):.0f}"))
    return f"{number:.{places}f}".rstrip("0").rstrip(".")


@lru_cache(maxsize=4096)
def _sections(code: str) -> tuple[_Section | None, ...]:
    """Return the parts of a number format; None for a part that formats like no format."""
    parts = [""]
    quoted = False
    escaped = False
    for char in code:
        quoted ^= char == '"' and not escaped
        if char == ";" and not quoted and not escaped:
            parts.append("")
        else:
            parts[-1] += char
        escaped = char == "\\" and not escaped
    found = tuple(_section(part) for part in parts[:3])
    return found if not re.search(r"\[[<>=]", code) else (found[0], found[0] and found[0]._replace(before=f"-{found[0].before}"))


def _section(part: str) -> _Section | None:
    literals: list[str] = []

    def keep(match: re.Match[str]) -> str:
        literals.append(match[1] or match[2] or match[3] or "")
        return _MARK

    bare = _QUOTED.sub(keep, part)
    if re.search(r"general|@|e[+-]|/", bare, re.IGNORECASE):
        return None
    digits = _DIGITS.search(bare)
    if digits is None:
        text = _restore(bare, literals)
        return _Section(text, "", None, 0, False, 0)
    pattern = digits[0]
    scaled = len(pattern) - len(pattern.rstrip(","))
    whole, _, rest = pattern.rstrip(",").partition(".")
    before, after = bare[: digits.start()], bare[digits.end() :]
    before_text = _restore(before, literals[: before.count(_MARK)])
    after_text = _restore(after, literals[before.count(_MARK) :])
    percent = 2 * (before + after).count("%")
    return _Section(before_text, after_text, len(rest), whole.count("0"), "," in whole, 3 * scaled - percent)


def _restore(text: str, literals: list[str]) -> str:
    waiting = iter(literals)
    return "".join(next(waiting, "") if char == _MARK else char for char in text)


def _show_duration(value: timedelta) -> str:
    seconds = round(value.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _show_date(value: datetime | date | time, code: str) -> str:
    bare = _QUOTED.sub(lambda found: found[0] if re.fullmatch(r"\[[hms]+\]", found[0], re.IGNORECASE) else " ", code.split(";")[0])
    tokens = [found[1].lower() for found in _DATE_TOKEN.finditer(bare) if found[1]]
    has_time = any(token[0] in "hs" for token in tokens)
    clock = _clock(value, any(token[0] == "s" for token in tokens)) if not isinstance(value, date) or isinstance(value, datetime) else ""
    if isinstance(value, time):
        return clock
    months = [token for token in tokens if token[0] == "m" and not (has_time and len(token) < 3 and _is_minute(tokens, token))]
    has_year, has_day = any(token[0] == "y" for token in tokens), any(token[0] == "d" for token in tokens)
    if not is_date_format(code) or not (has_year or has_day or months):
        return clock if has_time and isinstance(value, datetime) else _iso(value)
    if has_year and has_day and months:
        day = _iso(value)
    else:
        names = {"y": f"{value.year}", "m": _month(value, months[0] if months else ""), "d": _day(value, tokens)}
        day = " ".join(names[kind] for kind in dict.fromkeys(token[0] for token in tokens) if kind in names and (kind != "m" or months))
        if has_year and months and len(months[0]) < 3:
            day = f"{value.year}-{value.month:02}"
    return f"{day} {clock}".strip() if has_time and clock else day


def _is_minute(tokens: list[str], token: str) -> bool:
    at = tokens.index(token)
    return (at > 0 and tokens[at - 1][0] == "h") or (at + 1 < len(tokens) and tokens[at + 1][0] == "s")


def _iso(value: datetime | date) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def _month(value: datetime | date, token: str) -> str:
    return f"{value:%B}" if len(token) > 3 else f"{value:%b}" if len(token) == 3 else str(value.month)


def _day(value: datetime | date, tokens: list[str]) -> str:
    token = next((token for token in tokens if token[0] == "d"), "")
    return f"{value:%A}" if len(token) > 3 else f"{value:%a}" if len(token) == 3 else str(value.day)


def _clock(value: datetime | date | time, with_seconds: bool) -> str:
    return f"{value:%H:%M:%S}" if with_seconds else f"{value:%H:%M}"
