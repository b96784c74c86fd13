"""Messages to calls and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.searcher.episode import ToolCall
from slmsearch.searcher.parsing import ParsedTurn, parse_turn, render_answer, render_call, render_program

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


PROGRAMS = {
    "<code>print(1)</code>": "print(1)",
    "I look.\n<code>\nfor i in range(2):\n    print(i)\n</code> and so on": "for i in range(2):\n    print(i)",
    "<code>\n    print(1)\n</code>": "    print(1)",
    "<code>\r\nprint(1)\r\n</code>": "print(1)",
    '<code>a</code><tool>search_pages("b")</tool><answer>c</answer>': "a",
    "<code></code><code> \n </code><code>b</code>": "b",
    "<code>'<answer>no</answer>'</code>": "'<answer>no</answer>'",
}


@pytest.mark.parametrize("text", PROGRAMS)
def test_programs(text):
    parsed = parse_turn(text, programs=True)
    assert parsed == ParsedTurn(program=PROGRAMS[text])
    assert not parsed.malformed


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("<code>never closed", ParsedTurn()),
        ("<code></code>", ParsedTurn()),
        ("```python\nprint(1)\n```", ParsedTurn()),
        ("<CODE>print(1)</CODE>", ParsedTurn()),
        ("<answer>a</answer><code>b</code>", ParsedTurn(answer="a")),
        ('<tool>search_pages("b")</tool><code>c</code>', ParsedTurn(call=ToolCall("search_pages", "b"))),
        ("<answer><code>b</code></answer>", ParsedTurn(answer="<code>b</code>")),
    ],
)
def test_what_is_no_program_or_comes_too_late(text, parsed):
    assert parse_turn(text, programs=True) == parsed


@given(st.text())
def test_programs_come_back_as_written(program):
    kept = parse_turn(render_program(program), programs=True).program
    if "</code>" in program or not program.strip():
        return
    assert kept is not None
    assert kept.strip() == program.strip()
    assert kept in program, "nothing is changed, only blank lines around it are taken away"


_MORE = st.sampled_from(["<code>", "</code>", "<tool>", "</tool>", "<answer>", "</answer>", 'search_pages("', '")', "print(1)", "\n", " "])


@given(st.lists(st.one_of(_MORE, st.text(max_size=4)), max_size=30).map("".join))
def test_with_programs_no_text_raises_and_one_thing_counts(text):
    parsed = parse_turn(text, programs=True)
    assert [parsed.call, parsed.answer, parsed.program].count(None) >= 2
    if parsed.program is None:
        assert parsed == parse_turn(text)


@given(st.text() | st.lists(st.one_of(_MORE, st.text(max_size=4)), max_size=30).map("".join))
def test_programs_are_off_unless_asked_for(text):
    assert parse_turn(text).program is None
    assert parse_turn(text) == parse_turn(text, programs=False)
