"""reStructuredText as Markdown: titles, code, notes and the text of directives, without labels, comments, roles and tables of contents.

The reader goes line by line and knows as much of the format as text needs. Lists look alike in both formats and stay. Unknown directives,
which every site has, leave their text.
"""

import re
import textwrap

from slmsearch.corpus.documents.dialects import SHOWN_CHARS, Dropped, Include
from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.formulas import raise_text
from slmsearch.corpus.documents.front_matter import split_fields
from slmsearch.corpus.documents.rst_tables import read_csv, read_list, read_table
from slmsearch.corpus.documents.tables import grid_to_markdown
from slmsearch.corpus.documents.text import escape_heading, fenced, one_line

_UNDERLINE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}\s*")
_DIRECTIVE = re.compile(r"\s*\.\. (?:\|[^|]+\| )?([\w:+.-]+?)::(?:\s+(.*))?$")
_COMMENT = re.compile(r"\s*\.\.(?:\s|$)")
_FOOTNOTE = re.compile(r"\s*\.\. \[#?([^\]]+)\](?:\s+(.*))?$")
_OPTION = re.compile(r"\s*:([\w -]+):(?:\s+(.*))?$")
_TARGET = re.compile(r"(?s)^[~!]?(.*?)(?:\s*<[^<>]*>)?$")
_NAMED = r"(?<![^\s'\"(\[{<:/-])(?P<named>[^\W_]+(?:[_.+:-][^\W_]+)*)__?(?![^\s'\")\]}>\\/.,:;!?-])"
_OTHERS = (
    r"(?s)``(?P<code>.+?)``(?!`)|:(?P<name>[\w:+.-]+):`(?P<role>[^`]+)`|(?<![`\w])`(?P<link>[^`<>]+?)(?:\s*<[^<>`]*>)?`__?(?!\w)|"
    r"(?<!\w)_`(?P<target>[^`]+)`|`[^`]+`|\[#?(?P<note>[^\]\s]+)\]_(?!\w)|\\(?P<escaped>.)|"
)
_INLINE, _UNNAMED = re.compile(f"{_OTHERS}{_NAMED}"), re.compile(rf"{_OTHERS}(?P<named>(?!))")
_NAME_END = re.compile(r"[^\W_]__?(?!\w)")
_ESCAPED = re.compile(r"(?s)\\(?:\s|(.))")
_NUMBERED = re.compile(r"(\s*)(\(?)(#|\d+)([.)])(?=\s)")
_COUNTED = frozenset("#(0123456789")
_ITEM_MARK = re.compile(r"^\s*(?:(?:[-*+\u2022]|\(?(?:\d+|#|[A-Za-z])[.)])\s+)*")
_LINE_MARK = re.compile(r"^(\s*)\|(?: |$)")
_BLANK_LINES = re.compile(r"\n{3,}")
_INCLUDE = re.compile(r"^([ \t]*)\.\. (include|literalinclude)::[ \t]+(\S+)[ \t]*\n((?:[ \t]+:.*\n)*)", re.MULTILINE)
_REPLACED = re.compile(r"^[ \t]*\.\. \|([^|\n]+)\| replace:: (.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_LABELLED = re.compile(
    r"^\.\. _`?([^:`\n]+)`?:[ \t]*\n(?=(?:[ \t]*\n|\.\. _[^:\n]+:[ \t]*\n){0,9}"
    r"(?:([!-/:-@\[-`{-~])\2{2,}[ \t]*\n)?[ \t]*(\S.*)\n([!-/:-@\[-`{-~])\4{2,}[ \t]*$)",
    re.MULTILINE,
)
"""Label of a title."""
_TO_LABEL = re.compile(r":ref:`([^`<>\n]+)`")
_SUBSTITUTION = re.compile(r"\|([^|\s](?:[^|\n]*[^|\s])?)\|(?:__?(?!\w))?")
_OTHER_OUTPUT = re.compile(r"(?:latex|texinfo|man|text|epub|pdf|xelatex|latexpdf)")
CODE = {"code", "code-block", "sourcecode", "parsed-literal", "doctest", "testcode", "testoutput", "productionlist", "code-tab", "prompt"}
DROPPED = {"toctree", "contents", "index", "raw", "highlight", "image", "module", "currentmodule", "py:module", "py:currentmodule", "meta",
    "testsetup", "testcleanup", "replace", "unicode", "date", "sectionauthor", "moduleauthor", "autosummary", "tabularcolumns", "role",
    "default-domain", "default-role", "highlightlang"}  # fmt: skip
DESCRIPTIONS = {"function", "class", "method", "attribute", "data", "exception", "option", "envvar", "describe", "staticmethod", "program",
    "classmethod", "property", "confval", "cmdoption", "opcode", "decorator"}  # fmt: skip
