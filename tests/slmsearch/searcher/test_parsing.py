"""Messages to calls and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.searcher.episode import ToolCall
from slmsearch.searcher.parsing import ParsedTurn, parse_turn, render_answer, render_call

CASES = {
    '<tool>search_pages("Mira Talvoren")</tool>': ParsedTurn(call=ToolCall("search_pages", "Mira Talvoren")),
    "I look. <tool> view_sections( '4821' ) </tool>": ParsedTurn(call=ToolCall("view_sections", "4821")),
    '<tool>read_section(section_id="4821:history")</tool>': ParsedTurn(call=ToolCall("read_section", "4821:history")),
    r'<tool>search_pages("the \"old\" mill\n")</tool>': ParsedTurn(call=ToolCall("search_pages", 'the "old" mill')),
    '<tool>launch_rocket("now")</tool>': ParsedTurn(call=ToolCall("launch_rocket", "now")),
    '<tool>search_pages("")</tool>': ParsedTurn(call=ToolCall("search_pages", "")),
    "<answer> 18\n23 </answer>": ParsedTurn(answer="18 23"),
    "<answer></answer>": ParsedTurn(answer=""),
    '<answer>a</answer><tool>search_pages("b")</tool>': ParsedTurn(answer="a"),
    '<tool>search_pages("b")</tool><answer>a</answer>': ParsedTurn(call=ToolCall("search_pages", "b")),
    '<tool>search_pages(open("/etc/passwd"))</tool>': ParsedTurn(),
    '<tool>search_pages("a" + "b")</tool>': ParsedTurn(),
    '<tool>search_pages("a</tool>': ParsedTurn(),
    "<answer>never closed": ParsedTurn(),
    "": ParsedTurn(),
}


@pytest.mark.parametrize("text", CASES)
def test_messages(text):
    assert parse_turn(text) == CASES[text]
    assert parse_turn(text).malformed == (CASES[text] == ParsedTurn())


_FRAGMENTS = st.sampled_from(["<tool>", "</tool>", "<answer>", "</answer>", 'search_pages("', '")', "\\", '"', "'", "(", ")", "\n", "x"])


@given(st.one_of(st.text(), st.lists(st.one_of(_FRAGMENTS, st.text(max_size=4)), max_size=30).map("".join)))
def test_no_text_raises(text):
    parsed = parse_turn(text)
    assert parsed.call is None or parsed.answer is None


@given(st.sampled_from(["search_pages", "view_sections", "read_section"]), st.text())
def test_calls_come_back_as_written(name, argument):
    assert parse_turn(render_call(ToolCall(name, argument))).call == ToolCall(name, argument.strip())


@given(st.text(alphabet=st.characters(blacklist_characters="<")))
def test_answers_come_back_as_written(answer):
    assert parse_turn(render_answer(answer)).answer == " ".join(answer.split())
