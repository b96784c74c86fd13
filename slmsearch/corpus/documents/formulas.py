"""Superscripts and formulas as text, in which no two numbers become one: 10^6, 3/4."""

import re
from collections.abc import Sequence

UP, DOWN = "\x01", "\x02"
"""Marks around a superscript until its paragraph is whole; they occur in no text of an office document."""
SIGNS = {"f": "/", "sSup": "^", "sSubSup": "^", "rad": "√", "mfrac": "/", "msup": "^", "msubsup": "^", "msqrt": "√", "mroot": "√"}
"""Sign before the last part of a fraction, power or root, by its name in Office's and in HTML's formulas."""
_EXPONENT = re.compile(r"[-\u2212]?(?:\d+|[b-df-np-z])")
_TAG = re.compile(r"<sup>([^<>]*)</sup>", re.IGNORECASE)
_SIMPLE = re.compile(r"[-\u2212]?[\w.,]*|\([^()]*\)")


def raise_text(text: str) -> str:
    """Return a superscript as an exponent; the end of an ordinal number (1st, XXe, no), a word and a mark of a note stay as they are."""
    return f"^{text}" if _EXPONENT.fullmatch(text) else text


def raise_marked(text: str) -> str:
    """Return a paragraph with the superscripts between marks as exponents; those that follow one another are one."""
    joined = text.replace(DOWN + UP, "")
    return re.sub(f"{UP}([^{UP}{DOWN}]*){DOWN}", lambda found: raise_text(found[1]), joined).replace(UP, "").replace(DOWN, "")


def raise_tagged(text: str) -> str:
    """Return a line of Markdown with its `<sup>` as exponents."""
    return _TAG.sub(lambda found: raise_text(found[1]), text)


def write_formula(kind: str, parts: Sequence[str]) -> str:
    """Return a fraction, power or root of the texts of its parts."""
    *others, last = [part if _SIMPLE.fullmatch(part) else f"({part})" for part in parts] or [""]
    return "".join(others) + SIGNS[kind] + last
