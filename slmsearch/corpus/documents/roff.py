"""Lines of troff with escapes, strings and conditions resolved as a terminal shows them; `man` and `mdoc` interpret the macros."""

import re
from collections.abc import Callable, Iterator

from slmsearch.corpus.documents.text import one_line

MAX_SOURCED = 20
"""Maximum number of files that one page may include."""
MAX_MADE = 20_000
"""Maximum number of lines from macros that a page defines itself."""
MAX_DEPTH = 20
"""Maximum depth of conditions with an alternative, and of long ones on one line."""
MAX_STRING_CHARS = 2000
CHARACTERS = {"aq": "'", "dq": '"', "cq": "\u2019", "oq": "\u2018", "lq": "\u201c", "rq": "\u201d", "em": "\u2014", "en": "\u2013",
    "hy": "-", "mi": "-", "bu": "\u2022", "co": "\u00a9", "rg": "\u00ae", "tm": "\u2122", "mu": "\u00d7", "+-": "\u00b1", "de": "\u00b0",
    "sc": "\u00a7", "->": "\u2192", "<-": "\u2190", "<=": "\u2264", ">=": "\u2265", "!=": "\u2260", "rs": "\\", "sl": "/", "ha": "^",
    "ti": "~", "ga": "`", "aa": "\u00b4", "at": "@", "sh": "#", "Do": "$", "ba": "|", "or": "|", "lB": "[", "rB": "]", "lC": "{", "rC": "}",
    "la": "\u27e8", "ra": "\u27e9", "Fo": "\u00ab", "Fc": "\u00bb", "ss": "\u00df", "ae": "\u00e6", "AE": "\u00c6", "o/": "\u00f8",
    "O/": "\u00d8", "dg": "\u2020", "ps": "\u00b6", "Eu": "\u20ac", "eu": "\u20ac", "Po": "\u00a3", "if": "\u221e", "**": "*", "pl": "+",
    "eq": "=", "ul": "_", "ru": "_", "14": "\u00bc", "12": "\u00bd", "34": "\u00be", "*a": "\u03b1", "*b": "\u03b2", "*p": "\u03c0",
    "*m": "\u03bc", "ci": "\u25cb", "sq": "\u25a1", "ct": "\u00a2", "Bq": "\u201e", "bq": "\u201a", "no": "\u00ac", "pc": "\u00b7",
    "a^": "^", "a~": "~", "br": "|", "bv": "|", "rn": "\u203e", "rh": "\u261e", "OK": "\u2713", "fm": "\u2032", "sd": "\u2033"}  # fmt: skip
"""Name of a special character -> the character; others combine a letter and an accent (`\\(:u`)."""
_ACCENTS = {":": "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", ",": "\u0327", "o": "\u030a", "v": "\u030c"}
_STRINGS = {"lq": "\u201c", "rq": "\u201d", "Lq": "\u201c", "Rq": "\u201d", "R": "\u00ae", "Tm": "\u2122", "Gt": ">", "Lt": "<",
    "Le": "\u2264",
    "Ge": "\u2265", "Ne": "\u2260", "Am": "&", "Ba": "|", "Pi": "\u03c0", "Aq": "'", "q": '"', "L": "\u201c", "C+": "C++"}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:(?P<quoted>[hvwlLDobNxZSHABRXYC])'(?P<inside>[^'\n]{0,200})'|[fFmMYkgVO](?:\([^\n]{2}|\[[^\]\n]{0,80}\]|[^\n])|\*(?:\((?P<two>[^\n]{2})|"
    r"\[(?P<name>[^\]\n]{0,80})\]|(?P<one>[^\n]))|n[+-]?(?:\([^\n]{2}|\[[^\]\n]{0,80}\]|[^\n])|s(?:[+-]?\d{1,2}|[+-]?\[[^\]\n]{0,80}\]|\([^\n]{2}|'[^'\n]{0,200}')|"
    r"\((?P<char>[^\n]{2})|\[(?P<long>[^\]\n]{0,80})\]|(?P<single>[^\n]))"
)
_SINGLE = {"-": "-", "e": "\\", "\\": "\\", " ": " ", "~": " ", "0": " ", "t": "\t", "'": "\u00b4", "`": "`", ".": ".", "_": "_", '"': ""}
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)\\[\"#].*$")
_CONTROL = re.compile(r"[.'][ \t]*([^\s\\]+|\\\{)?[ \t]*(.*)$")
_CONDITION = re.compile(
    r"(!?)\s*(?:([noetv])(?=[\s\\.'])|(\\n\(\.g|\\n\[\.g\])|(['\"])(?P<left>.*?)\4(?P<right>.*?)\4|\S+)\s*(?P<body>.*)$"
)
_REMEMBERS = re.compile(r"[.'][ \t]*(?:while|de|am|ds|as|so|shift|return|rm|di|da)\b")
_GIVEN = re.compile(r"\\\$([1-9*@])")
_SPLIT = re.compile(r"tab ?\((.)\)")
_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|((?:\\ |\S)+)')


