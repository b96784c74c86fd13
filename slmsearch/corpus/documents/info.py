"""Info files of Texinfo as Markdown: nodes in order, without their heads, menus and the table of nodes."""

import re

from slmsearch.corpus.documents.dialects import SHOWN_CHARS, Dropped, Include
from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import checked_text, escape_heading, one_line

LEVELS = {"*": 1, "=": 2, "-": 3, ".": 4}
"""Mark under a heading -> its level."""
MAX_PARTS = 200
_NODE = re.compile(r"^File: [^\n]*?Node: [^\n]*\n", re.MULTILINE)
_PART = re.compile(r"^([^\s:/]+): \d+$", re.MULTILINE)
_ENTRY = re.compile(r"^\* [^\n]+?:(?::|[ \t])")
_UNDERLINE = re.compile(r"([*=.-])\1*$")
_REFERENCE = re.compile(r"\*[Nn]ote[ \n]+([^:]+?)(?:::|:[ \n]+(?:\([^()]*\))?[^.,:]*(?=[.,:]))")
_TAG = re.compile(r"\x00\x08\[[^\]]*\x00\x08\]")
_TITLE = re.compile(r"\A#+ (?!\d+(?:\.\d+)* |Appendix )(.+)$", re.MULTILINE)


def read_info(text: str, include: Include) -> Document:
    """Read an info file and its parts, if it is divided; its title is that of its top node.

    Raises:
        NotTakenError: the text is no info file.
    """
    nodes = text.split("\x1f\n")
    dropped: list[Dropped] = []
    if not any(_NODE.match(node.lstrip("\f\n")) for node in nodes):
        indirect = next((node for node in nodes if node.startswith("Indirect:")), "")
        nodes = []
        for name in _PART.findall(indirect)[:MAX_PARTS]:
            part = include(name)
            nodes += (part or "").split("\x1f\n")[1:]
            dropped += [("include", name)] if part is None else []
    made = [_node(node.lstrip("\f\n"), dropped) for node in nodes if _NODE.match(node.lstrip("\f\n"))]
    content = re.sub(r"\n{3,}", "\n\n", "\n\n".join(filter(None, made))).strip("\n")
    if not made:
        raise (
            NotTakenError(Reason.BROKEN, "its parts are not beside it")
            if dropped
            else NotTakenError(Reason.KIND, "no info file of Texinfo")
        )
    title = _TITLE.match(content)
    return Document(title[1] if title else "", checked_text(content), {}, dropped)


def _node(node: str, dropped: list[Dropped]) -> str:
    """Return the text of a node; an index node has none."""
    body = _NODE.sub("", node, count=1)
    if "\x08[index" in body:
        dropped.append(("index", " ".join(_TAG.sub("", body).split())[:SHOWN_CHARS]))
        return ""
    lines, made = _without_menu(_TAG.sub("", body).split("\n"), dropped), list[str]()
    for number, line in enumerate(lines):
        under = _UNDERLINE.match(lines[number + 1]) if number + 1 < len(lines) else None
        if under and line.strip() and not line[:1].isspace() and abs(len(under[0]) - _width(line)) <= 1:
            made += ["", f"{'#' * LEVELS[under[1]]} {one_line(line)}", ""]
            lines[number + 1] = ""
        else:
            made.append(escape_heading(line))
    return _REFERENCE.sub(r"\1", "\n".join(made)).strip("\n")


def _width(line: str) -> int:
    import unicodedata

    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def _without_menu(lines: list[str], dropped: list[Dropped]) -> list[str]:
    """Remove menus: their entries, and the headings between them."""
    start = next((number for number, line in enumerate(lines) if line.startswith("* Menu:")), None)
    if start is None:
        return lines
    last = max((number for number in range(start, len(lines)) if _ENTRY.match(lines[number])), default=start)
    end = next((number for number in range(last + 1, len(lines)) if not lines[number][:1].isspace()), len(lines))
    dropped.append(("contents", " ".join(" ".join(lines[start:end]).split())[:SHOWN_CHARS]))
    return [*lines[:start], *lines[end:]]
