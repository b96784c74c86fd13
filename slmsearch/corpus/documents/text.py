"""Decoding of text files, and plain text as Markdown.

UTF-8 is tried first, and loses a few broken bytes; then Western European, the encoding of most other texts. charset-normalizer guesses the
rest, so a short text in a rare encoding may come out wrong.
"""

import re

from slmsearch.corpus.documents.skipped import NotTakenError, Reason

BOMS = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
MAX_ODD_FRAC = 0.01
"""Share of control and replacement characters above which a file is not text."""
MAX_FOREIGN_FRAC = 0.2
"""Share of bytes beyond ASCII above which a text is not Western European."""
_WESTERN_MARKS = frozenset(
    "\u20ac\u2018\u2019\u201a\u201c\u201d\u201e\u2013\u2014\u2026\u2022\u2122\u00a0\u00a3\u00a7\u00a9\u00ae\u00ab\u00bb\u00b0\u00b1\u00b2\u00b7\u00bd\u00bf\u00a1\u00d7"
)
GUESSED_BYTES = 200_000
"""Number of bytes at the start of a text from which its encoding is guessed: guessing takes seconds per megabyte."""
_ODD = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_MAGIC = {b"%PDF-": "a PDF", b"PK\x03\x04": "a ZIP archive or office document", b"\x89PNG": "a PNG image", b"\x1f\x8b": "gzip",
    b"GIF8": "a GIF image", b"\xff\xd8\xff": "a JPEG image", b"\x7fELF": "a program",
    b"\xd0\xcf\x11\xe0": "an old office document"}  # fmt: skip
_STATEMENT = re.compile(
    r"\{\{-?\s*(?:if|range|with|define|block|end|else|template|partial|return|\$\w+\s*:?=|[#/>](?!\*))[^{}]{0,9000}\}\}|"
    r"\{\{-?\s*/\*.{0,900}?\*/\s*-?\}\}|"
    r"\{%-?\s*(?:if|for|block|end\w+|else|extends|include|macro|set|import|assign|capture)[^{}]{0,900}%\}|<%[^<>]{0,900}%>",
    re.DOTALL,
)
_SHOWN_CODE = re.compile(r"<(pre|code|script|style|textarea|samp)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<[A-Za-z/!][^<>]*>")
MOST_STATEMENTS_FRAC = 0.2
"""Share of template statements in a page's text from which the page is a template."""
MAX_LOOKED_AT = 200_000
"""Bytes of a page that are searched for them."""
_SPACE = re.compile(r"[^\S\n]+")
CONTENTS_LABEL = re.compile(
    r"(?:table of )?contents|(?:on|in) this (?:page|article|section)|inhalt(?:sverzeichnis)?"
    r"|sommaire|table des mati\u00e8res|\u00edndice|contenido",
    re.IGNORECASE,
)
"""Labels above contents."""


def decode_text(data: bytes) -> str:
    """Decode a text file; line ends become `\\n`.

    Raises:
        NotTakenError: the file is empty or not text.
    """
    check_not_binary(data)
    text = decode_utf8(data)
    if text is None:
        text = _decode_other(data)
    return checked_text(text)


def decode_utf8(data: bytes) -> str | None:
    """Decode UTF-8, with or without a byte order mark; None for another encoding."""
    text = _read_utf8(data)
    return None if text is None or "\0" in text else text


def decode_info(data: bytes) -> str:
    """Decode an info file, which control characters divide: as UTF-8, else as Western European."""
    text = _read_utf8(data)
    return unify_line_ends(data.decode("cp1252", "replace")) if text is None else text


