"""reStructuredText as Markdown: titles, code, notes and the text of directives, without labels, comments, roles and tables of contents.

Read line by line, as much of the format as text needs; tables and lists look much the same in both and stay.
"""

import re
import textwrap

from slmsearch.corpus.documents.text import escape_heading, fenced, one_line

_UNDERLINE = re.compile(r"([=\-~^\"'`#*+:.<>_])\1{2,}\s*")
_DIRECTIVE = re.compile(r"\s*\.\. (?:\|[^|]+\| )?([\w:+.-]+?)::(?:\s+(.*))?$")
_COMMENT = re.compile(r"\s*\.\.(?:\s|$)")
_FOOTNOTE = re.compile(r"\s*\.\. (\[[^\]]+\]) (.*)$")
_OPTION = re.compile(r"\s*:[\w -]+:(?:\s|$)")
_ROLE = re.compile(r":[\w:+.-]+:`([^`]+)`")
_TARGET = re.compile(r"(?s)^[~!]?(.*?)(?:\s*<[^<>]*>)?$")
_LINK = re.compile(r"(?<![`\w])`([^`<>]+?)(?:\s*<[^<>`]*>)?`__?(?!\w)")
_CODE = re.compile(r"(?s)``(.+?)``")
_REFERENCE = re.compile(r"(\[[^\]\s]+\])_(?!\w)")
_BLANK_LINES = re.compile(r"\n{3,}")
CODE = {"code", "code-block", "sourcecode", "parsed-literal", "doctest", "testcode", "testoutput", "productionlist"}
DROPPED = {"toctree", "contents", "index", "raw", "include", "literalinclude", "highlight", "image", "module", "currentmodule", "py:module",
    "py:currentmodule", "testsetup", "testcleanup", "only", "meta", "sectionauthor", "moduleauthor", "autosummary",
    "tabularcolumns"}  # fmt: skip
DESCRIPTIONS = {"function", "class", "method", "attribute", "data", "exception", "option", "envvar", "describe"}
SAID = {"versionadded": "New in version", "versionchanged": "Changed in version", "deprecated": "Deprecated since version",
    "seealso": "See also"}  # fmt: skip
"""What a directive says before its text, where that is not its name."""
UNNAMED = {"admonition", "figure", "table", "csv-table", "list-table", "container", "rst-class", "centered", "rubric", "epigraph", "math"}
"""Directives of which the argument and the text are shown without their name."""


def rst_to_markdown(text: str) -> str:
    """Convert a document; titles get levels in order of the first use of their line."""
    return _BLANK_LINES.sub("\n\n", "\n".join(_convert(text.split("\n"), {}))).strip("\n")


def _convert(lines: list[str], levels: dict[str, int]) -> list[str]:
    made, waiting, number = list[str](), list[str](), 0

    def end_paragraph() -> None:
        """Add the lines that wait; marks may go over their ends."""
        made.extend(escape_heading(line) for line in _inline("\n".join(waiting)).split("\n") if waiting)
        waiting.clear()

    while number < len(lines):
        line, following = lines[number], lines[number + 1] if number + 1 < len(lines) else ""
        title = line.strip()
        number += 1
        if not title or _is_title(title, line, following) or _COMMENT.match(line) or title.startswith(">>>"):
            end_paragraph()
        if _is_title(title, line, following):
            overlined = number > 1 and _UNDERLINE.fullmatch(lines[number - 2]) is not None
            style = following[0] * (2 if overlined else 1)
            made.append(f"{'#' * min(6, levels.setdefault(style, len(levels) + 1))} {_inline(title)}")
            number += 1
        elif _UNDERLINE.fullmatch(line):
            made.append("")
        elif found := _FOOTNOTE.match(line):
            waiting.append(f"{found[1]} {found[2]}")
        elif _COMMENT.match(line):
            body, number = _block(lines, number, line)
            found = _DIRECTIVE.match(line)
            made += _directive(found[1], (found[2] or "").strip(), body, levels) if found else []
        elif title.startswith(">>>"):
            end = next((i for i in range(number, len(lines)) if not lines[i].strip()), len(lines))
            made += ["", fenced(textwrap.dedent("\n".join(lines[number - 1 : end]))), ""]
            number = end
        elif title.endswith("::"):
            body, number = _block(lines, number, line)
            if title != "::":
                waiting.append(line.rstrip().removesuffix(" ::").removesuffix(":"))
            end_paragraph()
            if any(map(str.strip, body)):
                made += ["", fenced("\n".join(body).strip("\n")), ""]
        else:
            waiting.append(line)
            if title.startswith(("|", "+")):  # a row of a table
                end_paragraph()
    end_paragraph()
    return made


def _block(lines: list[str], start: int, head: str) -> tuple[list[str], int]:
    """Return the lines that are indented deeper than their head, without that indentation, and the number of the next line."""
    indent = len(head) - len(head.lstrip())
    end = start
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
        end += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return textwrap.dedent("\n".join(lines[start:end])).split("\n"), end


def _directive(name: str, argument: str, body: list[str], levels: dict[str, int]) -> list[str]:
    if name in DROPPED:
        return []
    while argument.endswith("\\") and body:
        argument, body = f"{argument[:-1].rstrip()} {body[0].strip()}", body[1:]
    while body and _OPTION.match(body[0]):
        body = body[1:]
    if name in CODE:
        code = "\n".join(body).strip("\n")
        return ["", fenced(code, argument if argument.isalnum() else ""), ""] if code.strip() else []
    text = "\n".join(_convert(body, levels)).strip("\n")
    if ":" in name or name in DESCRIPTIONS:
        head = f"`{argument}`\n" if argument else ""
    elif name in UNNAMED:
        head = f"{_inline(argument)}\n" if argument else ""
    else:
        head = f"{SAID.get(name, name.capitalize())}: {_inline(argument)}"
    return ["", *escape_heading(f"{head}\n{text}".strip()).split("\n"), ""]


def _is_title(title: str, line: str, following: str) -> bool:
    underline = following.rstrip()
    named = any(c.isalnum() for c in title) and not _UNDERLINE.fullmatch(line)
    return named and _UNDERLINE.fullmatch(underline) is not None and len(underline) >= len(title)


def _inline(text: str) -> str:
    """Bring marks within a paragraph to those of Markdown; links and roles leave their text."""
    text = _ROLE.sub(lambda role: f"``{_TARGET.sub(_first, role[1])}``", text)
    text = _REFERENCE.sub(r"\1", _LINK.sub(r"\1", text))
    return _CODE.sub(lambda code: f"`{one_line(code[1])}`", text)


def _first(match: re.Match[str]) -> str:
    return str(match[1])
