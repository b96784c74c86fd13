"""Looking pages and sections up."""

import pytest

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.errors import CorpusError

PAGES = [
    Page("star_trek:_picard", "Star Trek: Picard", "# Star Trek: Picard\nlead\n## Cast: main\nnames"),
    Page("plain", "Plain", "no heading"),
]


def test_pages_and_sections_are_found_by_id():
    library = Library(PAGES)
    assert len(library) == 2
    assert [page.id for page in library.pages()] == ["star_trek:_picard", "plain"]
    assert library.page("plain") is PAGES[1]
    assert [section.id for section in library.sections("plain")] == ["plain:full"]
    section = library.section("star_trek:_picard:cast:_main")
    assert section is not None and section.text == "## Cast: main\nnames"


@pytest.mark.parametrize("section_id", ["", ":", "plain", "plain:", "plain:other", "nobody:full", "star_trek:_picard"])
def test_unknown_ids_are_none(section_id: str):
    assert Library(PAGES).section(section_id) is None


def test_unknown_page_has_no_sections():
    library = Library(PAGES)
    assert library.page("nobody") is None
    assert library.sections("nobody") == []


def test_a_list_handed_out_can_be_changed_without_harm():
    library = Library(PAGES)
    library.sections("plain").clear()
    assert len(library.sections("plain")) == 1


def test_ids_that_look_alike_across_pages_stay_apart():
    library = Library([Page("a", "a", "# x\n## b:c\nshort"), Page("a:b", "a:b", "# y\n## d\nlong")])
    assert library.section("a:b:c").page_id == "a"
    assert library.section("a:b:d").page_id == "a:b"


def test_duplicate_page_ids_are_refused():
    with pytest.raises(CorpusError, match="'plain' occurs twice"):
        Library([PAGES[1], PAGES[1]])