SAID = {"versionadded": "New in version", "versionchanged": "Changed in version", "deprecated": "Deprecated since version",
    "seealso": "See also"}  # fmt: skip
"""Words before the text of a directive, if they differ from its name."""
UNNAMED = {"figure", "table", "csv-table", "list-table", "container", "rst-class", "centered", "rubric", "epigraph", "math", "tabs", "only",
    "tab-set", "grid", "ifconfig", "compound", "glossary", "pull-quote", "highlights", "line-block", "hlist", "cssclass"}  # fmt: skip
"""Directives whose argument and text are shown without their name."""
TITLED = {"tab", "tab-item", "group-tab", "dropdown", "details", "collapse", "card", "grid-item-card", "admonition", "topic", "sidebar"}
"""Directives whose argument is the title of their content."""
NUMBERED = {"pep": "PEP ", "rfc": "RFC ", "cve": "CVE-", "issue": "issue ", "gh": "gh-", "bpo": "bpo-"}
"""Roles that add a word before their text."""
PROSE = {"ref", "doc", "term", "abbr", "title", "title-reference", "emphasis", "strong", "numref", "guilabel", "menuselection", "sub",
    "any", "sup", "superscript", "subscript", "download"}  # fmt: skip
"""Roles whose text is not code."""


def read_rst(text: str, include: Include) -> Document:
    """Read a document.

    Args:
        text: text of the file.
        include: returns the text of an included file.
    """
    fields = split_fields(text)
    dropped: list[Dropped] = []
    whole = _with_included(fields.rest, include, dropped)
    said = {name.strip(): " ".join(value.split()) for name, value in _REPLACED.findall(whole)}
    if said:
        whole = _SUBSTITUTION.sub(lambda name: said.get(name[1], name[0]), _REPLACED.sub("", whole))
    titles = {label.casefold(): title.strip() for label, _, title, _ in _LABELLED.findall(whole)}
    if titles:
        whole = _TO_LABEL.sub(lambda role: titles.get(role[1].casefold(), role[0]), whole)
    reader = _Reader(dropped)
    content = _BLANK_LINES.sub("\n\n", "\n".join(reader.convert(_without_docinfo(whole.split("\n"), fields.metadata)))).strip("\n")
    return Document(_inline(fields.title).replace("`", ""), content, fields.metadata, dropped)


def _with_included(text: str, include: Include, dropped: list[Dropped]) -> str:
    """Insert included files; those included literally as code."""

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


def _without_docinfo(lines: list[str], metadata: dict[str, object]) -> list[str]:
    """Move the fields of a document's head (`:date: 2024-01-01`), which are first or directly under its title, to metadata or to lines."""
    start = next((number for number, line in enumerate(lines) if _OPTION.match(line) and not line[:1].isspace()), None)
    if start is None or sum(1 for line in lines[:start] if line.strip() and not _COMMENT.match(line)) > 3:
        return lines
    end, fields = start, list[tuple[str, str]]()
    while end < len(lines) and (_OPTION.match(lines[end]) or (lines[end].strip() and lines[end][:1].isspace())):
        if found := _OPTION.match(lines[end]):
            fields.append((found[1], (found[2] or "").strip()))
        else:
            fields[-1] = fields[-1][0], f"{fields[-1][1]} {lines[end].strip()}".strip()
        end += 1
    said = []
    for name, value in fields:
        if name.lower() in ("date", "author", "tags", "status") and value and name.lower() not in metadata:
            metadata[name.lower()] = value
        elif value and name.lower() != "tocdepth":  # of Sphinx
            said.append(f"{name}: {value}")
    return [*lines[:start], *said, *lines[end:]]


