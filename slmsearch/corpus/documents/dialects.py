"""Dialects of Markdown, converted to plain Markdown: Obsidian, mdBook, Hugo, Jekyll, MkDocs, Docusaurus, MyST, kramdown, MDX."""

import html
import re
from collections.abc import Callable, Iterator

from slmsearch.corpus.documents.formulas import raise_tagged
from slmsearch.corpus.documents.front_matter import split_front_matter
from slmsearch.corpus.documents.text import escape_heading, fenced
from slmsearch.corpus.sections import is_fence_end, read_fence

Dropped = tuple[str, str]
"""Kind and text of an omitted part."""
Include = Callable[[str], str | None]
"""Function that returns the text of a file beside the document; None if the folder does not hold it."""
SHOWN_CHARS = 200
MAX_INCLUDED = 200
"""Maximum number of files that one document may include."""
_INCLUDE = re.compile(r"\{\{\s*#(?:include|rustdoc_include|playground|rust_playground)\s+([^\s{}]+)[^{}]*\}\}")
_MDBOOK = re.compile(r"\{\{\s*#[a-z_]+[^{}]*\}\}")
_COMMENT = re.compile(
    r"(`[^`\n]*`)|<!--.*?-->|^[ \t]*%%[ \t]*\n(?:.*?\n)??[ \t]*%%[ \t]*$|(?<![A-Za-z0-9_\"'%\\])%%(?:(?!\n[ \t]*\n).){0,2000}?%%(?!\w)",
    re.DOTALL | re.MULTILINE,
)
"""Code, which stays, and comments: Obsidian's begin a word and keep to a paragraph, or both their marks have a line of their own."""
_ANCHOR = re.compile(r"^.*\bANCHOR(?:_END)?:.*\n?", re.MULTILINE)
_MARKED = r"^[^\n]*\bANCHOR:[ \t]*{name}[ \t]*\n(.*?)^[^\n]*\bANCHOR_END:[ \t]*{name}[ \t]*$"
_DIRECTIVE = re.compile(r"^\{([\w:+.-]+)\}\s*(.*)$")
_OPTION = re.compile(r"^(?::[\w-]+:.*|---)$")
_CONTAINER = re.compile(r"^\s*:{3,}\s*(?:\{?([\w:+-]+)\}?(?:\[([^\]]*)\])?(.*))?$")
_MKDOCS = re.compile(r"^(\s*)(?:!!!|\?\?\?\+?)\s+([\w -]+?)(?:\s+\"(.*)\")?\s*$")
_MKDOCS_TAB = re.compile(r"^(\s*)===[!+]?\s+\"(.*)\"\s*$")
_CALLOUT = re.compile(r"^(\s*>\s*)\[!([\w-]+)(?:\|[^\]]*)?\][+-]?\s*(.*)$")
_EMBED = re.compile(r"!\[\[([^\[\]|#]*)(?:#\^?([^\[\]|]*))?(?:\|[^\[\]]*)?\]\]")
_WIKI = re.compile(r"\[\[([^\[\]|]+)(?:\|([^\[\]]+))?\]\]")
_ROLE = re.compile(r"\{[\w:+.-]+\}`([^`<>]*?)(?:\s*<[^<>`]*>)?`")
_SITE_INCLUDE = re.compile(r"\{\{\s*[<%]\s*(?:include|readfile|readFile)\s+(?:file=)?\"([^\"]+)\"[^{}]*[>%]\s*\}\}")
_CODE_PAIR = re.compile(
    r"\{\{\s?<\s?(highlight|code|code-toggle|codeblock)\b\s?(\w*)(?![\w=])[^{}]*(?<!/)>\s?\}\}\n?(.{0,20000}?)\n?\{\{\s?<\s?/\s?\1\s?>\s?\}\}"
    r"|\{%-?\s?(highlight|codeblock)\s+(\w*)[^%]*%\}\n?(.{0,20000}?)\n?\{%-?\s?end\4\s?-?%\}",
    re.DOTALL,
)
_SHORTCODE = re.compile(r"(\]\(\s*)?(?:\{\{\s?(?:<|%)\s?(?!/\*)(.{0,500}?)(?:>|%)\s?\}\}|\{%(.{0,500}?)%\})")
_STRETCHED = re.compile(
    r"\{\{\s?[<%](?!\s?/?\*)[^{}\n]*\n[^{}]{0,1000}[>%]\s?\}\}"
    r"|</?[A-Za-z][\w.:-]*(?:\s+[\w:@.-]+(?:\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>=`]+))?)*\s*/?>"
)
"""Shortcode over several lines, or a tag."""
_OPEN_MARK = re.compile(r"(?:<|\{\{)[^<>{}\n]*\n")
_BLOCK_MARK = re.compile(r"```|~~~|^\s*(?:!!!|\?\?\?|===|:::)")
_BLOCK_ID = re.compile(r"(?:^|\s+)\^(?=[\d-]*[A-Za-z])[A-Za-z\d-]{2,}\s*$")
_MARK = re.compile(r"[\[{<&^]|^\(|[tT][oO][cC]")
"""Characters that mark a line as not plain."""
_SHOWN = re.compile(r"\b(?:caption|title|text|label|summary)\s*=\s*(?:\"(?![a-z]+:)([^\"]+)\"|'(?![a-z]+:)([^']+)')")
_TERM = re.compile(r"\s*[\w-]*(?:term|gloss|abbr)[\w-]*\s+\"?([^\"=/]+?)\"?[\s/]*")
_VERSION = re.compile(r"\s*([a-z][a-z-]*)\s+\"?(v?\d+(?:\.\d+)+)\"?[\s/]*")
_ESCAPED_SHORTCODE = re.compile(r"\{\{\s?([<%])/\*(.{0,500}?)\*/([>%])\s?\}\}")
_LIQUID = re.compile(r"\{\{(?![#<%]).{0,500}?\}\}")
_IAL = re.compile(r"\s*\{:[^{}]*\}\s*$")
_ATTRIBUTES = re.compile(r"\s*\{[#.][\w: .#=\"'-]*\}\s*$")
_TOC = re.compile(r"^\s*(?:\[TOC\]|\[\[_?TOC_?\]\]|\$\{toc\}|- TOC|\* TOC|1\. TOC)\s*$", re.IGNORECASE)
_TARGET = re.compile(r"^\([\w .:-]+\)=\s*$")
_DEFINITION = re.compile(r" {0,3}\[(?!\^)([^\]]+)\]:\s+<?(\{\{[^{}]*\}\}|\S+?)>?(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*$")
_REFERENCE = re.compile(r"\[([^\[\]]+)\]\[([^\[\]]*)\]")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:a|abbr|acronym|b|bdi|big|center|cite|del|dfn|details|div|em|figcaption|figure|font|i|iframe|img|ins|kbd|mark|p|picture|q|s|samp|section|small|"
    r"source|span|strike|strong|sub|summary|sup|time|tt|u|var|video|wbr)\b(?:\s[^<>]*)?/?>|<!--.*?-->",
    re.IGNORECASE,
)
_CODE_TAG = re.compile(r"<code\b[^<>]*>([^<`]*)</code>|</?code\b[^<>]*>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z]\w{1,31});")
_COMPONENT = re.compile(r"</?(?:[A-Z][\w.]*)\b[^<>]*/?>|</?>|\{/\*.*?\*/\}")
_LABEL = re.compile(r"""\b(?:label|title|summary)=(?:"([^"]+)"|'([^']+)')""")
_MODULE_LINE = re.compile(
    r"^(?:import\s.+\sfrom\s+['\"].+['\"];?|import\s+['\"].+['\"];?|export\s+(?:const|default|function|let|var|\{).*)$"
)
_IMAGE_SUFFIX = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|bmp|pdf|mp[34]|webm|wav|canvas|base)$", re.IGNORECASE)


