"""Macros of mdoc, used in BSD's manuals: each gives the meaning of a word, and may occur within the line of another."""

from dataclasses import dataclass, field

from slmsearch.corpus.documents.roff import Roff, read_table, split_arguments
from slmsearch.corpus.documents.text import escape_heading, fenced, one_line

_PAIRS = {
    "Op": "[]",
    "Bq": "[]",
    "Pq": "()",
    "Aq": "<>",
    "Brq": "{}",
    "Dq": "\u201c\u201d",
    "Sq": "\u2018\u2019",
    "Qq": '""',
    "Ql": "\u2018\u2019",
}
"""Macros that put two marks around the rest of their line."""
_OPEN = {"Oo": "[", "Bo": "[", "Po": "(", "Ao": "<", "Bro": "{", "Do": "\u201c", "So": "\u2018", "Qo": '"'}
_CLOSE = {"Oc": "]", "Bc": "]", "Pc": ")", "Ac": ">", "Brc": "}", "Dc": "\u201d", "Sc": "\u2019", "Qc": '"'}
_WORDS = {"Ad", "An", "Ar", "Cd", "Cm", "Dv", "Em", "Er", "Ev", "Fa", "Fd", "Ft", "Ic", "Li", "Ms", "No", "Pa", "Sx", "Sy",
    "Tn", "Va", "Vt", "Eo", "Ec",
    "Lb", "St", "Bf", "Ef", "Ot", "Fr", "Hf", "En", "Es"}  # fmt: skip
_SYSTEMS = {
    "Ux": "UNIX",
    "Bx": "BSD",
    "At": "AT&T UNIX",
    "Nx": "NetBSD",
    "Fx": "FreeBSD",
    "Ox": "OpenBSD",
    "Dx": "DragonFly",
    "Bsx": "BSD/OS",
}
_SILENT = {"Bk", "Ek", "Sm", "Xo", "Xc", "Db", "Rs", "Re", "Tg"}
_OTHERS = {"Fl", "Nm", "Xr", "Ns", "Pf", "Ap", "Fn", "Fo", "Fc", "In", "Lk", "Mt", "Nd", "Ta", "Ex", "Rv"}
_MACROS = {*_PAIRS, *_OPEN, *_CLOSE, *_WORDS, *_SYSTEMS, *_SILENT, *_OTHERS}
_CLOSING, _OPENING = frozenset({".", ",", ":", ";", ")", "]", "?", "!"}), frozenset({"(", "["})


@dataclass
class MdocText:
    """Text and names of a page."""

    name: str = ""
    section: str = ""
    date: str = ""
    lines: list[str] = field(default_factory=list)