def _read_utf8(data: bytes) -> str | None:
    """Decode UTF-8 without its broken bytes; None if they are not few: at most half of the other characters beyond ASCII."""
    try:
        return unify_line_ends(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", "replace")
    broken = text.count("\ufffd")
    foreign = len(text) - len(text.encode("ascii", "ignore")) - broken
    return unify_line_ends(text.replace("\ufffd", "")) if 2 * broken <= foreign else None


def unify_line_ends(text: str) -> str:
    """Replace every line end by `\\n`, as reading a text file does."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_not_binary(data: bytes) -> None:
    """Refuse a file whose first bytes mark it as another format.

    Raises:
        NotTakenError: the file is empty, or of another kind.
    """
    if not data.strip():
        raise NotTakenError(Reason.EMPTY)
    for magic, kind in _MAGIC.items():
        if data.startswith(magic):
            raise NotTakenError(Reason.BINARY, f"it is {kind}")


def check_no_template(data: bytes) -> None:
    """Refuse a template from which a program generates pages: much of its text are statements.

    Raises:
        NotTakenError: the page is a template.
    """
    if not any(mark in data for mark in (b"{{", b"{%", b"<%")):
        return
    text = _SHOWN_CODE.sub("", data[:MAX_LOOKED_AT].decode("latin-1"))
    statements = _STATEMENT.findall(text)
    others = _TAG.sub("", _STATEMENT.sub("", text)).split()
    written = sum(map(len, statements))
    if len(statements) > 1 and written > MOST_STATEMENTS_FRAC * (written + sum(map(len, others))):
        raise NotTakenError(Reason.KIND, "a template, from which pages are made")


def checked_text(text: str) -> str:
    """Return a text without its few control characters; refuse one with many.

    Raises:
        NotTakenError: the text is binary, or has no letter or digit.
    """
    if len(_ODD.findall(text)) > MAX_ODD_FRAC * len(text):
        raise NotTakenError(Reason.BINARY, "it is binary")
    text = _ODD.sub("", text)
    if not any(c.isalnum() for c in text):
        raise NotTakenError(Reason.NO_TEXT if text.strip() else Reason.EMPTY)
    return text


def _decode_other(data: bytes) -> str:
    for bom, encoding in BOMS.items():
        if data.startswith(bom):
            return unify_line_ends(data.decode(encoding, "replace"))
    western = _decode_western(data)
    if western is not None:
        return unify_line_ends(western)
    from charset_normalizer import from_bytes

    best = from_bytes(data[:GUESSED_BYTES]).best()
    if best is None:
        raise NotTakenError(Reason.BINARY, "it is in no known encoding")
    return unify_line_ends(data.decode(best.encoding, "replace"))


def _decode_western(data: bytes) -> str | None:
    """Decode Windows-1252 if the text is plausible: few bytes beyond ASCII, all of them letters or usual marks.

    Statistical guessing fails on short texts of this kind: it reads K\u00f6ln as Chinese.
    """
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return None
    foreign = [c for c in text if c > "\x7f"]
    usual = all(c in _WESTERN_MARKS or (c.isalpha() and c not in "\u00aa\u00b5\u00ba\u0192") for c in foreign)
    return text if usual and len(foreign) < MAX_FOREIGN_FRAC * len(text) else None


def text_to_markdown(text: str) -> str:
    """Escape lines that Markdown would read as headings: a plain text is one section of paragraphs."""
    return "\n".join(escape_heading(line) for line in text.split("\n"))


def fenced(code: str, info: str = "") -> str:
    """Return a code block with a fence that occurs in none of its lines."""
    fence = "`" * (max(map(len, re.findall("`{3,}", code)), default=2) + 1)
    return f"{fence}{info}\n{code}\n{fence}"


def escape_heading(line: str) -> str:
    """Escape `#` or a fence at the start of a line, so that it stays text."""
    if line.startswith("#") or line.lstrip().startswith(("```", "~~~")):
        start = len(line) - len(line.lstrip())
        return f"{line[:start]}\\{line[start:]}"
    return line


def one_line(text: str) -> str:
    """Join a title to one line."""
    return _SPACE.sub(" ", text.replace("\n", " ")).strip()
