"""Blocks of text that most pages of a folder repeat: banners, notices, menus. They carry no information about a page and are dropped.

A template puts such blocks into HTML pages and books. In other documents, such as contracts with a clause in common, a sentence that all
state is a fact of each, and stays.

Blank lines separate blocks; fenced code and headings do not count. A heading over only such a block is dropped with it. List items, table
rows and lines that introduce something (`Returns: a statement`, `Apply the filter:`) are facts of a page and stay.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import PurePosixPath

from slmsearch.corpus.documents.reader import EPUB, HTML
from slmsearch.corpus.sections import is_fence_end, read_fence

MOST = 0.8
"""Share of pages with a block from which it is dropped. A block on half of the pages may be a shared fact, as in references."""
_FACT = re.compile(r"\s*(?:[-*+|>]|\d+[.)]\s)|[^.!?]{1,40}:(?:\s|$)|.*:$", re.DOTALL)
FEWEST = 8
"""Minimum number of pages with a block: a few pages may share a real statement."""


def drop_repeated(contents: Sequence[str], places: Sequence[str]) -> tuple[list[str], Counter[str]]:
    """Drop the blocks that most HTML pages of a folder, or of one format, repeat; a page keeps its last block.

    Returns:
        The remaining contents, and each dropped block with the number of its pages.
    """
    if len(contents) < FEWEST:
        return list(contents), Counter()
    groups = [_groups(place) for place in places]
    sizes = Counter(name for names in groups for name in names)
    counts: dict[str, Counter[bytes]] = defaultdict(Counter)
    for content, names in zip(contents, groups, strict=True):
        found = {_print(block) for block, may_go in split_blocks(content) if may_go}
        for name in names:
            counts[name].update(found)
    repeated = {
        name: {block for block, count in counted.items() if count >= max(FEWEST, MOST * sizes[name])} for name, counted in counts.items()
    }
    left, dropped = [], Counter[str]()
    for content, names in zip(contents, groups, strict=True):
        gone = set[bytes]().union(*(repeated[name] for name in names))
        kept, lost = _without(content, gone) if gone else (content, [])
        left.append(kept)
        dropped.update(set(lost))
    return left, dropped


def split_blocks(content: str) -> Iterator[tuple[str, bool]]:
    """Yield the blocks of a page in order, each with True if it may be dropped: headings and code may not."""
    block: list[str] = []
    fence = ""
    has_code = False
    for line in [*content.split("\n"), ""]:
        mark = read_fence(line)
        is_heading = not fence and line.startswith("#")
        if block and not fence and (is_heading or not line.strip()):
            yield "\n".join(block), not has_code and not _FACT.match(block[0])
            block, has_code = [], False
        if is_heading:
            yield line, False
        elif fence or line.strip():
            block.append(line)
        if mark and not fence:
            fence, has_code = mark["fence"], True
        elif fence and mark and is_fence_end(mark, fence):
            fence = ""
    if block:
        yield "\n".join(block), not has_code and not _FACT.match(block[0])


def _groups(place: str) -> tuple[str, ...]:
    path = PurePosixPath(place)
    return (f"{path.parent}/", path.suffix.lower()) if path.suffix.lower() in (*HTML, *EPUB) else ()


def _print(block: str) -> bytes:
    return blake2b(" ".join(block.split()).encode("utf-8", "surrogatepass"), digest_size=12).digest()


def _without(content: str, gone: set[bytes]) -> tuple[str, list[str]]:
    """Return a page without the blocks, and without headings left empty; unchanged if no text would remain."""
    kept: list[tuple[str, bool]] = []
    lost: list[str] = []
    for block, may_go in split_blocks(content):
        if may_go and _print(block) in gone:
            lost.append(block)
            if kept and kept[-1][0].startswith("#"):
                kept[-1] = (kept[-1][0], True)  # dropped if nothing follows
            continue
        kept.append((block, False))
    following = [block for block, _ in kept[1:]] + ["# "]
    blocks = [block for (block, over_lost), after in zip(kept, following, strict=False) if not (over_lost and _ends(block, after))]
    if not lost or all(block.startswith("#") for block in blocks):
        return content, []
    return "\n\n".join(blocks), lost


def _ends(heading: str, after: str) -> bool:
    """Return True if the block after a heading begins another section, so that the heading is empty."""
    return after.startswith("#") and len(after) - len(after.lstrip("#")) <= len(heading) - len(heading.lstrip("#"))
