"""What a search shows of each page: its title, the id of its best section, or the section's text."""

import pytest

from slmsearch.config import SearcherConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.corpus.view import View
from slmsearch.environments.searcher.evidence import gather_evidence, opened_pages, read_sections
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.environments.searcher.tools import SEARCH, Toolbox
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, Turn
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
    assert search("text")[0] == f"mill:owner: Mill\nAda Quist owns it.\n\nlong:long: Long\n{LONG}\n\nlake:lake: Lake\nIt is deep."
    text, turn = search("text", 100)
    assert text == "mill:owner: Mill\nAda Quist owns it.\n\nlake:lake: Lake\nIt is deep.\n\nlong:long: Long"
    assert read_sections(turn) == ("mill:owner", "lake:lake") and opened_pages(turn) == ("mill", "lake")


def test_the_best_section_is_shown_whatever_its_length() -> None:
    text, turn = search("text", 10)
    assert text.startswith("mill:owner: Mill\nAda Quist \n(read_section shows all of it: mill:owner)\n\n")
    assert read_sections(turn) == ("mill:owner",)


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
    assert text.startswith("mill:owner: Mill\n") and "lake:lake: Lake (without Ada, Quist)\n" in text


@pytest.mark.parametrize(("shows", "line"), [("titles", "lists the best pages"), ("text", "shows the best sections")])
def test_the_system_message_says_what_a_search_shows(shows: str, line: str) -> None:
    assert line in make_prompt("Who?", SearcherConfig.model_validate({"shows": shows}))[0]["content"]