def is_roff(text: str) -> bool:
    """Return True if a text is a manual page: one of its requests names the page."""
    return re.search(r"^\.[ \t]*(?:TH|Dd|Dt)[ \t]+\S", text, re.MULTILINE) is not None or text.startswith(".so ")


def split_arguments(text: str) -> list[str]:
    """Split the text after a request into arguments; quotes hold one together."""
    return [quoted.replace('""', '"') if whole.startswith('"') else plain for whole, quoted, plain in
            ((found[0], found[1] or "", found[2] or "") for found in _ARGUMENT.finditer(text))]  # fmt: skip


class Roff:
    """Lines of one page."""

    def __init__(self, include: Callable[[str], str | None]) -> None:
        """Set the function that returns an included file."""
        self._include = include
        self._strings = dict(_STRINGS)
        self._sourced = 0
        self._macros: dict[str, list[str]] = {}
        self._made = 0
        self.missing: list[str] = []
        """Included files that are missing."""

    def lines(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield request and rest of the line, or an empty request and a text line; escapes are not yet resolved."""
        waiting = list(reversed(re.sub(r"(?<!\\)\\\n", "", text).split("\n")))
        otherwise: list[bool] = []
        conditions = 0
        while waiting:
            line = _COMMENT.sub(r"\1", waiting.pop())
            found = _CONTROL.match(line) if line[:1] in (".", "'") else None
            conditions = conditions + 1 if found and found[1] in ("if", "ie", "el") else 0
            if found is None:
                yield "", line.replace("\\}", "")
                continue
            name, rest = found[1] or "", found[2]
            if name in ("de", "de1", "am", "ig"):
                self._define(name, rest, waiting)
            elif name in self._macros and self._made + len(self._macros[name]) < MAX_MADE:
                self._made += 1 + len(self._macros[name])
                waiting.extend(reversed(_filled(self._macros[name], split_arguments(rest))))
            elif name in ("ds", "ds1", "as"):
                key, _, value = rest.partition(" ")
                whole = (self._strings.get(key, "") if name == "as" else "") + self.plain(value.lstrip(" ").removeprefix('"'))
                self._strings[key] = whole[:MAX_STRING_CHARS]
            elif name in ("if", "ie", "el"):
                rest = rest if conditions <= MAX_DEPTH or len(rest) <= MAX_STRING_CHARS else ""
                self._condition(name, rest, waiting, otherwise)
            elif name == "so":
                self._source(rest.strip(), waiting)
            elif name not in ("", "\\}", "\\{", "tr", "rm", "nr", "rr", "ev", "mso", "do", "cc", "char", "warn"):
                yield name, rest.replace("\\}", "")

    def _define(self, name: str, rest: str, waiting: list[str]) -> None:
        """Read the lines of a macro. A macro with loops or state is unknown; its arguments are text."""
        names = [*split_arguments(rest), "", ""]
        end = f".{(rest.strip() if name == 'ig' else names[1]) or '.'}"
        body: list[str] = []
        while waiting and (line := waiting.pop()).replace(" ", "").rstrip() != end:
            body.append(line)
        if name in ("de", "de1") and not any(_REMEMBERS.match(line) for line in body):
            self._macros[names[0]] = body

    def _condition(self, name: str, rest: str, waiting: list[str], otherwise: list[bool]) -> None:
        """Push back the lines of a condition that holds; skip those of one that does not."""
        if name == "el":
            holds, body = bool(otherwise and otherwise.pop()), rest
        else:
            found = _CONDITION.match(rest)
            if found is None:
                return
            is_known = bool(found[2] or found[3] or found[4])
            is_equal = bool(found[4]) and self.plain(found["left"]) == self.plain(found["right"])
            holds = (found[2] in ("n", "o", "e") or bool(found[3]) or is_equal) != bool(found[1] and is_known)
            body = found["body"]
            if name == "ie":
                otherwise[:] = [*otherwise[-MAX_DEPTH:], not holds]
        if not body.startswith("\\{"):
            if holds and body:
                waiting.append(body)
            return
        taken, depth = [body[2:].lstrip()], body.count("\\{") - body.count("\\}")
        while waiting and depth > 0:
            taken.append(waiting.pop())
            depth += taken[-1].count("\\{") - taken[-1].count("\\}")
        if holds:
            waiting.extend(line for line in reversed(taken) if line.strip())

    def _source(self, name: str, waiting: list[str]) -> None:
        self._sourced += 1
        found = self._include(name) if name and self._sourced <= MAX_SOURCED else None
        if found is None:
            self.missing.append(name)
        else:
            waiting.extend(reversed(found.split("\n")))

    def plain(self, text: str) -> str:
        """Resolve the escapes of a text."""
        if "\\" not in text:
            return text

        def resolve(escape: re.Match[str]) -> str:
            if escape["single"] is not None:
                return _SINGLE.get(escape["single"], escape["single"] if escape["single"] in "$@#<>[]()*+=;" else "")
            name = escape["two"] or escape["name"] or escape["one"]
            if name is not None:
                return self._strings.get(name, "")  # resolved in its definition
            if escape["quoted"]:
                return {"C": _character(escape["inside"]), "o": escape["inside"][:1], "Z": ""}.get(escape["quoted"], "")
            character = escape["char"] or escape["long"]
            return _character(character) if character else ""

        return _ESCAPE.sub(resolve, text)


def _filled(body: list[str], arguments: list[str]) -> list[str]:
    """Return the lines of a macro with its arguments filled in."""

    def given(mark: re.Match[str]) -> str:
        return " ".join(arguments) if mark[1] in "*@" else "".join(arguments[int(mark[1]) - 1 : int(mark[1])])

    return [_GIVEN.sub(given, line.replace("\\\\", "\\"))[:MAX_STRING_CHARS] for line in body]


def _character(name: str) -> str:
    import unicodedata

    if name in CHARACTERS:
        return CHARACTERS[name]
    if found := re.fullmatch(r"u([0-9A-Fa-f]{4,6})(?:_.*)?|char(\d{1,3})", name):
        code = int(found[1], 16) if found[1] else int(found[2])
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else ""
    if len(name) == 2 and name[0] in _ACCENTS:
        return unicodedata.normalize("NFC", name[1] + _ACCENTS[name[0]])
    return ""


def read_table(lines: list[str], plain: Callable[[str], str]) -> list[str]:
    """Return the rows between the requests for a table; its formats end with a line that ends with a point."""
    head = next((at for at, line in enumerate(lines) if line.rstrip().endswith(".")), -1)
    found = _SPLIT.search(" ".join(lines[: head + 1]))
    rows: list[list[str]] = []
    cells: list[str] | None = None
    for line in lines[head + 1 :]:
        if cells is None and line.strip() in ("", "_", "=", "\\_"):
            continue
        parts = line.split(found[1] if found else "\t")
        if cells is not None and not line.startswith("T}"):
            cells[-1] += f" {line}"
            continue
        if cells is not None:
            cells += parts[1:]
        else:
            cells = parts
        if cells[-1].strip() == "T{":
            cells[-1] = ""
        else:
            rows.append([one_line(plain(cell)).replace("|", "\\|") for cell in cells])
            cells = None
    width = max(map(len, rows), default=0)
    shown = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
    return [*shown[:1], f"| {' | '.join(['---'] * width)} |", *shown[1:]] if width else []
