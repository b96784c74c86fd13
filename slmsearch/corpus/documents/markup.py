"""Text files: Markdown, reStructuredText, manuals, and plain text, whose content may be one of the first two."""

import re

from slmsearch.corpus.documents.dialects import Include
from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.front_matter import split_fields
from slmsearch.corpus.documents.info import read_info
from slmsearch.corpus.documents.man import read_man
from slmsearch.corpus.documents.markdown import is_plain, read_markdown
from slmsearch.corpus.documents.rst import read_rst
from slmsearch.corpus.documents.text import text_to_markdown

_RST = re.compile(
    r"^\.\. [\w:+.-]+::(?:\s|$)|^\.\. _[^:\n]+:|:[a-z][\w:+.-]{0,60}:`[^`\n]+`|``[^`\n]+``|::\n\n[ \t]+\S"
    r"|^([=\-~^*+#])\1{2,}\n.*\w.*\n\1{3,}$",  # a line above a title too
    re.MULTILINE,
)
_ATX = re.compile(r"^#{1,6} \S.*$", re.MULTILINE)
_UNDERLINED = re.compile(r"^(\S.*)\n([=\-~^\"'*+#])\2{2,}[ \t]*$", re.MULTILINE)
_FENCE = re.compile(r"^(?:```|~~~)", re.MULTILINE)
_LINK = re.compile(r"\[[^\[\]\n]+\]\([^()\s]+\)")
_MARKED = re.compile(r"^#|^\.\. |::$|^[A-Za-z-]{1,40}:", re.MULTILINE)
FEWEST = 2
"""Number of headings, fences and links from which a plain text counts as marked up."""


def read_markup(text: str, kind: str, include: Include) -> Document:
    """Read a text file of a kind: `markdown`, `mdx`, `rst`, `man`, `info`, or `text`, whose kind is guessed."""
    if kind in ("man", "info"):
        return (read_man if kind == "man" else read_info)(text, include)
    kind = guess_kind(text) if kind == "text" else kind
    if kind == "rst":
        return read_rst(text, include)
    if kind in ("markdown", "mdx"):
        return read_markdown(text, include, kind == "mdx")
    fields = split_fields(text)
    return Document(fields.title, text_to_markdown(fields.rest), fields.metadata, [])


def needs_no_parsing(text: str, is_markdown: bool) -> bool:
    """Return True if a text file needs no conversion, by one pass: it has no marks but plain Markdown headings."""
    return is_plain(text) and (is_markdown or not _MARKED.search(text))


def guess_kind(text: str) -> str:
    """Guess the kind of a plain text: `rst`, `markdown` or `text`; comments of a script look like headings and do not count."""
    if text.startswith("#!"):
        return "text"
    underlined = len([title for title, _ in _UNDERLINED.findall(text) if any(c.isalnum() for c in title)])
    marks = len(_RST.findall(text))
    if marks and marks + underlined >= FEWEST:
        return "rst"
    headings = [heading for heading in _ATX.findall(text) if len(heading) < 80]
    levels = {len(heading) - len(heading.lstrip("#")) for heading in headings}
    is_commented = len(headings) > len(text.split("\n")) / 4 or (levels == {1} and len(headings) > FEWEST)
    atx = 0 if is_commented else len(headings)
    return "markdown" if atx + underlined + len(_FENCE.findall(text)) // 2 + len(_LINK.findall(text)) >= FEWEST else "text"
