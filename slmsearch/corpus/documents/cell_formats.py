"""Values of a spreadsheet's cells as people see them: by number format, and in full where a narrow column would shorten them.

A date whose format has year, month and day as numbers is written year first, since their order depends on the reader's locale. Other dates
follow their format.
"""

import re
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple

from openpyxl.styles.numbers import is_date_format

_QUOTED = re.compile(r'"([^"]*)"|\\(.)|_.|\*.|\[\$([^\]\-]*)[^\]]*\]|\[[^\]]*\]', re.DOTALL)
_DIGITS = re.compile(r"[#0?][#0?,]*(?:\.[#0?]*)?,*|\.[#0?]+,*|general", re.IGNORECASE)
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
    gaps: tuple[tuple[int, str], ...] = ()
    """Texts between digits, each with the number of digits to its right."""


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
    with localcontext(prec=99, rounding=ROUND_HALF_UP):  # as spreadsheets do
        text = _general(number) if section is None else _in_section(-number if picked == 1 else number, section)
    return text.strip()


def _in_section(number: Decimal, section: _Section) -> str:
    if section.places is None:
        text = _general(number) if section.width else ""
    else:
        text = f"{number.scaleb(-section.scale):{',' if section.groups else ''}.{section.places}f}"
        whole, dot, rest = text.lstrip("-").partition(".")
        digits = whole.zfill(section.width)
        for right, gap in section.gaps:
            digits = f"{digits[:-right]}{gap}{digits[-right:]}" if 0 < right < len(digits) else digits
        sign = "-" if text.startswith("-") and text.strip("-0.") else ""
        text = f"{sign}{digits}{dot}{rest}"
    sign = "-" if text.startswith("-") and section.before.strip() else ""
    return f"{sign}{section.before}{text.removeprefix(sign)}{section.after}"


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
    # Of a format with conditions other than these three, the number is shown plain.
    return (None,) if re.search(r"\[[<>=]", code) else tuple(_section(part) for part in parts[:3])


def _section(part: str) -> _Section | None:
    literals: list[str] = []

    def keep(match: re.Match[str]) -> str:
        literals.append(match[1] or match[2] or match[3] or "")
        return _MARK

    bare = _QUOTED.sub(keep, part)
    patterns = [pattern.lower() for pattern in _DIGITS.findall(bare)]
    waiting = iter(literals)
    before, *gaps = ("".join(next(waiting, "") if char == _MARK else char for char in text) for text in _DIGITS.split(bare))
    is_general = patterns == ["general"]
    if re.search(r"@|e[+-]|/", bare.lower()) or ("general" in patterns and not is_general) or any("." in each for each in patterns[:-1]):
        return None
    if is_general or not patterns:
        after = "".join(gaps)
        return None if is_general and not before + after else _Section(before, after, None, len(patterns), False, 0)
    last = patterns[-1].rstrip(",")
    whole, _, rest = last.partition(".")
    wholes = [*patterns[:-1], whole]
    rights = [sum(len(each) - each.count(",") for each in wholes[at:]) for at in range(1, len(wholes))]
    scale = 3 * (len(patterns[-1]) - len(last)) - 2 * bare.count("%")
    is_grouped = "," in whole and not rights
    return _Section(before, gaps[-1], len(rest), "".join(wholes).count("0"), is_grouped, scale, tuple(zip(rights, gaps, strict=False)))


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
