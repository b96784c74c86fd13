"""The pages that a question may use: those of a folder, of a file, with a tag, or of a time. Nothing outside is found or read."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date
from unicodedata import normalize

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.judge.values import read_values

MAX_CHARS = 500
"""Longest value of a restriction, in characters."""
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_STAMP = re.compile(r"([0-9]{4})-?([0-9]{2})-?([0-9]{2})(?![0-9-])")
"""A date at the beginning of a time."""
_DAY_FIRST = re.compile(r"([0-9]{1,2})\. ?([0-9]{1,2})\. ?([0-9]{4})")
"""A date with points, whose order is never another; with slashes or dashes it may be."""
_NAMED = re.compile(r"(?:[a-z]+\.?,? )?(?:([0-9]{1,2})(?:\.|er|o)? ?(?:de )?)?([a-z]{3,})\.? (?:del? )?([0-9]{4})")
"""A date with the name of its month, as it is written in German, French, Spanish and Italian."""
_MONTHS = (
    "januar janner janvier enero gennaio", "februar fevrier febrero febbraio", "marz maerz mrz mars marzo", "april avril abril aprile",
    "mai mayo maggio", "juni juin junio giugno", "juli juillet julio luglio", "august aout agosto",
    "september septembre septiembre settembre", "oktober octobre octubre ottobre", "november novembre noviembre",
    "dezember decembre diciembre dicembre",
)  # fmt: skip
"""Names of the months without accents; `read_values` reads the English ones."""
_CLOCK = re.compile(r"(?:,? |T)(?:um |at )?[0-9]{1,2}:[0-9]{2}.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scope:
    """Restrictions; empty ones admit every page, and a page must pass all others."""

    folder: str = ""
    """Folder of the page's file, in the folder of documents; its sub-folders count."""
    file: str = ""
    """Path of the page's file in the folder of documents, or the page's id."""
    tag: str = ""
    """One of the page's tags, in any case."""
    since: str = ""
    """First date, as 2025, 2025-03 or 2025-03-31."""
    until: str = ""
    """Last date, in the same form; a year or month counts to its end."""

    def admits(self, page: Page) -> bool:
        """Return whether a page passes. One without a date does not pass where a time is given, nor one without a path a folder."""
        path = _plain(str(page.metadata.get("path", "")))
        dated = read_date(page.metadata.get("date")) if self.since or self.until else ""
        return all(
            (
                not self.folder or path.startswith(f"{self.folder}/"),
                not self.file or self.file in (path, page.id),
                not self.tag or self.tag in _tags(page),
                not self.since or dated >= self.since,
                not self.until or (dated != "" and dated[: len(self.until)] <= self.until),
            )
        )

    def hidden(self, library: Library) -> frozenset[str]:
        """Return the ids of all sections of the pages that do not pass."""
        return frozenset(section.id for page in library.pages() if not self.admits(page) for section in library.sections(page.id))

    def __str__(self) -> str:
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{name} {value}" for name, value in given if value)


EVERYWHERE = Scope()
"""Scope without restrictions."""


def read_scope(given: Mapping[str, object]) -> Scope:
    """Read the restrictions among the fields of a request; other fields are ignored, as are empty values.

    Raises:
        ValueError: a value is no text, too long, or no date, or the dates are in the wrong order; the message names the field.
    """
    found = dict[str, str]()
    for name in (field.name for field in fields(Scope)):
        value = given.get(name)
        if value is None:
            continue
        if not isinstance(value, str) or len(value) > MAX_CHARS:
            raise ValueError(f"{name}: it is a text of at most {MAX_CHARS} characters")
        found[name] = value.strip()
        if name in ("since", "until") and found[name] and not _is_date(found[name]):
            raise ValueError(f"{name}: {found[name][:20]!r} is no date; write 2025, 2025-03 or 2025-03-31")
    since, until = found.get("since", ""), found.get("until", "")
    if until and since[: len(until)] > until:
        raise ValueError(f"until: {until} is before {since}")
    folder, file = (_plain(found.get(name, "")) for name in ("folder", "file"))
    return Scope(folder, file, found.get("tag", "").casefold(), since, until)


def _is_date(text: str) -> bool:
    if (match := _DATE.fullmatch(text)) is None:
        return False
    with suppress(ValueError):
        return bool(date(int(match[1]), int(match[2] or 1), int(match[3] or 1)))
    return False


def _plain(path: str) -> str:
    """Return a path without `./` and outer slashes, its letters in the composed form: systems of files differ in theirs."""
    return normalize("NFC", "/".join(part for part in path.split("/") if part not in ("", ".")))


def read_date(said: object) -> str:
    """Return a page's date as 2025-03-31, 2025-03 or 2025, as far as it is known; empty for none."""
    text = _CLOCK.sub("", str(said).strip()[:MAX_CHARS]) if said else ""
    iso = text
    if found := _STAMP.match(text):
        iso = "-".join(found.groups())
    elif found := _DAY_FIRST.fullmatch(text):
        iso = f"{found[3]}-{found[2]:0>2}-{found[1]:0>2}"
    elif found := _NAMED.fullmatch(_plain_letters(text)):
        month = next((number for number, names in enumerate(_MONTHS, 1) if f" {found[2]}" in f" {names}"), 0)
        iso = f"{found[3]}-{month:02}" + (f"-{found[1]:0>2}" if found[1] else "")
    if _is_date(iso):
        return iso
    for kind, *parts in read_values(text):
        if kind == "date" and parts[1] != "0":
            return "-".join(part.zfill(2) for part in parts[1:] if part != "0")
    return ""


def _plain_letters(text: str) -> str:
    from text_unidecode import unidecode

    return str(unidecode(text)).lower()


def _tags(page: Page) -> set[str]:
    tags = page.metadata.get("tags", ())
    given = re.split(r"[,;]", tags) if isinstance(tags, str) else tags if isinstance(tags, list | tuple) else ()
    return {str(tag).strip().casefold() for tag in given}
