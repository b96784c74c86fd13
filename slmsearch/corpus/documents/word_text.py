"""The text of a Word paragraph as people see it, and what hangs on it: notes and text boxes."""

from dataclasses import dataclass, field
from typing import Any

from slmsearch.corpus.documents.formulas import DOWN, SIGNS, UP, raise_marked, write_formula
from slmsearch.corpus.documents.word_styles import WORD, Styles, is_on, value

_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_GONE = {f"{WORD}{name}" for name in ("del", "moveFrom", "instrText", "delText", "pPr", "rPr", "sdtPr", "fldData")}
_CHARACTERS = {f"{WORD}{name}": text for name, text in
    {"tab": " ", "ptab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "softHyphen": ""}.items()}  # fmt: skip
_PRIVATE = range(0xF000, 0xF100)
"""Codes of the characters of symbol fonts."""
_SYMBOLS = {"wingdings": {0x6F: "☐", 0xA8: "☐", 0x71: "☐", 0x78: "☒", 0xFD: "☒", 0xFE: "☑", 0xFC: "✓", 0xFB: "✗", 0xE0: "→", 0xA7: "▪"},
    "symbol": {0xB7: "•", 0xAE: "→", 0xB0: "°", 0xB1: "±", 0xB3: "≥", 0xA3: "≤", 0xB4: "\u00d7", 0x6D: "μ", 0xB9: "≠"}}  # fmt: skip


@dataclass(slots=True)
class Inline:
    """Contents of a paragraph, gathered while it is read."""

    styles: Styles
    parts: list[str] = field(default_factory=list)
    boxes: list[Any] = field(default_factory=list)
    """Text boxes that are anchored in it."""
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    """Mark, kind and key of each note."""
    hidden: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the text."""
        return raise_marked("".join(self.parts))


def read_inline(element: Any, into: Inline) -> None:
    """Read the contents of a paragraph, of a run, or of an element that groups them."""
    for child in element:
        tag = child.tag
        if tag == f"{WORD}t" or tag == f"{_MATH}t":
            into.parts.append("".join([child.text or "", *(each.tail or "" for each in child)]))  # an entity is a child
        elif tag in _CHARACTERS:
            into.parts.append(_CHARACTERS[tag])
        elif tag == f"{WORD}r":
            _read_run(child, into)
        elif tag == f"{WORD}txbxContent":
            into.boxes.append(child)
        elif tag == f"{COMPATIBLE}AlternateContent":
            _read_alternative(child, into)
        elif tag == f"{WORD}sym":
            into.parts.append(_symbol(child))
        elif tag in (f"{WORD}footnoteReference", f"{WORD}endnoteReference"):
            _read_note_mark(child, into)
        elif tag == f"{WORD}fldChar":
            _read_check_box(child, into)
        elif isinstance(tag, str) and tag.removeprefix(_MATH) in (*SIGNS, "d"):
            into.parts.append(_formula(child, into.styles))
        elif tag not in _GONE and isinstance(tag, str):
            read_inline(child, into)


def _read_run(run: Any, into: Inline) -> None:
    properties = run.find(f"{WORD}rPr")
    if is_on(properties, "vanish") or into.styles.is_hidden(value(properties, "rStyle") or ""):
        text = "".join(run.itertext(f"{WORD}t"))
        if text.strip():
            into.hidden.append(text)
        return
    is_raised = value(properties, "vertAlign") == "superscript"
    into.parts += [UP] * is_raised
    read_inline(run, into)
    into.parts += [DOWN] * is_raised


def _formula(element: Any, styles: Styles) -> str:
    """Return a fraction, power, root, or what stands in brackets, with its signs, which are no text of their own."""
    kind, parts = element.tag.removeprefix(_MATH), []
    for part in element:
        if not part.tag.endswith("Pr"):
            inner = Inline(styles)
            read_inline(part, inner)
            parts.append(inner.text().strip())
    if kind != "d":
        return write_formula(kind, parts)
    signs = {"begChr": "(", "sepChr": "|", "endChr": ")"}
    signs |= {name: sign.get(f"{_MATH}val", "") for name in signs for sign in element.iterfind(f"{_MATH}dPr/{_MATH}{name}")}
    return signs["begChr"] + signs["sepChr"].join(parts) + signs["endChr"]


def _read_alternative(element: Any, into: Inline) -> None:
    """Read one of several ways to show the same: the first that has text."""
    for way in element:
        before = (len(into.parts), len(into.boxes))
        read_inline(way, into)
        if (len(into.parts), len(into.boxes)) != before:
            return


def _read_note_mark(reference: Any, into: Inline) -> None:
    kind = reference.tag.removeprefix(WORD).removesuffix("Reference")
    key = reference.get(f"{WORD}id", "")
    mark = key if kind == "footnote" else f"{key} end"
    into.parts.append(f"[{mark}]")
    into.notes.append((mark, kind, key))


def _read_check_box(char: Any, into: Inline) -> None:
    box = char.find(f"{WORD}ffData/{WORD}checkBox")
    if box is not None:
        state = value(box, "checked") if value(box, "checked") is not None else value(box, "default")
        into.parts.append("☐ " if state in (None, "0", "false", "off") else "☒ ")


def _symbol(element: Any) -> str:
    try:
        code = int(element.get(f"{WORD}char", ""), 16)
    except ValueError:
        return ""
    font = element.get(f"{WORD}font", "").casefold()
    code -= 0xF000 if code in _PRIVATE else 0
    if font in _SYMBOLS:
        return _SYMBOLS[font].get(code, "")
    return chr(code) if 0x20 <= code < 0xD800 and not font.startswith(("wingdings", "webdings")) else ""
