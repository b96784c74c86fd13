"""What was read of somebody's documents, so that a person sees what can be asked, and what looks wrong.

A page looks suspicious for what mostly comes from being read badly: it has one section only, many pages have its title, a tenth of its text
stands on other pages as well, sections of it are empty.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from slmsearch.corpus.documents.folder import Reading
from slmsearch.corpus.documents.repeats import split_blocks
from slmsearch.corpus.documents.skipped import Dropped
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import own_texts, split_sections
from slmsearch.report.tables import Table

MANY_PAGES = 3
"""So many may share a title before it is suspicious."""
REPEATED = 0.1
"""Share of a page's words in blocks that stand on other pages, too, from which it is suspicious."""
FEWEST_WORDS = 8
"""Shorter blocks may be the same everywhere."""
LONG_WORDS = 400
"""Words from which one section is few for a page."""
SHOWN = 40
"""Rows of the table."""
SHOWN_DROPPED, SHOWN_CHARS = 6, 70
_MARK = re.compile(r" \([^()]*\)$")


@dataclass(frozen=True, slots=True)
class SeenPage:
    """A page with what is to be said of it."""

    page: Page
    sections: tuple[dict[str, str], ...]
    """`id`, `heading` and `text` of each; no line stands in two of them."""
    words: int
    suspicions: tuple[str, ...]
    dropped: tuple[dict[str, str], ...] = ()
    """`kind` and `text` of what was left out of it alone."""

    def row(self) -> dict[str, object]:
        """Return it as JSON has it."""
        metadata = dict(self.page.metadata)
        path = metadata.pop("path", None)
        named = {"id": self.page.id, "title": self.page.title, "path": path, "metadata": metadata}
        return {
            **named,
            "sections": list(self.sections),
            "words": self.words,
            "suspicions": list(self.suspicions),
            "dropped": list(self.dropped),
        }


def look_at_pages(pages: Sequence[Page], dropped: Sequence[Dropped] = ()) -> list[SeenPage]:
    """Look at pages, and return the suspicious ones first, those with most suspicions ahead."""
    left_out: dict[str, list[dict[str, str]]] = defaultdict(list)
    for item in dropped:
        left_out[item.path].append({"kind": item.kind, "text": item.text})
    titles = Counter(_MARK.sub("", page.title).casefold() for page in pages)
    on_pages: dict[bytes, set[int]] = defaultdict(set)
    blocks = [_blocks(page.content) for page in pages]
    for number, found in enumerate(blocks):
        for mark, _ in found:
            on_pages[mark].add(number)
    seen = []
    for page, found in zip(pages, blocks, strict=True):
        sections, texts = split_sections(page), own_texts(page)
        words = sum(len(f"{section.heading} {text}".split()) for section, text in zip(sections, texts, strict=True))
        shared = titles[_MARK.sub("", page.title).casefold()]
        repeated = sum(count for mark, count in found if len(on_pages[mark]) > 1)
        deeper = [after.level > section.level for section, after in itertools.pairwise(sections)] + [False]
        empty = sum(not text and not has_child for text, has_child in zip(texts, deeper, strict=True))
        told = {
            "one section only": len(sections) == 1 and words >= LONG_WORDS,
            f"title shared by {shared} pages": shared > MANY_PAGES,
            f"{repeated / max(words, 1):.0%} of it on other pages, too": repeated >= REPEATED * words > 0,
            f"{empty} empty section{'s'[: empty > 1]}": empty,
        }
        rows = [{"id": section.id, "heading": section.heading, "text": text} for section, text in zip(sections, texts, strict=True)]
        looks = tuple(what for what, holds in told.items() if holds)
        seen.append(SeenPage(page, tuple(rows), words, looks, tuple(left_out[page.metadata["path"]]) if "path" in page.metadata else ()))
    return sorted(seen, key=lambda page: -len(page.suspicions))


def _blocks(content: str) -> list[tuple[bytes, int]]:
    """Return a print and the number of words of each longer block."""
    split = [block.split() for block, _ in split_blocks(content)]
    return [(blake2b(" ".join(words).encode(), digest_size=12).digest(), len(words)) for words in split if len(words) >= FEWEST_WORDS]


def render_pages(reading: Reading, seen: Sequence[SeenPage], most: int = SHOWN) -> str:
    """Render what was read: suspicious pages first, then what was dropped of their texts and how much there is in all."""
    suspicious = sum(bool(page.suspicions) for page in seen)
    rows = [(_cut(page.page.title), str(len(page.sections)), f"{page.words:,}", ", ".join(page.suspicions) or "-") for page in seen[:most]]
    lines = [Table(("page", "sections", "words", "looks wrong"), tuple(rows)).to_text()]
    if len(seen) > most:
        lines.append(f"... and {len(seen) - most:,} more, {max(suspicious - most, 0):,} of them suspicious; --json has all")
    lines += ["", *_tell_dropped(reading.dropped)] if reading.dropped else [""]
    sections, words = sum(len(page.sections) for page in seen), sum(page.words for page in seen)
    lines.append(f"{len(seen):,} pages, {sections:,} sections, {words:,} words; {suspicious:,} pages look wrong")
    return "\n".join(lines)


def _tell_dropped(dropped: Sequence[Dropped]) -> list[str]:
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for item in dropped:
        by_kind[item.kind][" ".join(item.text.split())] += item.pages
    lines = []
    for kind, texts in sorted(by_kind.items(), key=lambda item: -item[1].total()):
        examples = "; ".join(f"{_cut(text)} ({count}x)" if count > 1 else _cut(text) for text, count in texts.most_common(SHOWN_DROPPED))
        more = f" and {len(texts) - SHOWN_DROPPED} others" if len(texts) > SHOWN_DROPPED else ""
        lines.append(f"dropped {kind}, {texts.total():,} times: {examples}{more}")
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3].rstrip()}..."
