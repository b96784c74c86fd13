"""Metadata at the start of a text file: YAML, TOML or JSON between marks, lines of Pandoc, or fields as in a mail."""

import datetime
import json
import re
import tomllib
from typing import Any, NamedTuple

import yaml

from slmsearch.corpus.documents.text import one_line

_YAML = re.compile(r"\A---[ \t]*\n(.*?)(?:^|\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TOML = re.compile(r"\A\+\+\+[ \t]*\n(.*?)(?:^|\n)\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)
_JSON = re.compile(r"\A\{\n.*?\n\}[ \t]*\n(?=\s*\S)", re.DOTALL)
_TITLE_LINES = re.compile(r"\A% ?(\S.*)\n(?:%(.*)\n)?(?:%(.*)\n)?(?=\s*\n)")
_FIELD = re.compile(r"^([A-Za-z][\w-]*):(?:[ \t]+(.*))?$")
_KEY = re.compile(r"^([\w-]+)\s*[:=]\s*(\S.*)$", re.MULTILINE)
NAMES = {
    "categories": "tags",
    "keywords": "tags",
    "tag": "tags",
    "category": "tags",
    "created": "date",
    "published": "date",
    "authors": "author",
}
"""Other names of fields, with the name that is stored."""
KEPT = ("title", "date", "tags", "author", "description", "status", "lang", "aliases", "updated", "lastmod")
FEWEST_FIELDS = 2
MAX_C_CHARS = 3000
"""Maximum length of front matter for the C parser, in characters."""
MAX_CHARS, MAX_ITEMS = 500, 50
"""Maximum length of a value, in characters; maximum number of items of a list."""


class FrontMatter(NamedTuple):
    """Text without its front matter, and the metadata from it."""

    title: str
    metadata: dict[str, object]
    rest: str
    found: bool


def split_front_matter(text: str) -> FrontMatter:
    """Split off front matter; if it cannot be parsed, read it line by line and still leave it out of the text."""
    for mark, parse in ((_YAML, _load_yaml), (_TOML, tomllib.loads)):
        found = mark.match(text)
        if found is None:
            continue
        if mark is _YAML and not _KEY.search(found[1]):
            break  # a rule between two lines of text
        try:
            fields = parse(found[1])
        except (yaml.YAMLError, ValueError, RecursionError):
            fields = dict(_KEY.findall(found[1]))
        return _made(fields if isinstance(fields, dict) else {}, text[found.end() :])
    if found := _TITLE_LINES.match(text):  # Pandoc's: title, authors, date
        return _made(dict(zip(("title", "author", "date"), found.groups(""), strict=True)), text[found.end() :])
    if found := _JSON.match(text):
        try:
            fields = json.loads(found[0])
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            return _made(fields, text[found.end() :])
    return FrontMatter("", {}, text, False)


def _load_yaml(text: str) -> Any:
    """Load YAML with the C parser if available, ten times as fast. It does not limit depth, so it reads only short texts."""
    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if len(text) < MAX_C_CHARS else yaml.SafeLoader
    loader = kind(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def split_fields(text: str) -> FrontMatter:
    """Split off fields as in the head of a mail, one of them the title: `Title: Style guide`, with a blank line after the last."""
    lines = text.lstrip("\n").split("\n")
    fields: dict[str, str] = {}
    name, end = "", 0
    for line in lines:
        if found := _FIELD.match(line):
            name = found[1].lower()
            fields[name] = found[2] or ""
        elif name and line[:1].isspace() and line.strip():
            fields[name] += f" {line.strip()}"
        else:
            break
        end += 1
    if len(fields) < FEWEST_FIELDS or "title" not in fields or (end < len(lines) and lines[end].strip()):
        return FrontMatter("", {}, text, False)
    made = _made(dict(fields), "\n".join(lines[end:]).lstrip("\n"))
    numbered = next((f"{key.upper()} {value}" for key, value in fields.items() if key in ("pep", "rfc", "dep") and value.isdigit()), "")
    if not numbered:
        return made
    return made._replace(metadata=made.metadata | {"number": numbered}, rest=f"{numbered}\n\n{made.rest}")  # the number that others cite


def _made(fields: dict[Any, Any], rest: str) -> FrontMatter:
    metadata: dict[str, object] = {}
    for key, value in sorted(fields.items(), key=lambda field: str(field[0]).lower() in NAMES):  # a field with the name itself comes first
        name = str(key).lower()
        name = NAMES.get(name, name)
        plain = _plain(value)
        if name not in KEPT or plain in (None, "", []):
            continue
        if name == "tags" and isinstance(plain, str):
            plain = [tag for tag in re.split(r"[,;]\s*|\s+", plain) if tag]
        known = metadata.setdefault(name, plain)
        if isinstance(known, list) and isinstance(plain, list):
            metadata[name] = list(dict.fromkeys([*known, *plain]))
    title = metadata.pop("title", "")
    return FrontMatter(one_line(str(title)) if isinstance(title, str | int | float) else "", metadata, rest.lstrip("\n"), True)


def _plain(value: object) -> object:
    """Convert a value to JSON: text, numbers, and lists of them; deeper values are left out."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, str):
        return one_line(value)[:MAX_CHARS].encode("utf-8", "replace").decode()
    if isinstance(value, bool | int) or (isinstance(value, float) and value == value and abs(value) != float("inf")):
        return value
    if isinstance(value, list):
        return [plain for item in value[:MAX_ITEMS] if (plain := _plain(item)) not in (None, "") and not isinstance(plain, list)]
    return None
