"""Splitting a page's Markdown into sections with stable ids.

The scheme is that of verifiers' `wiki_search` environment (a heading is any line that starts with `#`, its id is
`page_id:normalised_heading`), so ids made there stay valid, with its traps fixed:

- a repeated heading gets `_2`, `_3` ... instead of sharing an id; the first one keeps the plain id;
- `#` inside a code fence is no heading;
- a section reaches over its sub-sections; only the title section holds just the lead;
- text above the first heading belongs to the title section instead of being unreachable;
- `page_id:full` stands for the whole page only where there is no heading, so a heading named "Full" can be read.

Not covered: headings underlined with `===` or `---`, and HTML headings; they are text.
"""

import re
from collections.abc import Iterator

from slmsearch.corpus.pages import Page, Section

FULL_PAGE = "full"
"""Last part of the only section id of a page without headings."""
FULL_PAGE_HEADING = "Full Page"

# A fence may stand in a list item or a quotation, so markers and any indentation may come before it.
_FENCE = re.compile(r"^[\s>]*(?:(?:[-*+]|\d{1,9}[.)])\s+)*(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)$")
_WHITESPACE = re.compile(r"\s")


def normalise_heading(text: str) -> str:
    """Turn a heading into the part of a section id that follows the page id: lower case, `_` for white space."""
    return _WHITESPACE.sub("_", text.strip().lower())


def split_sections(page: Page) -> list[Section]:
    """Split a page at its headings; the title section comes first, and every line with text is in some section."""
    lines, headings = outline(page)
    if not headings:
        return [Section(f"{page.id}:{FULL_PAGE}", page.id, FULL_PAGE_HEADING, 0, page.content.strip())]
    ids = _unique_ids(page.id, [heading for _, _, heading in headings])
    sections = []
    for index, (start, level, heading) in enumerate(headings):
        is_title = index == 0 and level == 1
        end = next((line for line, other, _ in headings[index + 1 :] if is_title or other <= level), len(lines))
        text = _text(lines, 0 if index == 0 else start, end)
        sections.append(Section(ids[index], page.id, " ".join(heading.split()), level, text))
    return sections


def own_texts(page: Page) -> list[str]:
    """Return each section's text up to the next heading of any level, without its heading line: no line occurs twice.

    In the order of `split_sections`.
    """
    lines, headings = outline(page)
    if not headings:
        return [page.content.strip()]
    ends = [start for start, _, _ in headings[1:]] + [len(lines)]
    texts = [_text(lines, start + 1, end) for (start, _, _), end in zip(headings, ends, strict=True)]
    # The preamble stands above the first heading, or is all there is under the page's own title.
    first = headings[0][0]
    texts[0] = _text(lines, 0, ends[0]) if first < 0 else f"{_text(lines, 0, first)}\n{texts[0]}".strip()
    return texts


def outline(page: Page) -> tuple[list[str], list[tuple[int, int, str]]]:
    """Return a page's lines and its headings; where no `#` heading stands above the lead, the page's title does, at line -1."""
    lines = page.content.split("\n")
    headings = list(_headings(lines))
    if headings and headings[0][1] != 1 and _text(lines, 0, headings[0][0]):
        headings.insert(0, (-1, 1, page.title.strip() or page.id))
    return lines, headings


def read_fence(line: str) -> re.Match[str] | None:
    """Match a line that opens or closes a code fence; groups `fence` and `info`."""
    return _FENCE.match(line) if "```" in line or "~~~" in line else None


def is_fence_end(match: re.Match[str], fence: str) -> bool:
    """Tell whether such a line closes a fence: only the same mark, at least as long and with nothing behind it, does."""
    return match["fence"].startswith(fence) and not match["info"].strip()


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield line number, level and text of every heading; a line of nothing but `#` has no name and is none."""
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
    """Make one id per heading; suffixes never take an id that another heading has by its own name."""
    names = [normalise_heading(heading) for heading in headings]
    own, taken = set(names), set[str]()
    ids = []
    for name in names:
        unique, count = name, 1
        while unique in taken or (count > 1 and unique in own):
            count += 1
            unique = f"{name}_{count}"
        taken.add(unique)
        ids.append(f"{page_id}:{unique}")
    return ids


def _text(lines: list[str], start: int, end: int) -> str:
    return "\n".join(lines[start:end]).strip()
