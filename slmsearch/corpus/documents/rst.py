"""reStructuredText as Markdown: titles, code, notes and the text of directives, without labels, comments, roles and tables of contents.

Read line by line, as much of the format as text needs; grid tables and lists look much the same in both and stay. Directives that are not
known here, as every site has some, leave their text.
"""

import csv
import re
import textwrap
from typing import Any

from slmsearch.corpus.documents.dialects import SHOWN_CHARS, Dropped, Include
from slmsearch.corpus.documents.front_matter import split_fields
from slmsearch.corpus.documents.text import escape_heading, fenced, one_line

_UNDERLINE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}\s*")
_DIRECTIVE = re.compile(r"\s*\.\. (?:\|[^|]+\| )?([\w:+.-]+?)::(?:\s+(.*))?$")
_COMMENT = re.compile(r"\s*\.\.(?:\s|$)")
_FOOTNOTE = re.compile(r"\s*\.\. \[#?([^\]]+)\](?:\s+(.*))?$")
_OPTION = re.compile(r"\s*:([\w -]+):(?:\s+(.*))?$")
_ROLE = re.compile(r":([\w:+.-]+):`([^`]+)`")
_TARGET = re.compile(r"(?s)^[~!]?(.*?)(?:\s*<[^<>]*>)?$")
_LINK = re.compile(r"(?<![`\w])`([^`<>]+?)(?:\s*<[^<>`]*>)?`__?(?!\w)")
_CODE = re.compile(r"(?s)``(.+?)``")
_REFERENCE = re.compile(r"\[#?([^\]\s]+)\]_(?!\w)")
_ESCAPED = re.compile(r"\\(\S)")
_BLANK_LINES = re.compile(r"\n{3,}")
_INCLUDE = re.compile(r"^([ \t]*)\.\. (include|literalinclude)::[ \t]+(\S+)[ \t]*\n((?:[ \t]+:.*\n)*)", re.MULTILINE)
_REPLACED = re.compile(r"^\s*\.\. \|([^|\n]+)\| replace:: (.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_SUBSTITUTION = re.compile(r"\|([^|\s](?:[^|\n]*[^|\s])?)\|(?:__?(?!\w))?")
_OTHER_OUTPUT = re.compile(r"(?:latex|texinfo|man|text|epub|pdf|xelatex|latexpdf)")
_ITEM = re.compile(r"([*-])\s+([*-])\s?(.*)$|(\s+)([*-])\s?(.*)$")
CODE = {"code", "code-block", "sourcecode", "parsed-literal", "doctest", "testcode", "testoutput", "productionlist", "code-tab", "prompt"}
DROPPED = {"toctree", "contents", "index", "raw", "highlight", "image", "module", "currentmodule", "py:module", "py:currentmodule", "meta",
    "testsetup", "testcleanup", "replace", "unicode", "date", "sectionauthor", "moduleauthor", "autosummary", "tabularcolumns", "role",
    "default-domain", "default-role", "highlightlang"}  # fmt: skip
DESCRIPTIONS = {"function", "class", "method", "attribute", "data", "exception", "option", "envvar", "describe", "staticmethod", "program",
    "classmethod", "property", "confval", "cmdoption", "opcode", "decorator"}  # fmt: skip
SAID = {"versionadded": "New in version", "versionchanged": "Changed in version", "deprecated": "Deprecated since version",
    "seealso": "See also"}  # fmt: skip
"""What a directive says before its text, where that is not its name."""
UNNAMED = {"figure", "table", "csv-table", "list-table", "container", "rst-class", "centered", "rubric", "epigraph", "math", "tabs", "only",
    "tab-set", "grid", "ifconfig", "compound", "glossary", "pull-quote", "highlights", "line-block", "hlist", "cssclass"}  # fmt: skip
"""Directives of which the argument and the text are shown without their name."""
TITLED = {"tab", "tab-item", "group-tab", "dropdown", "details", "collapse", "card", "grid-item-card", "admonition", "topic", "sidebar"}
"""Directives whose argument is the name of what they hold."""
NUMBERED = {"pep": "PEP ", "rfc": "RFC ", "cve": "CVE-", "issue": "issue ", "gh": "gh-", "bpo": "bpo-"}
"""Roles that add a word to their text."""
PROSE = {"ref", "doc", "term", "abbr", "title", "title-reference", "emphasis", "strong", "numref", "guilabel", "menuselection", "sub",
    "any", "sup", "download"}  # fmt: skip
"""Roles whose text is no code."""


def read_rst(text: str, include: Include) -> tuple[str, str, dict[str, Any], list[Dropped]]:
    """Read a document.

    Args:
        text: of the file.
        include: returns what it includes.

    Returns:
        Its title from the fields in its head, its text as Markdown, metadata, and what was dropped: kind and text.
    """
    fields = split_fields(text)
    dropped: list[Dropped] = []
    whole = _with_included(fields.rest, include, dropped)
    said = {name.strip(): " ".join(value.split()) for name, value in _REPLACED.findall(whole)}
    if said:
        whole = _SUBSTITUTION.sub(lambda name: said.get(name[1], name[0]), _REPLACED.sub("", whole))
    reader = _Reader(dropped)
    content = _BLANK_LINES.sub("\n\n", "\n".join(reader.convert(_without_docinfo(whole.split("\n"), fields.metadata)))).strip("\n")
    return _ESCAPED.sub(r"\1", _inline(fields.title).replace("`", "")), content, fields.metadata, dropped


def _with_included(text: str, include: Include, dropped: list[Dropped]) -> str:
    """Put in what is included; what is included literally, as code."""

    def included(directive: re.Match[str]) -> str:
        indent, kind, name, options = directive.groups()
        found = include(name)
        if found is None:
            dropped.append(("include", directive[0].strip()[:SHOWN_CHARS]))
            return ""
        if kind == "include" and ":literal:" not in options and ":code:" not in options:
            return textwrap.indent(found.rstrip("\n"), indent) + "\n"
        return f"{indent}::\n\n" + textwrap.indent(found.rstrip("\n"), f"{indent}   ") + "\n\n"

    return _INCLUDE.sub(included, text)


def _without_docinfo(lines: list[str], metadata: dict[str, Any]) -> list[str]:
    """Take the fields of a document's head (`:date: 2024-01-01`) for metadata; they stand alone, at its beginning or under its title."""
    start = next((number for number, line in enumerate(lines) if _OPTION.match(line) and not line[:1].isspace()), None)
    if start is None or sum(1 for line in lines[:start] if line.strip() and not _COMMENT.match(line)) > 3:
        return lines
    end = start
    while end < len(lines) and (_OPTION.match(lines[end]) or (lines[end].strip() and lines[end][:1].isspace())):
        found = _OPTION.match(lines[end])
        if found and found[1].lower() in ("date", "author", "tags", "status") and found[2]:
            metadata.setdefault(found[1].lower(), found[2].strip())
        end += 1
    return [*lines[:start], *lines[end:]]


class _Reader:
    """Converts a document and the bodies of its directives."""

    def __init__(self, dropped: list[Dropped]) -> None:
        self._levels: dict[str, int] = {}
        self._dropped = dropped

    def convert(self, lines: list[str], nested: bool = False) -> list[str]:
        """Convert lines; titles within a directive stay text, as does what a note calls itself."""
        made, waiting, number = list[str](), list[str](), 0

        def end_paragraph() -> None:
            """Add the lines that wait; marks may go over their ends."""
            made.extend(escape_heading(line) for line in _inline("\n".join(waiting)).split("\n") if waiting)
            waiting.clear()

        while number < len(lines):
            line, following = lines[number], lines[number + 1] if number + 1 < len(lines) else ""
            title = line.strip()
            number += 1
            is_title = not any(map(str.strip, waiting)) and _is_title(title, line, following)
            if not title or is_title or _COMMENT.match(line) or title.startswith(">>>"):
                end_paragraph()
            if is_title:
                made += [self._title(title, lines, number, nested), ""]
                number += 1
            elif _UNDERLINE.fullmatch(line):
                end_paragraph()
                made.append("")
            elif found := _FOOTNOTE.match(line):
                waiting.append(f"[{found[1]}] {found[2] or ''}".rstrip())
            elif _COMMENT.match(line):
                body, number = _block(lines, number, line)
                found = _DIRECTIVE.match(line)
                made += self._directive(found[1], (found[2] or "").strip(), body) if found else []
            elif title.startswith(">>>"):
                end = next((i for i in range(number, len(lines)) if not lines[i].strip()), len(lines))
                made += ["", fenced(textwrap.dedent("\n".join(lines[number - 1 : end]))), ""]
                number = end
            elif title.endswith("::"):
                body, number = _block(lines, number, line)
                if title != "::":
                    waiting.append(line.rstrip().removesuffix(" ::").removesuffix(":"))
                end_paragraph()
                made += ["", fenced("\n".join(body).strip("\n")), ""] if any(map(str.strip, body)) else []
            else:
                waiting.append(line)
                if title.startswith(("|", "+")):  # a row of a table
                    end_paragraph()
        end_paragraph()
        return made

    def _title(self, title: str, lines: list[str], number: int, nested: bool) -> str:
        if nested:
            return _inline(title)
        overlined = number > 1 and _UNDERLINE.fullmatch(lines[number - 2]) is not None and lines[number - 2][0] == lines[number][0]
        style = lines[number][0] * (2 if overlined else 1)
        heading = _inline(title).replace("`", "")
        return f"{'#' * min(6, self._levels.setdefault(style, len(self._levels) + 1))} {heading}"

    def _directive(self, name: str, argument: str, body: list[str]) -> list[str]:
        if name in DROPPED:
            if name in ("toctree", "contents", "raw"):
                text = " ".join(" ".join(body).split())
                self._dropped.append(("contents" if name != "raw" else "raw", f"{argument} {text}".strip()[:SHOWN_CHARS]))
            return []
        while argument.endswith("\\") and body:
            argument, body = f"{argument[:-1].rstrip()} {body[0].strip()}", body[1:]
        options: dict[str, str] = {}
        while body and (found := _OPTION.match(body[0])):
            options[found[1]], body = (found[2] or "").strip(), body[1:]
        if name in CODE:
            code = "\n".join(body).strip("\n")
            language, _, label = argument.partition(" ")
            shown = [f"{label}:", ""] if name == "code-tab" and label else []
            return ["", *shown, fenced(code, language if language.isalnum() else ""), ""] if code.strip() else []
        if name == "only" and _OTHER_OUTPUT.fullmatch(argument):
            self._dropped.append(("other output", f"only {argument}: {' '.join(' '.join(body).split())}"[:SHOWN_CHARS]))
            return []
        if name == "only":
            return ["", *self.convert(body), ""]
        if name in ("csv-table", "list-table"):
            rows = _csv_rows(options, body) if name == "csv-table" else _list_rows(body)
            return ["", *([_inline(argument), ""] if argument else []), *_table(rows, options), ""]
        text = "\n".join(self.convert(body, nested=True)).strip("\n")
        return ["", *escape_heading(f"{_head(name, argument)}{text}".strip()).split("\n"), ""]


def _head(name: str, argument: str) -> str:
    """Return what stands above the text of a directive."""
    said = _inline(argument)
    if ":" in name or name in DESCRIPTIONS:
        return f"`{argument}`\n\n" if argument else ""
    if name in UNNAMED:
        return f"{said}\n\n" if argument else ""
    if name in TITLED and argument:
        return f"{said}{'' if name == 'admonition' or said.endswith(':') else ':'}\n\n"
    return f"{SAID.get(name, name.capitalize())}: {said}\n"


def _csv_rows(options: dict[str, str], body: list[str]) -> list[list[str]]:
    head = [row for row in csv.reader([options["header"]], skipinitialspace=True)] if options.get("header") else []
    delimiter = {"tab": "\t", "space": " "}.get(options.get("delim", ""), options.get("delim", ",")) or ","
    if options.get("header"):
        options["header-rows"] = str(int(options.get("header-rows") or 0) + 1)
    text = "\n".join(body).strip("\n").split("\n")
    return head + [row for row in csv.reader(text, skipinitialspace=True, delimiter=delimiter[0]) if row]


def _list_rows(body: list[str]) -> list[list[str]]:
    """Read rows from a list of lists."""
    rows: list[list[str]] = []
    for line in body:
        found = _ITEM.match(line)
        if found and found[1]:
            rows.append([found[3]])
        elif found and rows and len(found[4]) <= 3:
            rows[-1].append(found[6])
        elif rows and line.strip():
            rows[-1][-1] += f" {line.strip()}"
    return rows


def _table(rows: list[list[str]], options: dict[str, str]) -> list[str]:
    """Return rows as Markdown; without a header row an empty one stands above."""
    if not rows:
        return []
    width = max(map(len, rows))
    cells = [[_inline(" ".join(cell.split())).replace("|", "\\|") for cell in [*row, *[""] * (width - len(row))]] for row in rows]
    if not int(options.get("header-rows") or 0):
        cells.insert(0, [""] * width)
    cells.insert(1, ["---"] * width)
    return [f"| {' | '.join(row)} |" for row in cells]


def _block(lines: list[str], start: int, head: str) -> tuple[list[str], int]:
    """Return the lines that are indented deeper than their head, without that indentation, and the number of the next line."""
    indent = len(head) - len(head.lstrip())
    end = start
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
        end += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return textwrap.dedent("\n".join(lines[start:end])).split("\n"), end


def _is_title(title: str, line: str, following: str) -> bool:
    """Say whether a line is a title: as docutils, four marks underline one of any length."""
    underline = following.rstrip()
    named = any(c.isalnum() for c in title) and not _UNDERLINE.fullmatch(line)
    return named and _UNDERLINE.fullmatch(underline) is not None and len(underline) >= min(4, len(title))


def _inline(text: str) -> str:
    """Bring marks within a paragraph to those of Markdown; links and roles leave their text."""
    text = _REFERENCE.sub(r"[\1]", _LINK.sub(r"\1", _ROLE.sub(_role, text)))
    return _CODE.sub(lambda code: f"`{one_line(code[1])}`", text)


def _role(role: re.Match[str]) -> str:
    name = role[1].rpartition(":")[2].lower()
    found = _TARGET.match(role[2])
    text = found[1] if found else role[2]
    if name in NUMBERED:
        return text if role[2].rstrip().endswith(">") else f"{NUMBERED[name]}{text.partition('#')[0]}"
    return text if name in PROSE else f"``{text}``"
