"""Lookup of a corpus' pages by page id and section id, independent of files and search."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

from slmsearch.corpus.pages import Page, Section
from slmsearch.corpus.sections import split_sections
from slmsearch.errors import CorpusError

MAX_SHARING = 3
"""Maximum number of pages that may share a title or heading that still identifies them."""


class Library:
    """Pages in their order; sections are split on first access and cached."""

    def __init__(self, pages: Iterable[Page]) -> None:
        self._pages: dict[str, Page] = {}
        self._sections: dict[str, dict[str, Section]] = {}
        for page in pages:
            if page.id in self._pages:
                raise CorpusError(f"page id {page.id!r} occurs twice; give every page its own id")
            self._pages[page.id] = page

    def __len__(self) -> int:
        return len(self._pages)

    def page(self, page_id: str) -> Page | None:
        """Return a page, or None if there is no such id."""
        return self._pages.get(page_id)

    def pages(self) -> Iterator[Page]:
        """Iterate over all pages in corpus order."""
        return iter(self._pages.values())

    def sections(self, page_id: str) -> list[Section]:
        """Return a page's sections, title section first; empty if there is no such page."""
        return list(self._by_id(page_id).values())

    def section(self, section_id: str) -> Section | None:
        """Return a section, or None if there is no such id.

        Page ids and headings may both contain `:`, so it tries every possible page id, the longest first.
        """
        end = section_id.rfind(":")
        while end >= 0:
            if section := self._by_id(section_id[:end]).get(section_id):
                return section
            end = section_id.rfind(":", 0, end)
        return None

    @cached_property
    def shared_names(self) -> frozenset[str]:
        """Titles and headings, case-folded, that more than `MAX_SHARING` pages have: they identify no page."""
        names: Counter[str] = Counter()
        for page in self.pages():
            names.update({page.title.casefold(), *(section.heading.casefold() for section in self.sections(page.id))})
        return frozenset(name for name, count in names.items() if count > MAX_SHARING)

    def _by_id(self, page_id: str) -> dict[str, Section]:
        page = self._pages.get(page_id)
        if page is None:
            return {}
        if page_id not in self._sections:
            self._sections[page_id] = {section.id: section for section in split_sections(page)}
        return self._sections[page_id]
