"""What of a page is embedded: its bare title, and one passage per section."""

from collections.abc import Iterator
from dataclasses import dataclass

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page, Section

CHUNKER_VERSION = 1
"""Part of the index key: raise it whenever passages of the same page come out otherwise."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One embedded text and the place it stands for."""

    page_id: str
    section_id: str
    text: str


def make_passages(library: Library, max_chars: int) -> Iterator[Passage]:
    """Yield the passages of all pages, a page's together, the title first.

    The title stands alone so that a query that is a page's exact title finds it with similarity 1, however alike the
    names of other pages are.
    """
    for page in library.pages():
        sections = library.sections(page.id)
        yield Passage(page.id, sections[0].id, page.title)
        for section in sections:
            if body := _body(section):
                yield Passage(page.id, section.id, f"{_place(page, section)}: {body}"[:max_chars])


def _place(page: Page, section: Section) -> str:
    return page.title if section.level < 2 else f"{page.title} — {section.heading}"


def _body(section: Section) -> str:
    """Return a section's text without its heading line, white space joined; empty if it has no text of its own."""
    text = section.text
    if section.level and text.startswith("#"):
        text = text.partition("\n")[2]
    return " ".join(text.split())
