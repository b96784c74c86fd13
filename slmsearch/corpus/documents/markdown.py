"""Markdown of any dialect as the project's own: every heading of CommonMark becomes a `#` line, and no other line begins with `#`.

Front matter becomes metadata, comments and the marks of generators are dropped, included files are inserted. A heading in a list item is a
heading of the page; one in a quotation or a note stays text.
"""

import html
import re
from collections.abc import Iterator
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from slmsearch.corpus.documents.dialects import Dropped, Include, convert_blocks, convert_lines, without_shortcodes
from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.formulas import raise_tagged
from slmsearch.corpus.documents.front_matter import split_front_matter
from slmsearch.corpus.documents.skipped import NotTakenError
from slmsearch.corpus.documents.text import escape_heading, fenced, one_line
from slmsearch.corpus.sections import is_fence_end, read_fence

_RULES = {
    "table": re.compile(r"\|"),
    "fence": re.compile("```|~~~"),
    "blockquote": re.compile(">"),
    "html_block": re.compile("<"),
    "reference": re.compile(r"\]:"),
    "heading": re.compile("#"),
    "lheading": re.compile(r"^[ \t>*+.)\d=-]*[=-][ \t]*$", re.MULTILINE),
}
"""Rule of the parser -> pattern of the texts it can apply to; for other texts the rule only costs time."""
_HTML_HEADING = re.compile(r"<h([1-6])\b[^<>]*>(.{0,2000}?)</h\1\s*>", re.IGNORECASE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HIDDEN = re.compile(r"<(script|style|template)\b.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_BREAK = re.compile(r"<(?:br|/p|/div|/li|/tr|/summary|/dt|/dd)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?([A-Za-z][\w.:-]*)(?:\s(?:[^<>\"']|\"[^\"]{0,4000}\"|'[^']{0,4000}')*)?/?>")
_CODE_SPAN = re.compile(r"(`[^`]+`)")
_SAID = re.compile(r"\b(number|file-name|caption)=(?:\"([^\"]*)\"|'([^']*)')")
_ATTRIBUTES = re.compile(r"\s*\{[:#.][^{}]*\}\s*$")
_IMAGE = re.compile(r"!\[([^\[\]]*)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\[\]]*\])")
_LINK = re.compile(r"\[([^\[\]]*)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\[\]]*\])")
_EMPHASIS = re.compile(r"(?<![\w\\])(\*{1,3}|_{1,3})(?=\S)(.{1,300}?)(?<=\S)\1(?!\w)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


def read_markdown(text: str, include: Include | None = None, is_mdx: bool = False) -> Document:
    """Read Markdown.

    Args:
        text: text of the file.
        include: returns the text of an included file.
        is_mdx: True if tags are components, which the text may import.
    """
    front = split_front_matter(text)
    dropped: list[Dropped] = [*front.dropped]
    whole = convert_blocks(front.rest, include or (lambda _: None), dropped, is_mdx)
    lines = whole.split("\n")
    if not is_plain(whole):
        lines = _canonical(lines, whole, dropped, front.found)
    content = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    return Document(front.title, content, front.metadata, dropped)


def is_plain(text: str) -> bool:
    """Return True for a text without need for parsing: only paragraphs and plain `#` headings."""
    return not _SUSPECT.search(text)


_SUSPECT = re.compile(
    r"[<`~{}|\\%^]|&#?\w+;|\[\[|\]:|\]\(|"
    r"^(?:#{7,}|#+[^#\s]|#+\s*$|#.*#\s*$| +#|[ \t]*(?:=+|-+|\+\+\+)[ \t]*$|>|!!!|\?\?\?|===|:::|\t|    )|^#.*[\[*_&]|^[-*+] +#|^\d+[.)] +#",
    re.MULTILINE,
)


def parse_blocks(text: str) -> list[Token]:
    """Parse the blocks of a text as CommonMark with tables."""
    return _parser(frozenset(rule for rule, mark in _RULES.items() if mark.search(text))).parse(text)


@cache
def _parser(rules: frozenset[str]) -> MarkdownIt:
    """Return a parser of blocks with these rules of `_RULES`."""
    parser = MarkdownIt("commonmark").enable("table").disable([rule for rule in _RULES if rule not in rules])
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _canonical(lines: list[str], whole: str, dropped: list[Dropped], is_site: bool) -> list[str]:
    """Rewrite lines: headings, code, HTML, and all others."""
    made: list[str] = []
    at = 0
    for start, end, kind, token in _parts(parse_blocks(whole)):
        if start < at:
            continue
        made += convert_lines(lines[at:start], dropped, is_site)
        if kind == "heading":
            heading = plain_heading(without_shortcodes(token.content, dropped))
            made += ["", f"{token.markup} {heading}", ""] if heading else []
        elif kind == "html":
            made += _html(token.content)
        elif _is_whole(lines[start:end], token.markup):
            made += lines[start:end]
        else:
            made += ["", *fenced(token.content.strip("\n"), token.info.strip().replace("`", "")).split("\n"), ""]
        at = end
    made += convert_lines(lines[at:], dropped, is_site)
    return made


def _is_whole(code: list[str], mark: str) -> bool:
    """Return True if the fence of a code block, or no fence, opens and ends where sections find it (`corpus/sections.py`)."""
    marks = [(number, found) for number, line in enumerate(code) if (found := read_fence(line))]
    ends = [number for number, found in marks if number and is_fence_end(found, mark)]
    return marks[0][0] == 0 and ends == [len(code) - 1] if mark and marks else not marks


def _parts(tokens: list[Token]) -> Iterator[tuple[int, int, str, Token]]:
    """Yield the parts that are not plain text, with their lines: headings, code, HTML; `markup` of a heading holds its `#` marks."""
    quoted = 0
    for number, token in enumerate(tokens):
        quoted += (token.type == "blockquote_open") - (token.type == "blockquote_close")
        if token.map is None:
            continue
        start, end = token.map
        if token.type in ("fence", "code_block"):
            yield start, end, "code", token
        elif token.type == "html_block" and not quoted:
            yield start, end, "html", token
        elif token.type == "heading_open" and not quoted:
            inline = tokens[number + 1]
            inline.markup = "#" * int(token.tag[1])
            yield start, end, "heading", inline


def plain_heading(text: str) -> str:
    """Return a heading without marks, links, attributes and tags."""
    text = _ATTRIBUTES.sub("", one_line(text))
    text = _LINK.sub(r"\1", _IMAGE.sub(r"\1", text))
    parts = _CODE_SPAN.split(_COMMENT.sub("", text))
    text = "".join(
        html.escape(part[1:-1]) if number % 2 else _TAG.sub("", raise_tagged(part)) for number, part in enumerate(parts)
    ).replace("`", "")
    for _ in range(2):
        text = _EMPHASIS.sub(r"\2", text)
    return one_line(_ESCAPED.sub(r"\1", html.unescape(text)))


def _html(block: str) -> list[str]:
    """Return the text of an HTML block: headings, tables, and lines."""
    block = _HIDDEN.sub("", _COMMENT.sub("", block))
    if "<table" in block.lower():
        from slmsearch.corpus.documents.html import html_to_markdown

        try:
            return ["", *html_to_markdown(block.encode())[1].split("\n"), ""]
        except NotTakenError:
            pass  # a table of links or pictures
    parts = _HTML_HEADING.split(block)
    made = _stripped(parts[0])
    for level, heading, after in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        name = plain_heading(heading)
        made += ["", f"{'#' * int(level)} {name}", ""] if name else []
        made += _stripped(after)
    return made


def _said(tag: re.Match[str]) -> str:
    """Return the text in the attributes of a book's component: `Listing 12-1, src/main.rs, its caption`."""
    said = {name: html.unescape(double or single) for name, double, single in _SAID.findall(tag[0])}
    if "caption" not in said and "file-name" not in said:
        return ""
    first = f"{tag[1]} {said['number']}" if said.get("number") else ""
    return ", ".join(filter(None, (first, said.get("file-name"), said.get("caption"))))


def _stripped(block: str) -> list[str]:
    text = html.unescape(_TAG.sub(_said, _BREAK.sub("\n", raise_tagged(block))))
    lines = [escape_heading(line.strip()) for line in text.split("\n")]
    return ["", *lines, ""] if any(lines) else [""] * block.count("\n\n")
