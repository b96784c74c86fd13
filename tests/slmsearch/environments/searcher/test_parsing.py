"""Messages to calls and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.environments.searcher.parsing import (
    BAD_QUOTATION,
    NOTHING,
    PROGRAM_STOP,
    THINKING,
    TOOL_STOPS,
    UNTAGGED,
    ParsedTurn,
    parse_turn,
    render_answer,
    render_call,
    render_quotation,
)
from slmsearch.episodes.episode import Quotation, ToolCall
from slmsearch.episodes.thinking import after_thinking

CASES = {
    '<tool>search_pages("Mira Talvoren")</tool>': ParsedTurn(call=ToolCall("search_pages", "Mira Talvoren")),
    "I look. <tool> view_sections( '4821' ) </tool>": ParsedTurn(call=ToolCall("view_sections", "4821")),
    '<tool>read_section(section_id="4821:history")</tool>': ParsedTurn(call=ToolCall("read_section", "4821:history")),
    r'<tool>search_pages("the \"old\" mill\n")</tool>': ParsedTurn(call=ToolCall("search_pages", 'the "old" mill')),
    r'<tool>search_pages("Caf\u00e9 \uD83D\ude42 \ud83d in C:\users")</tool>': ParsedTurn(
        call=ToolCall("search_pages", "Café 🙂 \ufffd in C:users")
    ),
    '<tool>launch_rocket("now")</tool>': ParsedTurn(call=ToolCall("launch_rocket", "now")),
    '<tool>search_pages("")</tool>': ParsedTurn(call=ToolCall("search_pages", "")),
    "<answer> 18\n23 </answer>": ParsedTurn(answer="18 23"),
    "<answer></answer>": ParsedTurn(answer=""),
    '<answer>a</answer><tool>search_pages("b")</tool>': ParsedTurn(answer="a"),
    '<tool>search_pages("b")</tool><answer>a</answer>': ParsedTurn(call=ToolCall("search_pages", "b")),
}
MALFORMED = {
    '{"name": "search_pages", "arguments": {"query": "a", "exact": true}} and more': "write one call such as",
    '{"name": "search_pages", "arguments": {"query": true}}': "write one call such as",
    '<tool>search_pages(open("/etc/passwd"))</tool>': "not one string in double quotes",
    '<tool>search_pages("a" + "b")</tool>': "not one string in double quotes",
    "<tool>search_pages(open(x))</tool>": "not one string in double quotes",
    '<tool>search_pages("a)</tool>': "not one string in double quotes",
    '<tool>search_pages("a", "b")</tool>': "takes one argument",
    '<tool>search_pages(query="a", top_k=5)</tool>': "takes one argument",
    "<tool>search_pages()</tool>": "no argument",
    "<tool>search_pages(“”)</tool>": "no argument",
    '<tool>search_pages("a</tool>': "this is no call",
    "<tool>Mira Talvoren</tool>": "this is no call",
    '<tool>search_pages("a")': "<tool> is not closed",
    "<answer>never closed": "<answer> is not closed",
    'I will use search_pages("Mira").': "between <tool> and </tool>",
    "```tool\nsearch_pages('Mira')\n```": "between <tool> and </tool>",
    "It was 1823.": "write one call such as",
    "": "the message is empty",
    "<think>hm</think>  ": "the message is empty",
    '<think>I could write <tool>search_pages("a")</tool>': "<think> is not closed",
    '<tool_call>{"name": "search_pages"}</tool_call>': "this is no call",
    '<tool_call>{"name": "search_pages", "arguments": {"query": "a", "top_k": 3}}</tool_call>': "this is no call",
    '<tool_call>{"name": "search_pages", "arguments": ' + '{"a":' * 9999: "this is no call",
    '<tool_call>{"name": "\\u001b[2J", "arguments": {"query": "a"}}</tool_call>': "this is no call",
}
LOOSE = {
    '<tool_call>{"name": "view_sections", "arguments": {"page_id": 4821}}</tool_call>': ToolCall("view_sections", "4821"),
    '<tool_call>{"name": "search_pages", "arguments": {"query": "a", "top_k": null}}</tool_call>': ToolCall("search_pages", "a"),
    "<tool>search_pages(Mira Talvoren)</tool>": ToolCall("search_pages", "Mira Talvoren"),
    "<tool>search_pages(“Mira Talvoren”)</tool>": ToolCall("search_pages", "Mira Talvoren"),
    "<tool>search_pages(query=\u2018Mira\u2019)</tool>": ToolCall("search_pages", "Mira"),
    "<tool>search_pages(«Mira»)</tool>": ToolCall("search_pages", "Mira"),
    "<tool>search_pages(Paris, France)</tool>": ToolCall("search_pages", "Paris, France"),
    '<tool>functions.search_pages("Mira")</tool>': ToolCall("search_pages", "Mira"),
    '<tool>`search_pages("Mira")`</tool>': ToolCall("search_pages", "Mira"),
    '<tool>view_sections("4821: Mira Talvoren")</tool>': ToolCall("view_sections", "4821: Mira Talvoren"),
    "<tool>read_section(4821:early_life)</tool>": ToolCall("read_section", "4821:early_life"),
    'Let me see. <tool>search_pages("Mira")</tool> That should help.': ToolCall("search_pages", "Mira"),
    '<tool>{"name": "search_pages", "arguments": {"query": "Mira"}}</tool>': ToolCall("search_pages", "Mira"),
    '<tool_call>\n{"name": "search_pages", "arguments": {"query": "Mira"}}\n</tool_call>': ToolCall("search_pages", "Mira"),
    '<tool_call>{"name": "search_pages", "arguments": {"query": "Mira"}}': ToolCall("search_pages", "Mira"),
    '{"name": "search_pages", "parameters": {"query": "Mira"}}': ToolCall("search_pages", "Mira"),
    '{"name": "search_pages", "arguments": "{\\"query\\": \\"Mira\\"}"}': ToolCall("search_pages", "Mira"),
    '<think>or <answer>1</answer>?</think><tool>search_pages("Mira")</tool>': ToolCall("search_pages", "Mira"),
}


QUOTATIONS = {
    '<answer section="4821:life"></answer>': Quotation("4821:life"),
    '<answer section="4821:life" lines="3-7"></answer>': Quotation("4821:life", (3, 7)),
    "<answer lines='3 \u2013 7' section='4821:life'>": Quotation("4821:life", (3, 7)),
    "<answer section=4821:life lines=3/>": Quotation("4821:life", (3, 3)),
    "<answer\n section = “4821:life” line=3>It was 1823.</answer>": Quotation("4821:life", (3, 3)),
    r'I know. <answer section_id="4821:file_>_\"save\"" />': Quotation('4821:file_>_"save"'),
    '<answer section="4821:life" lines="9999-1"></answer><answer>a</answer>': Quotation("4821:life", (9999, 1)),
}
BAD_QUOTATIONS = [
    '<answer section=""></answer>',
    "<answer section=“”></answer>",
    '<answer lines="3-7"></answer>',
    '<answer section="a" lines=""></answer>',
    '<answer section="a" lines="3-7-9"></answer>',
    '<answer section="a" lines="' + "9" * 5000 + '"></answer>',
    '<answer section="a" page="b"></answer>',
    '<answer section="a',
    '<answer section="a"',
]


@pytest.mark.parametrize("text", QUOTATIONS)
def test_quotations(text):
    assert parse_turn(text) == ParsedTurn(quotation=QUOTATIONS[text])
    assert not parse_turn(text).malformed


@pytest.mark.parametrize("text", BAD_QUOTATIONS)
def test_malformed_quotations_say_how_one_is_written(text):
    assert parse_turn(text) == ParsedTurn(problem=BAD_QUOTATION)
    assert parse_turn(text + "<answer>a</answer>").answer == "a"


@pytest.mark.parametrize("text", CASES)
def test_messages(text):
    assert parse_turn(text) == CASES[text]
    assert not parse_turn(text).malformed


@pytest.mark.parametrize("text", LOOSE)
def test_calls_whose_meaning_is_certain_are_taken(text):
    assert parse_turn(text) == ParsedTurn(call=LOOSE[text])


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_messages_say_what_is_wrong_with_them(text):
    parsed = parse_turn(text)
    assert parsed.malformed
    assert MALFORMED[text] in parsed.problem


def test_what_stands_in_thinking_is_no_call():
    text = '<think>I could write <tool>search_pages("a")</tool></think><answer>Paris</answer>'
    assert parse_turn(text) == ParsedTurn(answer="Paris")


_NATIVE = ["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "search_pages", "arguments": ', '{"query": "x"}', "}"]
_MARKS = ["\\", '"', "'", "“", "(", ")", ","]
_FRAGMENTS = st.sampled_from(
    [
        *_NATIVE,
        "<tool>",
        "</tool>",
        "<answer>",
        "</answer>",
        "<answer section=",
        " lines=",
        "3-7",
        ">",
        'search_pages("',
        "search_pages(",
        '")',
        "\\",
        '"',
        "'",
        "“",
        "(",
        ")",
        "\n",
        "x",
        ",",
    ]
)


@given(st.one_of(st.text(), st.lists(st.one_of(_FRAGMENTS, st.text(max_size=4)), max_size=30).map("".join)), st.booleans())
def test_no_text_raises_and_what_is_malformed_is_explained_in_one_line(text, programs):
    parsed = parse_turn(text, programs)
    assert [parsed.call, parsed.answer, parsed.program, parsed.quotation].count(None) == (4 if parsed.malformed else 3)
    assert bool(parsed.problem) == parsed.malformed
    assert len(parsed.problem.splitlines()) <= 1


@given(st.lists(st.one_of(_FRAGMENTS, st.text(max_size=4)), max_size=30).map("".join))
def test_calls_name_tools_by_a_plain_word(text):
    call = parse_turn(text).call
    assert call is None or (call.name.isprintable() and " " not in call.name)


@given(st.sampled_from(["search_pages", "view_sections", "read_section"]), st.text() | st.lists(_FRAGMENTS, max_size=9).map("".join))
def test_calls_come_back_as_written_and_hold_one_stop_text(name, argument):
    text = render_call(ToolCall(name, argument))
    assert parse_turn(text).call == ToolCall(name, argument.strip())
    assert sum(text.count(stop) for stop in (*TOOL_STOPS, PROGRAM_STOP)) == 1


_SPANS = st.none() | st.tuples(st.integers(0, 999_999), st.integers(0, 999_999))


@given(st.text() | st.lists(_FRAGMENTS, max_size=9).map("".join), _SPANS)
def test_quotations_come_back_as_written_and_hold_one_stop_text(section_id, lines):
    text = render_quotation(Quotation(section_id, lines))
    quotation = Quotation(section_id.strip(), lines) if section_id.strip() else None
    assert parse_turn(text).quotation == quotation
    assert sum(text.count(stop) for stop in (*TOOL_STOPS, PROGRAM_STOP)) == 1


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
        ("<code>never closed", ParsedTurn(problem="<code> is not closed: end it with </code>")),
        ("<code></code>", ParsedTurn(problem="the program is empty")),
        ("```python\nprint(1)\n```", ParsedTurn(problem=NOTHING)),
        ("<CODE>print(1)</CODE>", ParsedTurn(problem=NOTHING)),
        ("<answer>a</answer><code>b</code>", ParsedTurn(answer="a")),
        ('<tool>search_pages("b")</tool><code>c</code>', ParsedTurn(call=ToolCall("search_pages", "b"))),
        ("<answer><code>b</code></answer>", ParsedTurn(answer="<code>b</code>")),
    ],
)
def test_what_is_no_program_or_comes_too_late(text, parsed):
    assert parse_turn(text, programs=True) == parsed


@given(st.text())
def test_programs_come_back_as_written(program):
    kept = parse_turn(f"<code>\n{program}\n</code>", programs=True).program
    if any(tag in program for tag in ("</code>", "<think>", "</think>")) or not program.strip():
        return
    assert kept is not None
    assert kept.strip() == program.strip()
    assert kept in program, "nothing is changed, only blank lines around it are deleted"


_MORE = st.sampled_from(["<code>", "</code>", "<tool>", "</tool>", "<answer>", "</answer>", 'search_pages("', '")', "print(1)", "\n", " "])


@given(st.lists(st.one_of(_MORE, st.text(max_size=4)), max_size=30).map("".join))
def test_with_programs_no_text_raises_and_one_thing_counts(text):
    parsed = parse_turn(text, programs=True)
    assert [parsed.call, parsed.answer, parsed.program].count(None) >= 2
    if parsed.program is None:
        other = parse_turn(text)
        assert (parsed.call, parsed.answer) == (other.call, other.answer)


@given(st.text() | st.lists(st.one_of(_MORE, st.text(max_size=4)), max_size=30).map("".join))
def test_programs_are_off_unless_asked_for(text):
    assert parse_turn(text).program is None
    assert parse_turn(text) == parse_turn(text, programs=False)


_TEXTS = st.one_of(st.text(), st.lists(st.one_of(_FRAGMENTS, _MORE, st.text(max_size=4)), max_size=12).map("".join))


@given(_TEXTS, st.booleans())
def test_plain_text_is_an_answer_only_where_asked_for_and_where_nothing_else_counts(text, programs):
    usual, plain = parse_turn(text, programs), parse_turn(text, programs, plain=True)
    if plain == usual:
        assert usual.problem not in (NOTHING, UNTAGGED), "a message without a tag is an answer"
    else:
        assert usual.problem in (NOTHING, UNTAGGED, THINKING)
        assert plain == ParsedTurn(answer=" ".join(after_thinking(text).split()))
        assert plain.answer


@given(st.text(alphabet=st.characters(exclude_characters="<[{`(")), st.text(alphabet=st.characters(exclude_characters="<")))
def test_a_plain_answer_stands_without_thinking_and_spare_space(text, thought):
    answer = " ".join(text.split())
    for said in (text, f"<think>{thought}</think>{text}", f" \n{text}\t"):
        assert parse_turn(said, plain=True).answer == (answer or None)
    assert parse_turn(f"{text}<answer>1944</answer>", plain=True).answer == "1944"


@pytest.mark.parametrize("text", ["", " \n", "<think>1944", "<think>1944</think>", "<answer>1944", "<tool>1944</tool>"])
def test_an_empty_message_and_a_broken_tag_stay_malformed(text):
    assert parse_turn(text, plain=True).malformed