def convert_blocks(text: str, include: Include, dropped: list[Dropped], is_mdx: bool) -> str:
    """Convert constructs over several lines: included files, comments, directives, notes, tabs."""
    if "{{" in text or "{%" in text:
        text = _with_included(text, include, dropped)
    if _OPEN_MARK.search(text):
        text = _outside_code(text, lambda part: _STRETCHED.sub(_on_one_line, part))
    if "<!--" in text or "%%" in text:
        text = _outside_code(text, lambda part: _COMMENT.sub(lambda found: found[1] or "", part))
    if "][" in text:
        text = _with_targets(text)
    lines = list(_unfenced_directives(text.split("\n")))
    if is_mdx:
        lines = list(_without_modules(lines, dropped))
    return "\n".join(lines)


def _on_one_line(mark: re.Match[str]) -> str:
    return mark[0] if "\n\n" in mark[0] else " ".join(mark[0].split("\n"))


def _with_targets(text: str) -> str:
    """Replace links by reference, whose definitions are elsewhere, by inline links."""
    targets: dict[str, str] = {}
    for line in text.split("\n"):
        if found := _DEFINITION.fullmatch(line):
            targets.setdefault(found[1].casefold(), found[2])

    def linked(link: re.Match[str]) -> str:
        target = targets.get((link[2] or link[1]).casefold())
        return link[0] if not target else link[1] if target.startswith("{{") else f"[{link[1]}]({target})"

    return _outside_code(text, lambda part: _REFERENCE.sub(linked, part)) if targets else text


