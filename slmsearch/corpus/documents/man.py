"""Manual pages as Markdown: the macros of man; those of mdoc are in `mdoc`.

Tables stay tables, examples become code; macros that only lay out paper are dropped.
"""

import re

from slmsearch.corpus.documents import mdoc
from slmsearch.corpus.documents.dialects import Include
from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.roff import Roff, is_roff, read_table, split_arguments
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import escape_heading, fenced, one_line

_BREAKS = {"PP", "LP", "P", "sp", "HP", "RS", "RE", "Sp", "SY", "YS"}
_CODE_BEGINS, _CODE_ENDS = {"nf", "EX", "Vb", "CS", "DS"}, {"fi", "EE", "Ve", "CE", "DE"}
_FONTS = {"B", "I", "SM", "SB", "R", "CW"}
_ALTERNATING = {"BR", "RB", "BI", "IB", "IR", "RI"}
_NO_TEXT = {"IX", "PD", "DT", "UC", "AT", "AS", "VS", "VE", "BS", "BE", "UE", "ME", "TH", "PU", "XX", "EQ", "EN", "Id"}
_BULLETS = frozenset("\u2022*o-\u00b7+\u25cb\u25a1\u2013\u2014")
_NAMES = re.compile(r"## [^\n]+\n+((?:[^\n]+\n)*?[^\n]*?)\s[-\u2013\u2014]+\s+([^\n]+(?:\n[^\n]+)*)")
"""Start of a page: names, a dash, and a description."""
_LOOSE = re.compile(r"[\s_-]+")


def read_man(text: str, include: Include) -> Document:
    """Read a manual page; its title has name and section (`ls(1)`).

    Raises:
        NotTakenError: the text is no manual page; files of any kind end in a number.
    """
    if not is_roff(text):
        raise NotTakenError(Reason.KIND, "no page of a manual")
    roff = Roff(include)
    lines = list(roff.lines(text))
    is_mdoc = any(name in ("Dd", "Dt") for name, _ in lines)
    made = mdoc.MdocReader(roff).read(lines) if is_mdoc else _ManReader(roff).read(lines)
    content = re.sub(r"\n{3,}", "\n\n", "\n".join(made.lines)).strip()
    title, metadata = _named(made, content)
    return Document(title, f"# {title}\n\n{content}" if title else content, metadata, [("include", name) for name in roff.missing])


def _named(made: "mdoc.MdocText", content: str) -> tuple[str, dict[str, str]]:
    """Return a page's title, spelled as in its first section, and its metadata."""
    found = _NAMES.match(content)
    names, description = (one_line(found[1]), one_line(found[2])) if found else ("", "")
    wanted = _LOOSE.sub("", made.name.casefold())
    alike = next((name for name in (*re.split(r",\s*", names), *names.split()) if _LOOSE.sub("", name.casefold()) == wanted), made.name)
    metadata = {key: value for key, value in (("date", made.date), ("description", description)) if value}
    return f"{alike}({made.section})" if alike and made.section else alike, metadata


class _ManReader:
    """Converter of the lines of one page."""

    def __init__(self, roff: Roff) -> None:
        self._roff = roff
        self._made = mdoc.MdocText()
        self._code: list[str] | None = None
        self._waiting = ""  # TP: the next line is a term; SH, SS: a heading
        self._url = ""

    def read(self, lines: list[tuple[str, str]]) -> mdoc.MdocText:
        """Convert lines."""
        number = 0
        while number < len(lines):
            name, rest = lines[number]
            number += 1
            if name == "TS":
                end = next((at for at in range(number, len(lines)) if lines[at][0] == "TE"), len(lines))
                self._made.lines += ["", *read_table([line for kind, line in lines[number:end] if not kind], self._roff.plain), ""]
                number = end + 1
            elif name:
                self._request(name, rest)
            else:
                self._text(rest)
        self._end_code()
        return self._made

    def _request(self, name: str, rest: str) -> None:
        arguments = [self._roff.plain(argument) for argument in split_arguments(rest)]
        if name == "TH":
            self._made.name, self._made.section, self._made.date = (one_line(value) for value in [*arguments, "", "", ""][:3])
        elif name in ("SH", "SS"):
            self._end_code()
            self._waiting = "" if arguments else name
            if arguments:
                self._heading(name, " ".join(arguments))
        elif name in _CODE_BEGINS:
            self._code = [] if self._code is None else self._code
        elif name in _CODE_ENDS:
            self._end_code()
        elif name in _BREAKS or name in ("TP", "TQ", "IP", "br"):
            self._paragraph(name, arguments)
        elif name in ("UR", "MT"):
            self._url = arguments[0] if arguments else ""
        elif name == "MR":
            self._add("{}({}){}".format(*[*arguments, "", "", ""][:3]))
        elif name == "OP":
            self._add(f"[{' '.join(arguments)}]")
        elif name in _ALTERNATING:
            self._add("".join(arguments))
        elif name in _FONTS or (name[0].isupper() and name not in _NO_TEXT and self._made.lines):  # before the first section: set-up only
            self._add(" ".join(arguments))
            if not arguments and name in _FONTS:
                self._waiting = self._waiting or ""
        if name in ("UE", "ME") and self._url:
            self._add(f"<{self._url}>{arguments[0] if arguments else ''}")
            self._url = ""

    def _paragraph(self, name: str, arguments: list[str]) -> None:
        if self._code is not None:
            self._code += [""] if name in ("sp", "PP", "LP", "P", "IP", "TP") else []
            self._code += arguments[:1] if name == "IP" else []
            return
        self._made.lines += [""] if name != "br" else []
        if name in ("TP", "TQ"):
            self._waiting = "TP"
        elif name == "IP" and arguments and arguments[0].strip():
            mark = arguments[0].strip()
            self._made.lines.append("- " if mark in _BULLETS else escape_heading(mark))
        elif name == "SY":
            self._add(" ".join(arguments))

    def _text(self, line: str) -> None:
        plain = self._roff.plain(line)
        if self._code is not None:
            self._code.append(plain.rstrip())
        elif not plain.strip():
            self._made.lines.append("")
        else:
            self._add(plain.strip() if line[:1] != " " else plain.rstrip())

    def _add(self, text: str) -> None:
        if self._waiting in ("SH", "SS"):
            self._heading(self._waiting, text)
        elif self._code is not None:
            self._code.append(text)
        elif self._made.lines and self._made.lines[-1] == "- ":
            self._made.lines[-1] += text.strip()
        else:
            self._made.lines.append(escape_heading(text))
        self._waiting = ""

    def _heading(self, name: str, text: str) -> None:
        self._waiting = ""
        if any(map(str.isalnum, text)):
            self._made.lines += ["", f"{'##' if name == 'SH' else '###'} {one_line(text)}", ""]

    def _end_code(self) -> None:
        code = "\n".join(self._code or []).strip("\n")
        self._code = None
        self._made.lines += ["", fenced(code), ""] if code.strip() else []
