"""What names of a query a found page lacks, as a search shows it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.view import View
from slmsearch.environments.searcher.demonstrations import TitleIndex
from slmsearch.environments.searcher.tools import SEARCH, Toolbox, find_names
from slmsearch.episodes.episode import ToolCall

LIBRARY = Library(
    [
        Page("4821", "Talvor Abbey", "# Talvor Abbey\n\nMonks of Dunmar built it at the river.\n\n## Water\n\nThe Sorn River runs by.\n"),
        Page("7230", "Sorn Abbey", "# Sorn Abbey\n\nIt is long.\n"),
    ]
)


class FirstSection(TitleIndex):
    """Finds pages by their titles, and of each the first section."""

    def search(self, queries, top_k):
        return [[replace(hit, section_id=LIBRARY.sections(hit.page_id)[0].id) for hit in hits] for hits in super().search(queries, top_k)]


TOOLBOX = Toolbox(LIBRARY, FirstSection(LIBRARY), 2, max_section_chars=1500, missing_names=True)


def search(query, toolbox=TOOLBOX, view=None):
    (result,) = toolbox.serve([ToolCall(SEARCH, query)], [view])
    return result.text.splitlines()


def test_each_page_says_what_names_it_lacks():
    assert search("Talvor Abbey") == ["4821: Talvor Abbey", "7230: Sorn Abbey (without Talvor)"]
    assert search("Talvik Abbey")[0] == "4821: Talvor Abbey (without Talvik)"
    assert search("Talvor River")[0] == "4821: Talvor Abbey (without River)", "in another section than the one that was found"
    assert search("Who of Dunmar built the Talvor Abbey?")[0] == "4821: Talvor Abbey", "the section holds the name"
    plain = Toolbox(LIBRARY, FirstSection(LIBRARY), 2, max_section_chars=1500)
    assert search("Talvik Abbey", plain)[0] == "4821: Talvor Abbey"


def test_it_stands_after_the_section_that_is_shown():
    both = Toolbox(LIBRARY, FirstSection(LIBRARY), 1, max_section_chars=1500, shows="sections", missing_names=True)
    (line,) = search("Talvik Abbey", both)
    assert line == "4821: Talvor Abbey (4821:talvor_abbey) (without Talvik)"


def test_what_a_view_shows_counts():
    assert search("Talvor Abbey of Dunmar", view=View(old=("Dunmar",), new="Peleth"))[0].endswith("Talvor Abbey (without Dunmar)")


def test_names_begin_with_a_capital_and_are_no_small_words():
    assert find_names("Which of the Talvor's kings saw The Hague, and who Łódź? Where In Talvor") == ["Talvor", "Hague", "Łódź"]


@given(st.text(max_size=60))
def test_any_query_is_served(query):
    (result,) = TOOLBOX.serve([ToolCall(SEARCH, query)])
    assert len(result.page_ids) == (len(result.text.splitlines()) if result.page_ids else 0)
    assert all(name in query for name in find_names(query))
