"""What a search shows of each page: its title, the id of its best section, or the section's text."""

from dataclasses import replace

import pytest

from slmsearch.config import SearcherConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.corpus.view import View
from slmsearch.environments.searcher.evidence import gather_evidence, opened_pages, read_sections
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.environments.searcher.tools import ABSENT, READ, SEARCH, VIEW, Toolbox
from slmsearch.episodes.episode import Episode, Quotation, StopReason, ToolCall, ToolResult, Turn
from slmsearch.retrieval.hits import Hit

PAGES = [
    Page("mill", "Mill", "# Mill\n\n## Owner\n\nAda Quist owns it.\n"),
    Page("lake", "Lake", "# Lake\n\nIt is deep.\n"),
    Page("long", "Long", "# Long\n\n" + "word " * 60),
]
HITS = [Hit("mill", "Mill", 0.9, "mill:owner"), Hit("long", "Long", 0.8, "long:long"), Hit("lake", "Lake", 0.7, "lake:lake")]
LONG = ("word " * 60).strip()


class FixedIndex:
    key = "fixed"

    def search(self, queries: object, top_k: int, *, hidden: object = ()) -> list[list[Hit]]:
        return [HITS[:top_k]]


def search(shows: str, chars: int = 400, view: View | None = None, missing_names: bool = False, query: str = "Who?") -> tuple[str, Turn]:
    toolbox = Toolbox(Library(PAGES), FixedIndex(), 3, chars, shows=shows, missing_names=missing_names)
    call = ToolCall(SEARCH, query)
    (result,) = toolbox.serve([call], [view])
    return result.text, Turn("", call=call, result=result)


def test_titles_and_sections() -> None:
    assert search("titles")[0] == "mill: Mill\nlong: Long\nlake: Lake"
    assert search("sections")[0] == "mill: Mill (mill:owner)\nlong: Long (long:long)\nlake: Lake (lake:lake)"


def test_text_shows_the_best_sections_that_fit_and_lists_the_others() -> None:
    assert search("text")[0] == f"mill:owner: Mill\nAda Quist owns it.\n\nlong: Long\n{LONG}\n\nlake: Lake\nIt is deep."
    text, turn = search("text", 100)
    assert text == "mill:owner: Mill\nAda Quist owns it.\n\nlake: Lake\nIt is deep.\n\nlong: Long"
    assert read_sections(turn) == ("mill:owner", "lake:lake") and opened_pages(turn) == ("mill", "lake")


def test_the_best_section_is_shown_whatever_its_length() -> None:
    text, turn = search("text", 10)
    assert text.startswith("mill:owner: Mill\nAda Quist \n(page 1 of 3; go on with mill:owner#2)\n\n")
    assert read_sections(turn) == ("mill:owner",)


def test_the_first_section_of_a_page_goes_by_the_pages_id_where_a_search_shows_text() -> None:
    pages = [Page("lake", "Lake", "# Lake\n\nIt is deep, dark and cold.\n\n## Fish\n\nPike live in it.\n")]
    toolbox = Toolbox(Library(pages), FixedIndex(), 3, 30, shows="text")

    def read(name: str, view: View | None = None) -> ToolResult:
        return toolbox.serve([ToolCall(READ, name)], [view])[0]

    assert toolbox.serve([ToolCall(VIEW, "lake")])[0].text == "lake: Lake\nlake:fish: Fish"
    assert read("lake") == read("lake: Lake") == read("lake:lake") == replace(read("lake"), section_ids=("lake:lake",))
    assert read("lake").text == "# Lake\n\nIt is deep, dark and c\n(page 1 of 2; go on with lake#2)" and read("lake#2").served
    assert read("lake", View(hidden=("lake:lake",))).text == ABSENT
    edited = toolbox.serve([ToolCall(VIEW, "lake")], [View(old=("cold",), new="warm")])[0].text
    assert edited == "lake: Lake\nlake:fish: Fish", "a twin goes by the same names"
    quoted = toolbox.quote(Quotation("lake"), {"lake:lake"})
    assert quoted.served and quoted.section_ids == ("lake:lake",)
    assert not toolbox.quote(Quotation("lake"), {"lake:fish"}).served
    titles = Toolbox(Library(pages), FixedIndex(), 3, 400)
    assert titles.serve([ToolCall(READ, "lake")])[0].text == ABSENT, "elsewhere a page's id names no section"


def test_a_page_whose_id_is_that_of_a_section_names_its_first_section_in_full() -> None:
    library = Library([Page("lake", "Lake", "# Lake\n\n## Fish\n\nPike."), Page("lake:fish", "Fish", "# Fish\n\nPerch.")])
    toolbox = Toolbox(library, FixedIndex(), 3, 400, shows="text")
    names = {name: toolbox.name_of(section) for name in library_ids(library) if (section := library.section(name))}
    assert names == {"lake:lake": "lake", "lake:fish": "lake:fish", "lake:fish:fish": "lake:fish:fish"}
    for section_id, name in names.items():
        assert toolbox.serve([ToolCall(READ, name)])[0].section_ids == (section_id,)


def library_ids(library: Library) -> list[str]:
    return [section.id for page in library.pages() for section in library.sections(page.id)]


def test_shown_text_counts_as_read() -> None:
    _, turn = search("text")
    question = Question("q", "Who?", "Ada Quist", page_ids=("mill",), section_ids=("mill:owner",))
    evidence = gather_evidence(question, Episode("q", (turn,), StopReason.ANSWERED))
    assert (evidence.gold_read, evidence.read_frac) == (True, 1.0)
    _, turn = search("sections")
    assert gather_evidence(question, Episode("q", (turn,), StopReason.ANSWERED)).gold_read is False


def test_a_view_hides_and_replaces_text_in_a_search_too() -> None:
    text, _ = search("text", view=View(old=("Ada Quist",), new="Bo Lind"))
    assert "Bo Lind owns it." in text and "Ada Quist" not in text


def test_missing_names_are_judged_by_the_text_as_shown() -> None:
    text, _ = search("text", missing_names=True, query="Does Ada Quist own it?")
    assert text.startswith("mill:owner: Mill\n") and "lake: Lake (without Ada, Quist)\n" in text


@pytest.mark.parametrize(("shows", "line"), [("titles", "lists the best pages"), ("text", "shows the best sections")])
def test_the_system_message_says_what_a_search_shows(shows: str, line: str) -> None:
    assert line in make_prompt("Who?", SearcherConfig.model_validate({"shows": shows}))[0]["content"]
