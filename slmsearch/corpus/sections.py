"""Sections of a page's Markdown, with stable ids.

The scheme is that of verifiers' `wiki_search` environment (a heading is any line that starts with `#`, its id is
`page_id:normalised_heading`), so its ids stay valid, with corrections:

- a repeated heading gets `_2`, `_3` ... instead of sharing an id; the first one keeps the plain id;
- `#` inside a code fence is not a heading;
- a section includes its sub-sections; only the title section holds just the lead;
- text above the first heading belongs to the title section instead of being unreachable;
- `page_id:full` is the whole page only on a page without headings, so a heading named "Full" can be read;
- headings underlined with `===` or `---`, and HTML headings, are not supported; they are text.
"""

import re
from collections.abc import Iterator

from slmsearch.corpus.pages import Page, Section

FULL_PAGE = "full"
"""Last part of the only section id of a page without headings."""
FULL_PAGE_HEADING = "Full Page"

# A fence may be in a list item or a quotation, so markers and any indentation may precede it.
_FENCE = re.compile(r"^[\s>]*(?:(?:[-*+]|\d{1,9}[.)])\s+)*(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)$")
_WHITESPACE = re.compile(r"\s")


def normalise_heading(text: str) -> str:
    """Convert a heading to the part of a section id after the page id: lower case, `_` for white space."""
    return _WHITESPACE.sub("_", text.strip().lower())


def split_sections(page: Page) -> list[Section]:
    """Split a page at its headings; the title section is first, and every line with text is in some section."""
    lines, headings = outline(page)
    if not headings:
        return [Section(f"{page.id}:{FULL_PAGE}", page.id, FULL_PAGE_HEADING, 0, page.content.strip())]
    ids = _unique_ids(page.id, [heading for _, _, heading in headings])
    sections = []
    for index, (start, level, heading) in enumerate(headings):
        is_title = index == 0 and level == 1
        following = range(index + 1, len(headings))
        end = next((headings[number][0] for number in following if is_title or headings[number][1] <= level), len(lines))
        text = _text(lines, 0 if index == 0 else start, end)
        sections.append(Section(ids[index], page.id, " ".join(heading.split()), level, text))
    return sections


def own_texts(page: Page) -> list[str]:
    """Return each section's text up to the next heading of any level, without its heading line, so that no line occurs twice.

    The order is that of `split_sections`.
    """
    lines, headings = outline(page)
    if not headings:
        return [page.content.strip()]
    ends = [start for start, _, _ in headings[1:]] + [len(lines)]
    texts = [_text(lines, start + 1, end) for (start, _, _), end in zip(headings, ends, strict=True)]
    # The preamble is above the first heading, or is the whole text under the page's own title.
    first = headings[0][0]
    texts[0] = _text(lines, 0, ends[0]) if first < 0 else f"{_text(lines, 0, first)}\n{texts[0]}".strip()
    return texts


def outline(page: Page) -> tuple[list[str], list[tuple[int, int, str]]]:
    """Return a page's lines and its headings; without a `#` heading above the lead, the page's title is one, at line -1."""
    lines = page.content.split("\n")
    headings = list(_headings(lines))
    if headings and headings[0][1] != 1 and _text(lines, 0, headings[0][0]):
        headings.insert(0, (-1, 1, page.title.strip() or page.id))
    return lines, headings


def read_fence(line: str) -> re.Match[str] | None:
    """Match a line that opens or closes a code fence; groups `fence` and `info`."""
    return _FENCE.match(line) if "```" in line or "~~~" in line else None


def is_fence_end(match: re.Match[str], fence: str) -> bool:
    """Return True if such a line closes a fence: the same mark, at least as long, and no text after it."""
    return match["fence"].startswith(fence) and not match["info"].strip()


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield line number, level and text of every heading; a line of only `#` has no name and is not one."""
    fence = ""
    for number, line in enumerate(lines):
        match = read_fence(line)
        if match and not fence:
            fence = match["fence"]
        elif fence:
            if match and is_fence_end(match, fence):
                fence = ""
        elif line.startswith("#"):
            heading = line.lstrip("#")
            if name := heading.strip():
                yield number, len(line) - len(heading), name


def _unique_ids(page_id: str, headings: list[str]) -> list[str]:
    """Create one id per heading; a suffix never takes the plain id of another heading."""
    names = [normalise_heading(heading) for heading in headings]
    own, taken = set(names), dict[str, int]()  # id -> the last suffix of its name
    ids = []
    for name in names:
        unique, count = name, taken.get(name, 1)
        while unique in taken or (count > 1 and unique in own):
            count += 1
            unique = f"{name}_{count}"
        taken |= {unique: 1, name: count}
        ids.append(f"{page_id}:{unique}")
    return ids


def _text(lines: list[str], start: int, end: int) -> str:
    return "\n".join(lines[start:end]).strip()
