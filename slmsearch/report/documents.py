"""Report on the pages of read documents: the content that questions can be about, and suspicious pages.

Most suspicious pages come from reading errors: a page with one long section, many pages with its title, a tenth of its text also on other
pages, empty sections.
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
"""Number of pages with the same title above which it is suspicious."""
REPEATED = 0.1
"""Share of a page's words in blocks that are also on other pages, from which on it is suspicious."""
FEWEST_WORDS = 8
"""Length below which a block may occur on many pages, in words."""
LONG_WORDS = 400
"""Length from which on a page of one section is suspicious, in words."""
SHOWN = 40
"""Number of rows of the table."""
SHOWN_DROPPED, SHOWN_CHARS = 6, 70
_MARK = re.compile(r" \([^()]*\)$")


@dataclass(frozen=True, slots=True)
class SeenPage:
    """A page with its suspicions."""

    page: Page
    sections: tuple[dict[str, str], ...]
    """Sections as `id`, `heading` and `text`; every line is in one section only."""
    words: int
    suspicions: tuple[str, ...]
    dropped: tuple[dict[str, str], ...] = ()
    """Texts that were left out of this page alone, as `kind` and `text`."""

    def row(self) -> dict[str, object]:
        """Return it in the form of the JSON report."""
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
    """Check pages; return the suspicious ones first, by the number of suspicions."""
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
            f"{min(1.0, repeated / max(words, 1)):.0%} of it on other pages, too": repeated >= REPEATED * words > 0,
            f"{empty} empty section{'s'[: empty > 1]}": empty,
        }
        rows = [{"id": section.id, "heading": section.heading, "text": text} for section, text in zip(sections, texts, strict=True)]
        looks = tuple(what for what, holds in told.items() if holds)
        seen.append(SeenPage(page, tuple(rows), words, looks, tuple(left_out[page.metadata["path"]]) if "path" in page.metadata else ()))
    return sorted(seen, key=lambda page: -len(page.suspicions))


def _blocks(content: str) -> list[tuple[bytes, int]]:
    """Return a hash and the number of words of each longer block."""
    split = [block.split() for block, _ in split_blocks(content)]
    return [(blake2b(" ".join(words).encode(), digest_size=12).digest(), len(words)) for words in split if len(words) >= FEWEST_WORDS]


def render_pages(reading: Reading, seen: Sequence[SeenPage], most: int = SHOWN) -> str:
    """Render the pages that were read: suspicious ones first, then the texts dropped from them and the totals."""
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