class MdocReader:
    """Converter of the lines of one page."""

    def __init__(self, roff: Roff) -> None:
        """Set the resolver of escapes."""
        self._roff = roff
        self._made = MdocText()
        self._name = ""
        self._code: list[str] | None = None
        self._lists: list[str] = []
        self._joined = False  # True if the next word follows without a space

    def read(self, lines: list[tuple[str, str]]) -> MdocText:
        """Convert lines."""
        table: list[str] | None = None
        for name, rest in lines:
            if name in ("TS", "TE"):
                self._made.lines += ["", *read_table(table or [], self._roff.plain), ""]
                table = [] if name == "TS" else None
            elif table is not None:
                table += [] if name else [rest]
            elif not name:
                self._line(self._roff.plain(rest))
            elif name in ("Sh", "Ss"):
                self._end_code()
                heading = one_line(self._phrase(split_arguments(rest)))
                self._made.lines += ["", f"{'##' if name == 'Sh' else '###'} {heading}", ""] if any(map(str.isalnum, heading)) else []
            else:
                self._macro(name, rest)
        self._made.lines += read_table(table or [], self._roff.plain)
        self._end_code()
        return self._made

    def _macro(self, name: str, rest: str) -> None:
        arguments = split_arguments(rest)
        if name == "Dt":
            self._made.name, self._made.section = [*map(self._roff.plain, arguments), "", ""][:2]
        elif name == "Dd":
            self._made.date = one_line(self._roff.plain(rest)).removeprefix("$Mdocdate: ").removesuffix(" $")
        elif name == "Bl":
            self._lists.append(arguments[0] if arguments else "")
        elif name == "El":
            del self._lists[-1:]
            self._made.lines.append("")
        elif name == "It":
            self._item(arguments)
        elif name == "Bd":
            self._code = [] if {"-literal", "-unfilled"} & set(arguments) else None
            self._made.lines.append("")
        elif name == "Ed":
            self._end_code()
            self._made.lines.append("")
        elif name in ("Pp", "Lp", "sp", "br"):
            self._line("")
        elif name in ("D1", "Dl"):
            self._made.lines += ["", fenced(self._phrase(arguments)), ""]
        elif name in _MACROS and name != "Sm":
            self._line(self._phrase([name, *arguments]), is_macro=True)
        elif name.startswith("%"):
            self._line(f"{self._phrase(arguments)},")

    def _item(self, arguments: list[str]) -> None:
        kind = self._lists[-1] if self._lists else ""
        self._end_code()
        if kind in ("-bullet", "-dash", "-hyphen", "-enum", "-item"):
            self._made.lines += ["", "- "]
        elif kind == "-column":
            self._made.lines += ["", escape_heading(self._phrase(arguments).replace("\t", " | "))]
        else:
            self._made.lines += ["", escape_heading(self._phrase(arguments))]

    def _line(self, text: str, is_macro: bool = False) -> None:
        if self._code is not None:
            self._code.append(text.rstrip())
        elif (self._made.lines and self._made.lines[-1] == "- " and text) or (
            is_macro and self._made.lines and self._made.lines[-1] and text[:1] in _CLOSING
        ):
            self._made.lines[-1] += text
        elif text or is_macro is False:
            self._made.lines.append(escape_heading(text.strip()))

    def _end_code(self) -> None:
        code = "\n".join(self._code or []).strip("\n")
        self._code = None
        self._made.lines += [fenced(code), ""] if code.strip() else []

    def _phrase(self, arguments: list[str]) -> str:
        """Return the text of the macros and words on a line."""
        words: list[str] = []
        ends: list[str] = []
        self._joined = True
        at = 0
        while at < len(arguments):
            word = arguments[at]
            at += 1
            if word not in _MACROS:
                self._put(words, self._roff.plain(word))
                continue
            end = next((number for number in range(at, len(arguments)) if arguments[number] in _MACROS), len(arguments))
            own = [self._roff.plain(argument) for argument in arguments[at:end]]
            if word in _PAIRS:
                self._put(words, _PAIRS[word][0])
                self._joined = True
                ends.append(_PAIRS[word][1])
                continue
            if word == "Ns":
                self._joined = True
                continue
            at = end
            tail = len(own)
            while tail and own[tail - 1] in _CLOSING:
                tail -= 1
            self._said(words, word, own[:tail])
            for mark in own[tail:] if at < len(arguments) else []:
                self._put(words, mark)
            if at == len(arguments) and own[tail:]:
                for mark in [*reversed(ends), *own[tail:]]:
                    self._put(words, mark, is_end=True)
                ends = []
        for mark in reversed(ends):
            self._put(words, mark, is_end=True)
        return "".join(words)

    def _put(self, words: list[str], word: str, is_end: bool = False) -> None:
        if not word:
            return
        words.append(word if self._joined or is_end or word in _CLOSING or not words else f" {word}")
        self._joined = word in _OPENING

    def _said(self, words: list[str], macro: str, own: list[str]) -> None:
        """Add the text of a macro's own words."""
        if macro in _OPEN:
            self._put(words, _OPEN[macro])
            self._joined = True
            own_words = own
        elif macro in _CLOSE:
            self._put(words, _CLOSE[macro], is_end=True)
            own_words = own
        elif macro == "Fl":
            own_words = [f"-{word}" if word not in (*_OPENING, *_CLOSING, "|") else word for word in own] or ["-"]
        elif macro == "Nm":
            self._name = self._name or (own[0] if own else "")
            own_words = own or [self._name]
        elif macro == "Nd":
            own_words = ["\u2013", *own]
        elif macro == "Xr":
            own_words = [f"{own[0]}({own[1]})" if len(own) > 1 else "".join(own), *own[2:]]
        elif macro == "Fn":
            own_words = [f"{own[0]}({', '.join(own[1:])})"] if own else []
        elif macro in ("Fo", "Fc"):
            own_words = [f"{''.join(own[:1])}{'(' if macro == 'Fo' else ')'}"]
        elif macro == "In":
            own_words = [f"#include <{' '.join(own)}>"]
        elif macro == "Lk":
            own_words = [f"{' '.join(own[1:])} <{own[0]}>" if len(own) > 1 else "".join(own)]
        else:
            own_words = self._plainly(macro, own)
        for word in own_words:
            self._put(words, word)
        if macro in ("Pf", "Ap"):
            self._joined = True

    def _plainly(self, macro: str, own: list[str]) -> list[str]:
        """Return the words of a macro without marks of its own."""
        if macro == "Ar" and not own:
            return ["file", "..."]
        if macro == "Pf":
            return ["".join(own[:1]), *own[1:]]
        if macro == "Ap":
            return ["'"]
        if macro == "Ta":
            return ["|", *own]
        if macro in _SYSTEMS:
            return [_SYSTEMS[macro], *own]
        if macro == "Ex":
            return [f"The {' '.join(own[1:]) or self._name} utility exits 0 on success, and >0 if an error occurs."]
        if macro == "Rv":
            return [f"The {' '.join(own[1:]) or self._name} function returns 0 on success, and -1 if an error occurs."]
        return [] if macro in ("Bk", "Ek", "Sm", "Bf", "Ef", "An") and own[:1] and own[0].startswith("-") else own