def _with_included(text: str, include: Include, dropped: list[Dropped]) -> str:
    count = 0

    def included(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        name, *wanted = match[1].split(":")
        found = include(name) if count <= MAX_INCLUDED else None
        if found is None:
            dropped.append(("include", match[0][:SHOWN_CHARS]))
            return ""
        return _ANCHOR.sub("", _wanted_part(found, wanted)).rstrip("\n")

    def included_page(match: re.Match[str]) -> str:
        return split_front_matter(included(match)).rest

    text = _INCLUDE.sub(included, text)
    return _outside_code(text, lambda part: _CODE_PAIR.sub(_paired_code, _MDBOOK.sub("", _SITE_INCLUDE.sub(included_page, part))))


def _paired_code(pair: re.Match[str]) -> str:
    """Return the text between two shortcodes for code as a code block."""
    code, language = pair[3] if pair[3] is not None else pair[6], pair[2] or pair[5] or ""
    return f"\n{fenced(code.strip(chr(10)), language if language.isalnum() else '')}\n" if code.strip() else ""


def _wanted_part(text: str, wanted: list[str]) -> str:
    """Return the part of an included file between its anchors, or between two line numbers that count from 1."""
    if not wanted or not any(wanted):
        return text
    if wanted[0] and not wanted[0].isdigit():
        found = re.search(_MARKED.format(name=re.escape(wanted[0])), text, re.MULTILINE | re.DOTALL)
        return found[1] if found else text
    start = int(wanted[0] or 1)
    end = (int(wanted[1]) if wanted[1].isdigit() else None) if len(wanted) > 1 else start
    return "\n".join(text.split("\n")[start - 1 : end])


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply a change to the parts of a text outside code fences."""
    if "```" not in text and "~~~" not in text:
        return change(text)
    made, waiting, fence = list[str](), list[str](), ""
    for line in text.split("\n"):
        mark = read_fence(line)
        if not fence and mark:
            made += [change("\n".join(waiting))] if waiting else []
            waiting, fence = [], mark["fence"]
            made.append(line)
        elif fence:
            made.append(line)
            fence = "" if mark and is_fence_end(mark, fence) else fence
        else:
            waiting.append(line)
    return "\n".join([*made, *([change("\n".join(waiting))] if waiting else [])])


def _unfenced_directives(lines: list[str], is_body: bool = False) -> Iterator[str]:
    """Yield lines in which MyST's directives, MkDocs' notes and tabs and `:::` containers are plain blocks; code ends with a body."""
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if not _BLOCK_MARK.search(line):
            yield line
        elif mark := read_fence(line):
            end = _fence_end(lines, number, mark["fence"])
            body, directive = lines[number:end], _DIRECTIVE.match(mark["info"].strip())
            number = end + 1
            if directive is None or directive[1] in ("code", "code-block", "code-cell", "sourcecode", "literalinclude"):
                yield from _as_code(line, mark, body, directive, lines[end : end + 1] or [mark["fence"]][:is_body])
            elif directive[1] not in ("toctree", "contents", "tableofcontents", "raw", "image", "index"):
                yield from _named(directive[1], directive[2], body)
        elif found := (_MKDOCS.match(line) or _MKDOCS_TAB.match(line)):
            end = _indented_end(lines, number, len(found[1]))
            title = found[2] if found.re is _MKDOCS_TAB else (found[3] if found[3] is not None else found[2].split()[0].capitalize())
            yield from _titled(title, [each[len(found[1]) + 4 :] for each in lines[number:end]])
            number = end
        elif found := _CONTAINER.match(line):
            title = (found[2] or (found[3] or "").strip() or (found[1] or "").capitalize()).strip()
            yield from ["", f"{title}:", ""] if found[1] else [""]
        else:
            yield line


def _as_code(line: str, mark: re.Match[str], body: list[str], directive: re.Match[str] | None, closing: list[str]) -> Iterator[str]:
    """Yield a code block; a directive loses its options."""
    if directive is None:
        yield from (line, *body, *closing)
        return
    while body and _OPTION.match(body[0].strip()):
        body = body[1:]
    language = directive[2].strip()
    yield from fenced("\n".join(body), language if language.isalnum() else "").split("\n")


def _named(name: str, argument: str, body: list[str]) -> Iterator[str]:
    while body and _OPTION.match(body[0].strip()):
        body = body[1:]
    said = argument.strip() if argument.strip() and name in ("admonition", "dropdown", "card", "tab-item", "figure", "table") else ""
    title = said or name.rpartition(":")[2].replace("-", " ").capitalize()
    rest = [argument] if argument.strip() and not said else []
    yield from _titled(title, [*rest, *body])


def _titled(title: str, body: list[str]) -> Iterator[str]:
    yield from ("", f"{title}:" if title else "", "")
    yield from _unfenced_directives(body, is_body=True)
    yield ""


def _fence_end(lines: list[str], start: int, fence: str) -> int:
    for number in range(start, len(lines)):
        mark = read_fence(lines[number])
        if mark and is_fence_end(mark, fence):
            return number
    return len(lines)


def _indented_end(lines: list[str], start: int, indent: int) -> int:
    end = start
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) >= indent + 4):
        end += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return end


def _without_modules(lines: list[str], dropped: list[Dropped]) -> Iterator[str]:
    """Yield the lines of MDX without imports and exports; components leave their label and text."""
    fence = ""
    for line in lines:
        mark = read_fence(line)
        if mark and not fence:
            fence = mark["fence"]
        elif fence:
            fence = "" if mark and is_fence_end(mark, fence) else fence
        elif _MODULE_LINE.match(line):
            dropped.append(("module", line[:SHOWN_CHARS]))
            continue
        else:
            line = _COMPONENT.sub(_label, line).rstrip()
        yield line


def _label(tag: re.Match[str]) -> str:
    found = _LABEL.search(tag[0])
    return f"{found[1] or found[2]}: " if found else ""


def convert_lines(lines: list[str], dropped: list[Dropped], is_site: bool) -> list[str]:
    """Convert lines without headings and code, one by one."""
    made = []
    for line in lines:
        if not _MARK.search(line):
            made.append(escape_heading(line.rstrip()))
            continue
        if _TOC.match(line) or _TARGET.match(line) or _DEFINITION.match(line):
            continue
        if found := _CALLOUT.match(line):
            line = f"{found[1]}{found[3] or found[2].capitalize()}:"
        converted = _outside_spans(_BLOCK_ID.sub("", line), lambda part: _convert_part(part, dropped, is_site)).rstrip()
        if converted.lstrip().startswith("|") and line.startswith("&"):  # an empty cell
            converted = f"| {converted.lstrip()}"
        if not _DEFINITION.match(converted):
            made.append(escape_heading(converted))
    return made


def _convert_part(text: str, dropped: list[Dropped], is_site: bool) -> str:
    if "[[" in text:
        text = _WIKI.sub(_wiki_text, _EMBED.sub(lambda found: _embedded(found, dropped), text))
    if "{" in text:
        text = _IAL.sub("", text)
        text = _SHORTCODE.sub(lambda found: _shortcode(found, dropped), text)
        if is_site:
            dropped += [("shortcode", found[:SHOWN_CHARS]) for found in _LIQUID.findall(text)]
            text = _LIQUID.sub("", text)
        text = _ATTRIBUTES.sub("", _ESCAPED_SHORTCODE.sub(r"{{\1\2\3}}", text))
    if "<" in text:
        text = _CODE_TAG.sub(lambda tag: f"`{tag[1]}`" if tag[1] else "", _TAG.sub("", _BREAK.sub(" ", raise_tagged(text))))
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(entity: re.Match[str]) -> str:
    """Return the character of an entity; escape a bar, which would end a table cell, and a `#` that would begin a heading."""
    character = html.unescape(entity[0]).replace("\u00a0", " ")
    return f"\\{character}" if character == "|" else character


def without_shortcodes(text: str, dropped: list[Dropped]) -> str:
    """Replace the shortcodes of a text by their visible text."""
    return _outside_spans(text, lambda part: _SHORTCODE.sub(lambda found: _shortcode(found, dropped), part)) if "{" in text else text


def _shortcode(code: re.Match[str], dropped: list[Dropped]) -> str:
    """Return the text in a shortcode's arguments: a caption, a term, a version. A shortcode without text is dropped."""
    inside = code[2] or code[3] or ""
    shown = [double or single for double, single in _SHOWN.findall(inside)]
    if found := _TERM.fullmatch(inside):
        shown = [found[1]]
    elif found := _VERSION.fullmatch(inside):
        shown = [f"{found[1].replace('-', ' ').capitalize()} {found[2]}"]
    if not shown or code[1]:
        dropped.append(("shortcode", code[0].removeprefix(code[1] or "")[:SHOWN_CHARS]))
    return code[1] or ", ".join(shown)


def _outside_spans(line: str, change: Callable[[str], str]) -> str:
    """Apply a change to the parts of a line outside code; the text of a MyST role is not code."""
    if "`" not in line:
        return change(line)
    parts = re.split(r"((?<!`)(`+)(?!`).{1,2000}?(?<!`)\2(?!`))", _ROLE.sub(r"\1", line) if "{" in line else line)
    return "".join(part if number % 3 == 1 else change(part) for number, part in enumerate(parts) if number % 3 != 2)


def _wiki_text(link: re.Match[str]) -> str:
    return (link[2] or link[1].replace("#^", "#").lstrip("#").replace("#", ", ")).strip()


def _embedded(embed: re.Match[str], dropped: list[Dropped]) -> str:
    name, heading = embed[1].strip(), (embed[2] or "").strip()
    if _IMAGE_SUFFIX.search(name):
        dropped.append(("embed", embed[0][:SHOWN_CHARS]))
        return ""
    return f"{name}, {heading}" if heading else name
