"""Metadata at the start of a text file: YAML, TOML or JSON between marks, lines of Pandoc, or fields as in a mail.

Fields that are no metadata (`customer: ACME`) are facts, and become lines of the text; those that only tell a site's generator how to show
the page are dropped.
"""

import datetime
import json
import re
import tomllib
from collections.abc import Iterable
from typing import Any, NamedTuple

import yaml

from slmsearch.corpus.documents.text import one_line

_YAML = re.compile(r"\A---[ \t]*\n(.*?)(?:^|\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TOML = re.compile(r"\A\+\+\+[ \t]*\n(.*?)(?:^|\n)\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)
_JSON = re.compile(r"\A\{\n.*?\n\}[ \t]*\n(?=\s*\S)", re.DOTALL)
_TITLE_LINES = re.compile(r"\A% ?(\S.*)\n(?:%(.*)\n)?(?:%(.*)\n)?(?=\s*\n)")
_FIELD = re.compile(r"^([A-Za-z][\w-]*):(?:[ \t]+(.*))?$")
_KEY = re.compile(r"""^["']?([\w-][\w .:-]*?)["']?[ \t]*(?::(?=[ \t]|$)|=)[ \t]*(.*)$""", re.MULTILINE)
_SITE = re.compile(
    r"(?:permalink|slug|draft|toc\w*|mathjax|katex|mermaid|hide|search_\w+|outline|classes|css\w*|prev|next|no_list|redirect_from|"
    r"(?:link|short)_?title|\w+_separator|(?:sidebar|hide|nav|pagination|has|redirect)[_-].*): .*|"
    r"(?:layout|template|math|comments|hidden|pin|icon|menu|orphan): \S+|weight: \d+|(?:image|cover|featured): \S*[/.:]\S*"
)
"""Fields for the generator of a site: known names, some with one word, a number or a path only."""
_SHOWN_CHARS = 200
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
    """Text without its front matter, the metadata from it, and the fields left out, as kind and text."""

    title: str
    metadata: dict[str, object]
    rest: str
    found: bool
    dropped: tuple[tuple[str, str], ...] = ()


def split_front_matter(text: str) -> FrontMatter:
    """Split off front matter; if it cannot be parsed, but has only lines of front matter, read it line by line."""
    for mark, parse in ((_YAML, _load_yaml), (_TOML, tomllib.loads)):
        found = mark.match(text)
        if found is None:
            continue
        if mark is _YAML and not _KEY.search(found[1]):
            break  # a rule between two lines of text
        try:
            fields = parse(found[1])
        except (yaml.YAMLError, ValueError, RecursionError):
            fields = _read_lines(found[1])
        if not isinstance(fields, dict):
            break  # a text between two rules
        return _made(fields.items(), text[found.end() :], is_site=True)
    if found := _TITLE_LINES.match(text):  # Pandoc's: title, authors, date
        return _made(zip(("title", "author", "date"), found.groups(""), strict=True), text[found.end() :])
    if found := _JSON.match(text):
        try:
            fields = json.loads(found[0])
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            return _made(fields.items(), text[found.end() :], is_site=True)
    return FrontMatter("", {}, text, False)


def _load_yaml(text: str) -> Any:
    """Load YAML with the C parser if available, ten times as fast. It does not limit depth, so it reads only short texts."""
    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if len(text) < MAX_C_CHARS else yaml.SafeLoader
    loader = kind(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _read_lines(text: str) -> dict[str, str] | None:
    """Return the fields of broken front matter, with other lines in the field above; None if most are others, or no name is known."""
    fields: dict[str, str] = {}
    name, others = "", 0
    for line in filter(str.strip, text.split("\n")):
        if found := _KEY.match(line):
            name = found[1]
            fields[name] = found[2].strip()
        elif name and line.lstrip().startswith("- "):
            fields[name] += f"{', ' if fields[name] else ''}{line.strip()[2:]}"
        elif name and not line.startswith("#"):
            fields[name] += f" {line.strip()}"
            others += not line[0].isspace()
        else:
            others += not line.startswith("#")
    is_known = any(name.lower() in {*NAMES, *KEPT} for name in fields)
    return fields if not others or (is_known and others <= len(fields)) else None


def split_fields(text: str) -> FrontMatter:
    """Split off fields as in the head of a mail, one of them the title: `Title: Style guide`, with a blank line after the last."""
    lines = text.lstrip("\n").split("\n")
    fields: list[tuple[str, str]] = []
    end = 0
    for line in lines:
        if found := _FIELD.match(line):
            fields.append((found[1], found[2] or ""))
        elif fields and line[:1].isspace() and line.strip():
            fields[-1] = fields[-1][0], f"{fields[-1][1]} {line.strip()}"
        else:
            break
        end += 1
    names = {name.lower() for name, _ in fields}
    if len(names) < FEWEST_FIELDS or "title" not in names or (end < len(lines) and lines[end].strip()):
        return FrontMatter("", {}, text, False)
    number = next((field for field in fields if field[0].lower() in ("pep", "rfc", "dep") and field[1].isdigit()), None)
    made = _made((field for field in fields if field != number), "\n".join(lines[end:]))
    if number is None:
        return made
    numbered = f"{number[0].upper()} {number[1]}"
    return made._replace(metadata=made.metadata | {"number": numbered}, rest=f"{numbered}\n\n{made.rest}")  # the number that others cite


def _made(fields: Iterable[tuple[Any, Any]], rest: str, is_site: bool = False) -> FrontMatter:
    metadata: dict[str, object] = {}
    lines, dropped = list[str](), list[tuple[str, str]]()
    for key, value in sorted(fields, key=lambda field: str(field[0]).lower() in NAMES):  # a field with the name itself comes first
        name = str(key).lower()
        plain = _plain(value)
        line = str(_plain(f"{key}: {', '.join(map(str, plain)) if isinstance(plain, list) else plain}"))
        if plain in (None, "", []) or (is_site and (isinstance(plain, bool) or _SITE.fullmatch(line.lower()))):
            dropped += [("field", line[:_SHOWN_CHARS] if plain else str(_plain(str(key))))] if value else []
            continue
        name = NAMES.get(name, name)
        if name == "tags" and isinstance(plain, str):
            plain = [tag for tag in re.split(r"[,;]\s*|\s+", plain) if tag]
        known = metadata.get(name)
        if isinstance(known, list) and isinstance(plain, list):
            metadata[name] = _cut(list(dict.fromkeys([*known, *plain])))
        elif name in KEPT and name not in metadata:
            metadata[name] = _cut(plain)
        else:
            lines.append(line)
    title = metadata.pop("title", "")
    title = one_line(str(title)) if isinstance(title, str | int | float) else ""
    return FrontMatter(title, metadata, "\n".join([*lines, *[""][: len(lines)], rest.lstrip("\n")]), True, tuple(dropped))


def _cut(plain: object) -> object:
    if isinstance(plain, list):
        return [_cut(item) for item in plain[:MAX_ITEMS]]
    return plain[:MAX_CHARS] if isinstance(plain, str) else plain


def _plain(value: object) -> object:
    """Convert a value to JSON: text, numbers, and lists of them; deeper values are left out."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, str):
        return one_line(value).encode("utf-8", "replace").decode()
    if isinstance(value, bool | int) or (isinstance(value, float) and value == value and abs(value) != float("inf")):
        return value
    if isinstance(value, list):
        return [plain for item in value if not isinstance(item, list) and (plain := _plain(item)) not in (None, "")]
    return None
