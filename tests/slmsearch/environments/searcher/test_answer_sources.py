"""Sentences that state an answer, and what was read and does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.environments.searcher.answer_sources import find_sources, find_support, is_supported
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, ToolResult, Turn

TEXT = """## History

Brixa was founded in 1501. Its first mayor was **Ilse Brand**, a miller. Dr. Brand died on 4 May 1533.

| year | inhabitants |
|---|---|
| 1600 | 1,200 |

Press `reset()` twice; it needs 2.5 kg.
"""


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("1501", "Brixa was founded in 1501."),
        ("ilse brand", "Its first mayor was Ilse Brand, a miller."),
        ("May 4, 1533", "Dr. Brand died on 4 May 1533."),
        ("1,200", "| 1600 | 1,200 |"),
        ("reset()", "Press `reset()` twice; it needs 2.5 kg."),
        ("2,500 g", ""),
        ("1502", ""),
        ("Ilse", "Its first mayor was Ilse Brand, a miller."),
        ("I don't know", ""),
        ("", ""),
    ],
)
def test_the_sentence_that_states_an_answer_is_found(answer: str, sentence: str) -> None:
    assert find_support(TEXT, answer) == sentence


@given(
    st.lists(st.lists(st.from_regex(r"[A-Za-z]{1,9}|[0-9]{1,5}", fullmatch=True), min_size=2, max_size=8), min_size=1, max_size=6),
    st.data(),
)
def test_every_run_of_words_of_a_text_is_supported_by_it(sentences: list[list[str]], data: st.DataObject) -> None:
    text = "# Page\n\n" + "\n\n".join(f"{' '.join(words)}." for words in sentences)
    words = data.draw(st.sampled_from(sentences))
    start = data.draw(st.integers(0, len(words) - 1))
    answer = " ".join(words[start : data.draw(st.integers(start + 1, len(words)))])
    found = find_support(text, answer)
    assert answer.casefold() in found.casefold() and found in text


@given(st.text(max_size=300), st.text(max_size=40))
def test_any_text_and_answer_have_a_support_that_stands_there_or_none(text: str, answer: str) -> None:
    assert isinstance(find_support(text, answer), str)


PAGES = {"path": "a/manual.pdf", "section_pages": [["Steps", 3], ["Care", 4], ["Steps", 7]]}
CONTENT = "# Manual\n\n## Steps\n\nTurn it on.\n\n## Care\n\nUse soap.\n\n## Steps\n\nWait for 12 minutes.\n"
MANUAL = Library([Page("p", "Manual", CONTENT, PAGES)])


def read(*sections: str, answer: str | None, text: str | None = None) -> Episode:
    """An episode that read sections of the manual, or of each this text."""
    whole = {section.id: section.text for section in MANUAL.sections("p")}
    results = {name: ToolResult(whole[name] if text is None else text, True, ("p",), (name,)) for name in sections}
    turns = [Turn("", ToolCall("read_section", name), result=results[name]) for name in sections]
    return Episode("q", (*turns, Turn("", answer=answer)), StopReason.ANSWERED)


def test_what_was_read_is_told_from_what_states_the_answer() -> None:
    library = MANUAL
    found = find_sources(episode := read("p:care", "p:steps_2", answer="12 minutes"), library)
    assert [(source.supports, source.path, source.page) for source in found] == [
        ("", "a/manual.pdf", 4),
        ("Wait for 12 minutes.", "a/manual.pdf", 7),
    ]
    assert is_supported(episode, found) is True
    wrong = read("p:care", answer="12 minutes")
    assert is_supported(wrong, find_sources(wrong, library)) is False
    for unsayable in ("I don't know", "yes", None):
        episode = read("p:care", answer=unsayable)
        assert is_supported(episode, find_sources(episode, library)) is None


def test_a_sentence_stands_on_the_page_of_a_pdf_on_which_it_begins_and_a_section_under_headings() -> None:
    parts = (
        "Turn the wheel on Monday. It takes an hour.",
        "Look at **all of** the `stones`. Wait for *12 minutes*. Keep \\_A\\_ and `B` dry.",
        "Then oil the hinges. Rest for 3 days.",
    )
    long = "\n\n".join(parts)
    content = f"# Manual\n\nMade in Norwick.\n\n## Use\n\nWith care.\n\n### Steps\n\n{long}\n\n#### Notes\n\nNone.\n\n"
    content += "### Care\n\nUse soap for 12 minutes.\n\n# Part Two\n\n## Wheel\n\nOil it in spring.\n"
    begins = [[2, "turn the wheel on"], [3, "Look at all of the"], [4, "not in the text at all"], [5, "Then oil the hinges"], [9, "days"]]
    pages = {
        "path": "manual.pdf",
        "section_pages": [["Use", 1], ["Steps", 2], ["Notes", 5], ["Care", 6], ["Wheel", 7]],
        "page_begins": begins,
    }
    library = Library([Page("p", "Manual", content, pages)])
    for answer, section, page, under in (
        ("an hour", "p:steps", 2, ("Use",)),
        ("12 minutes", "p:steps", 3, ("Use",)),
        ("A and B dry", "p:steps", 3, ("Use",)),
        ("3 days", "p:steps", 5, ("Use",)),
        ("Norwick", "p:manual", 1, ()),
        ("None", "p:notes", 5, ("Use", "Steps")),
        ("12 minutes", "p:care", 6, ("Use",)),
        ("4 weeks", "p:steps", 2, ("Use",)),
        ("With care", "p:use", 1, ()),
        ("in spring", "p:wheel", 7, ("Part Two",)),
    ):
        whole = library.section(section)
        assert whole is not None
        turns = (
            Turn("", ToolCall("read_section", section), result=ToolResult(whole.text, True, ("p",), (section,))),
            Turn("", answer=answer),
        )
        (source,) = find_sources(Episode("q", turns, StopReason.ANSWERED), library)
        assert (source.page, source.under) == (page, under), (answer, source)


@pytest.mark.parametrize("line", ["_" * 40, "(a) _______________________", "12.5 . . . . . . . . . . ."])
def test_a_page_of_a_form_that_begins_with_a_line_to_write_on_is_not_taken_for_the_one_before(line: str) -> None:
    begins = [[2, line], [3, "More is said here of"]]
    content = "# Form\n\n## Use\n\nTake a key of 12.5 mm. Wait for 12 minutes.\n\nMore is said here of all.\n"
    library = Library([Page("p", "Form", content, {"section_pages": [["Use", 1]], "page_begins": begins})])
    result = ToolResult(content.partition("\n\n")[2].strip(), True, ("p",), ("p:use",))
    turns = (Turn("", ToolCall("read_section", "p:use"), result=result), Turn("", answer="12 minutes"))
    (source,) = find_sources(Episode("q", turns, StopReason.ANSWERED), library)
    assert (source.supports, source.page) == ("Wait for 12 minutes.", 1)


def test_only_what_was_shown_of_a_section_supports_an_answer() -> None:
    """The first of two parts was read, or the beginning of the section was shown by a search; the answer stands in the rest."""
    long = "Turn it on. " * 40 + "Wait for 12 minutes."
    library = Library([Page("p", "Manual", f"# Manual\n\n## Steps\n\n{long}\n")])
    (section,) = (one for one in library.sections("p") if one.heading == "Steps")
    first, rest = section.text[:300], section.text[300:]
    more = f"\n(page 1 of 2; go on with {section.id}#2)"
    shown = f"p:steps: Manual\n{long[:200]}{more}\n\nq: Another"
    for texts, supported in (([first + more], False), ([first + more, rest], True), ([section.text], True), ([shown], False), ([""], True)):
        turns = [Turn("", ToolCall("read_section", "p:steps"), result=ToolResult(text, True, ("p",), (section.id,))) for text in texts]
        episode = Episode("q", (*turns, Turn("", answer="12 minutes")), StopReason.ANSWERED)
        assert is_supported(episode, find_sources(episode, library)) is supported, texts


@pytest.mark.parametrize("seen", [("p:steps: The manual", "{all}"), ("{all}", "T"), ("{start}", "{all}"), ("{start}", "{end}")])
def test_what_was_shown_more_than_once_is_read_once(seen: tuple[str, ...]) -> None:
    """A list of sections shares a first letter with the section, and parts of it overlap or leave something out."""
    library = Library([Page("p", "Manual", "# Manual\n\n## Steps\n\nTurn it on. Press the red key. Wait for 12 minutes.\n")])
    (section,) = (one for one in library.sections("p") if one.heading == "Steps")
    parts = {"all": section.text, "start": section.text.partition(" Press")[0], "end": "Wait for 12 minutes."}
    results = [ToolResult(text.format(**parts), True, ("p",), (section.id,)) for text in seen]
    turns = [Turn("", ToolCall("read_section", section.id), result=result) for result in results]
    episode = Episode("q", (*turns, Turn("", answer="12 minutes")), StopReason.ANSWERED)
    assert [source.supports for source in find_sources(episode, library)] == ["Wait for 12 minutes."]


@pytest.mark.parametrize(
    ("answer", "stated"), [("C++", "It is written in C++ today."), ("-5 %", "A loss of -5 % came."), ("B-2 A", "B *2* A")]
)
def test_an_excerpt_is_about_the_whole_answer_where_it_was_not_shown(answer: str, stated: str) -> None:
    """Marks of an answer belong to it; those between its words may be others."""
    head = "## Use\n\nA cable of class 52 A."
    library = Library([Page("p", "T", f"# T\n\n{head}\n\n{'Much more is said. ' * 60}{stated}{' Then it ends.' * 60}\n")])
    (section,) = (one for one in library.sections("p") if one.heading == "Use")
    turn = Turn("", ToolCall("read_section", section.id), result=ToolResult(head, True, ("p",), (section.id,)))
    (source,) = find_sources(Episode("q", (turn, Turn("", answer=answer)), StopReason.ANSWERED), library)
    assert source.supports == "" and stated in source.text


def test_of_several_sentences_with_the_answer_the_one_about_the_question_supports_it() -> None:
    text = "See chapter 7 for the list.\n\nThe bridge has 7 arches.\n\n| 7 | 12 |\n"
    assert find_support(text, "7", "How many arches has the bridge?") == "The bridge has 7 arches."
    assert find_support(text, "7") == "See chapter 7 for the list."