class _Reader:
    """Converter of a document and of the bodies of its directives."""

    def __init__(self, dropped: list[Dropped]) -> None:
        self._levels: dict[str, int] = {}
        self._dropped = dropped

    def convert(self, lines: list[str], nested: bool = False) -> list[str]:
        """Convert lines; titles within a directive, and the title of a note, stay text."""
        made, waiting, number = list[str](), list[str](), 0
        counts: dict[int, int] = {}

        def end_paragraph() -> None:
            """Add the buffered lines as one paragraph; marks may span line ends."""
            made.extend(escape_heading(line) for line in _inline("\n".join(waiting)).split("\n") if waiting)
            waiting.clear()

        while number < len(lines):
            line, following = _count_item(lines[number], counts), lines[number + 1] if number + 1 < len(lines) else ""
            title = line.strip()
            table = read_table(lines, number) if title[:2] in ("==", "+-", "+=") else None
            number += 1
            is_title = not any(map(str.strip, waiting)) and _is_title(title, line, following)
            if not title or is_title or table or _COMMENT.match(line) or title.startswith(">>>"):
                end_paragraph()
            if table is not None:
                made += ["", _table(*table[1:]), ""]
                number = table[0]
            elif is_title:
                made += [self._title(title, lines, number, nested), ""]
                number += 1
            elif _UNDERLINE.fullmatch(line):
                end_paragraph()
                made.append("")
            elif found := _FOOTNOTE.match(line):
                waiting.append(f"[{found[1]}] {found[2] or ''}".rstrip())
            elif _COMMENT.match(line):
                if title != ".." or following.strip():  # what follows an empty comment is text
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
                if title.startswith("|"):  # a line block
                    waiting[-1] = _LINE_MARK.sub(r"\1", line)
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
            is_shown = code.strip() and "hide" not in options
            return ["", *shown, fenced(code, language if language.isalnum() else ""), ""] if is_shown else []
        if name == "only" and _OTHER_OUTPUT.fullmatch(argument):
            self._dropped.append(("other output", f"only {argument}: {' '.join(' '.join(body).split())}"[:SHOWN_CHARS]))
            return []
        if name == "only":
            return ["", *self.convert(body), ""]
        if name in ("csv-table", "list-table"):
            rows = (read_csv if name == "csv-table" else read_list)(options, body)
            return ["", *([_inline(argument), ""] if argument else []), _table(*rows), ""]
        text = "\n".join(self.convert(body, nested=True)).strip("\n")
        return ["", *escape_heading(f"{_head(name, argument)}{text}".strip()).split("\n"), ""]


def _head(name: str, argument: str) -> str:
    """Return the text above the body of a directive."""
    said = _inline(argument)
    if ":" in name or name in DESCRIPTIONS:
        return f"`{argument}`\n\n" if argument else ""
    if name in UNNAMED:
        return f"{said}\n\n" if argument else ""
    if name in TITLED and argument:
        return f"{said}{'' if name == 'admonition' or said.endswith(':') else ':'}\n\n"
    return f"{SAID.get(name, name.capitalize())}: {said}\n"


def _table(rows: list[list[str]], headers: int) -> str:
    return grid_to_markdown([[_inline(cell) for cell in row] for row in rows], min(headers, len(rows)))


def _count_item(line: str, counts: dict[int, int]) -> str:
    """Number an item that counts itself (`#.`); `counts` holds the open lists by indentation."""
    if not counts and line.lstrip()[:1] not in _COUNTED:
        return line
    found = _NUMBERED.match(line)
    indent = len(line) - len(line.lstrip())
    for other in [other for other in counts if line.strip() and (other > indent or (other == indent and not found))]:
        del counts[other]
    if found is None:
        return line
    counts[indent] = counts.get(indent, 0) + 1 if found[3] == "#" else int(found[3][:9])
    return f"{found[1]}{found[2]}{counts[indent]}{line[found.start(4) :]}" if found[3] == "#" else line


def _block(lines: list[str], start: int, head: str) -> tuple[list[str], int]:
    """Return the lines indented deeper than their head, without that indentation, and the number of the next line."""
    indent = len(head) - len(_ITEM_MARK.sub("", head))
    end = start
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
        end += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return textwrap.dedent("\n".join(lines[start:end])).split("\n"), end


def _is_title(title: str, line: str, following: str) -> bool:
    """Return True for a title; four marks underline a title of any length, two one of two letters, as in docutils."""
    underline = following.rstrip()
    named = any(c.isalnum() for c in title) and not _UNDERLINE.fullmatch(line)
    return named and _UNDERLINE.fullmatch(underline + underline[-1:]) is not None and len(underline) >= min(4, len(title))


def _inline(text: str) -> str:
    """Convert inline marks to those of Markdown; links and roles leave their text."""
    if "_" in text and _NAME_END.search(text):
        return _INLINE.sub(_plain, text)
    return _UNNAMED.sub(_plain, text) if "`" in text or "\\" in text or "]_" in text else text


def _plain(mark: re.Match[str]) -> str:
    if mark["code"] is not None:
        return _code(mark["code"])
    if mark["role"] is not None:
        return _role(mark["name"], mark["role"])
    if mark["escaped"] is not None:
        return mark["escaped"].strip()  # an escaped space joins words
    text = mark["link"] or mark["target"] or mark["named"]
    if text is not None:
        return _ESCAPED.sub(r"\1", text)
    return f"[{mark['note']}]" if mark["note"] else mark[0]


def _code(text: str) -> str:
    return f"`` {one_line(text)} ``" if "`" in text else f"`{one_line(text)}`"


def _role(role: str, inside: str) -> str:
    name = role.rpartition(":")[2].lower()
    found = _TARGET.match(inside)
    text = found[1] if found else inside
    if name in NUMBERED:
        return text if inside.rstrip().endswith(">") else f"{NUMBERED[name]}{text.partition('#')[0]}"
    if name not in PROSE:
        return _code(text)
    plain = _ESCAPED.sub(r"\1", text)
    return raise_text(plain) if name in ("sup", "superscript") else plain  # 2^32 is not 232
