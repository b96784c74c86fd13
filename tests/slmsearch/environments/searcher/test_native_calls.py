"""Calls in the formats that chat templates teach models: the templates that TRL carries write them, the parser reads them back."""

import re
from functools import cache
from pathlib import Path

import pytest
import trl
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from slmsearch.config import SearcherConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.parsing import BAD_JSON, BAD_XML, SEVERAL, TOOL_STOPS, parse_turn
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import SEARCH, Toolbox
from slmsearch.episodes.episode import StopReason, ToolCall
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.sampling.openai_sampler import close_stopped
from tests.slmsearch.environments.searcher.test_rollout import LIBRARY, DictIndex

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
SPECIAL = re.compile(r"<\|(?:im_end|eot_id|eom_id|python_tag|tool_call_start|tool_call_end)\|>|</s>")
"""What samplers leave out of a turn's text; some servers do not."""
WRITTEN = {
    "JSON in tags": ("qwen3_instruct_2507", {}),
    "JSON in tags after an empty thought": ("qwen3", {}),
    "JSON": ("llama3_2", {}),
    "python tag": ("llama3_1", {"builtin_tools": [SEARCH]}),
    "XML": ("qwen3_5_nothink", {}),
    "XML after thoughts": ("qwen3_6", {}),
    "XML by others": ("nemotron_3_nano", {}),
    "list": ("lfm2_2_5", {}),
}
"""Format -> template, and the variables with which it writes it."""
UNESCAPED = {"python tag", "list"}
"""Templates that put an argument between quotes as it is: one with quotes or backslashes in it could mean several things."""
TOOLS = [{"type": "function", "function": {"name": SEARCH, "description": "d", "parameters": {"type": "object", "properties": {}}}}]


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"x": 0}, unk_token="x")), bos_token="<s>", eos_token="</s>")


def write(name: str, query: str) -> str:
    """Write a search as the template does: what a model is taught to write after the prompt."""
    file, variables = WRITTEN[name]
    template = (TEMPLATES / f"{file}.jinja").read_text(encoding="utf-8")
    user = [{"role": "user", "content": "Who?"}]
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": SEARCH, "arguments": {"query": query}}}],
    }
    given_to = {"tools": TOOLS, "chat_template": template, "tokenize": False, **variables}
    whole = tokenizer().apply_chat_template([*user, call], **given_to)
    prompt = tokenizer().apply_chat_template(user, add_generation_prompt=True, **given_to)
    shared = next(i for i in range(len(prompt) + 1) if prompt[i : i + 1] != whole[i : i + 1] or i == len(prompt))
    return whole[shared:].strip()


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_template_writes_is_read_with_and_without_special_tokens(name: str) -> None:
    said = write(name, "Mira Talvoren")
    texts = {SPECIAL.sub("", said), said.replace("<|im_end|>", "").replace("<|eot_id|>", "")}
    assert {parse_turn(text).call for text in texts} == {ToolCall(SEARCH, "Mira Talvoren")}, said


MARKS = str.maketrans("", "", "\\\"'`" + "".join(map(chr, [0x201C, 0x201D, 0x201E, 0x201F, 0xAB, 0xBB, 0x2018, 0x2019, 0x201A, 0x201B])))
QUERIES = st.text(max_size=20) | st.lists(
    st.sampled_from([*"\"'\\<>{}[](),=\n x", "</", "parameter>", "tool_call>", "<function=", "think>", "```", ", x="]),
    max_size=8,
).map("".join)  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from(sorted(WRITTEN)), QUERIES)
def test_a_query_comes_back_as_meant_or_not_at_all(name: str, query: str) -> None:
    if name in UNESCAPED:
        query = " ".join(query.translate(MARKS).split())
    text = SPECIAL.sub("", write(name, query))
    ends = [found + len(mark) for mark in TOOL_STOPS if (found := text.find(mark)) >= 0]
    parsed = parse_turn(text[: min(ends, default=len(text))])
    if not re.search(r"[<`]", query) and (name not in UNESCAPED or query):
        assert parsed.call is not None, "nothing but markup makes a call uncertain"
    assert parsed.call in (None, ToolCall(SEARCH, query.strip()))
    assert parsed.answer is None


ACCEPTED = [
    '```json\n{"name": "search_pages", "arguments": {"query": "Mira"}}\n```',
    'I search first.\n\n```json\n{"name": "search_pages", "parameters": {"query": "Mira"}}\n```\nThen I read.',
    '```\n[{"name": "search_pages", "arguments": {"query": "Mira"}}]\n```',
    '<tool>```json\n{"name": "search_pages", "arguments": {"query": "Mira"}}\n```</tool>',
    '<|python_tag|>{"name": "search_pages", "parameters": {"query": "Mira"}}<|eom_id|>',
    '<|python_tag|>search_pages(query="Mira")',
    '<|python_tag|>functions.search_pages("Mira")',
    'search_pages.call(query="Mira")',
    "<tool_call>\n<function=search_pages>\n<parameter=query>\nMira\n</parameter>\n</function>\n</tool_call>",
    "<function=search_pages><parameter=query>Mira</parameter></function>",
    '[search_pages(query="Mira")]',
    "[search_pages('Mira')]",
    "<think>[search_pages('Ada')]</think>\n[search_pages('Mira')]",
    '[{"name": "search_pages", "arguments": {"query": "Mira"}}]',
    '```json\n{"name": "search_pages", "arguments": {"query": "Mira"}}\n```\n<answer>1823</answer>',
    "<tool_call><function=search_pages><parameter=query>Mira</parameter></function></tool_call>"
    "<tool_call><function=search_pages><parameter=query>Ada</parameter></function></tool_call>",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_call_whose_meaning_is_certain_is_taken_and_the_first_counts(text: str) -> None:
    assert parse_turn(text).call == ToolCall(SEARCH, "Mira")


REFUSED = {
    '[search_pages(query="a"), search_pages(query="b")]': SEVERAL,
    "[search_pages('a'), search_pages('b')]": SEVERAL,
    "<tool>search_pages('a'), search_pages('b')</tool>": SEVERAL,
    "<|tool_call_start|>[search_pages(query='a'), read_section(section_id='b')]<|tool_call_end|>": SEVERAL,
    '[search_pages(query="a", top_k=5)]': SEVERAL,
    '<|python_tag|>{"name": "search_pages", "parameters": {"query": "a"}}; {"name": "read_section", "parameters": {"id": "b"}}': "no call",
    '<|python_tag|>import os\nos.system("ls")': "no call",
    '<|python_tag|>search_pages(open("/etc/passwd").read())': "not one string",
    "<tool_call><function=search_pages><parameter=query>a</parameter><parameter=k>5</parameter></function></tool_call>": BAD_XML,
    "<tool_call><function=search_pages><parameter=query>a</function></tool_call>": BAD_XML,
    "<tool_call>search_pages: Mira</tool_call>": BAD_JSON,
    '```json\n[{"name": "search_pages", "arguments": {"q": "a"}}, {"name": "read_section", "arguments": {"id": "b"}}]\n```': "write one",
    '```json\n{"query": "Mira"}\n```': "write one call",
    "```python\nsearch_pages('Mira')\n```": "between <tool> and </tool>",
    "[search_pages(Mira)]": "between <tool> and </tool>",
    "[Mira Talvoren](4821)": "write one call",
    "See [search_pages('Mira')] for more.": "between <tool> and </tool>",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_could_mean_several_things_is_no_call(text: str) -> None:
    parsed = parse_turn(text)
    assert parsed.malformed
    assert REFUSED[text] in parsed.problem


_FRAGMENTS = st.sampled_from(
    ["```json\n", "```", "<|python_tag|>", "<|tool_call_start|>", "<|tool_call_end|>", "<function=search_pages>", "<parameter=query>",
     "</parameter>", "</function>", "<tool_call>", "</tool_call>", "[", "]", "search_pages(",
     ".call(", "query=", '"x"', "'x'", ")", ", ", "\n",
     '{"name": "search_pages", "arguments": {"query": "x"}}', "<answer>", "</answer>", "<think>", "</think>", "\\"]
)  # fmt: skip


@given(st.lists(_FRAGMENTS | st.text(max_size=3), max_size=20).map("".join), st.booleans())
def test_no_text_raises_or_names_more_than_a_plain_tool(text: str, programs: bool) -> None:
    parsed = parse_turn(text, programs)
    assert bool(parsed.problem) == parsed.malformed and len(parsed.problem.splitlines()) <= 1
    assert parsed.call is None or re.fullmatch(r"[A-Za-z_]\w*", parsed.call.name)


def test_nothing_in_an_argument_is_evaluated_and_long_texts_are_read_in_no_time(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for form in ("[search_pages({})]", "<|python_tag|>search_pages({})", "search_pages.call(query={})"):
        parse_turn(form.format(f"open({str(mark)!r}, 'w')"))
        assert parse_turn(form.format("'1 + 1'")).call == ToolCall(SEARCH, "1 + 1")
    assert not mark.exists()
    for text in (
        "[" * 99_999,
        "<function=" * 9_999,
        "```json\n" * 5_000,
        "<|python_tag|>" * 5_000,
        "[f('" + "a'" * 9_999,
        "<parameter=q>" * 9_999,
    ):
        assert parse_turn(text).malformed


@pytest.mark.parametrize("text", [*ACCEPTED[:14], *(SPECIAL.sub("", write(name, "Mira")) for name in WRITTEN)])
def test_such_a_call_is_served_in_the_rollout_and_what_was_written_is_what_is_trained_on(text: str) -> None:
    messages = (text, "<answer>1823</answer>")
    sampler = ScriptedSampler(lambda question, results: messages[len(results)])
    toolbox = Toolbox(LIBRARY, DictIndex(), top_k=3, max_section_chars=200)
    config = SearcherConfig(max_episode_tokens=2000)
    (episode,) = play_episodes([Question("q1", "When was Mira born?", "1823")], sampler, toolbox, config, Sampling())
    first = episode.turns[0]
    assert (first.call, episode.stop_reason, episode.answer) == (ToolCall(SEARCH, "Mira"), StopReason.ANSWERED, "1823")
    assert first.result is not None and first.result.served and first.result.page_ids
    assert first.text == text, "nothing is rewritten into the format asked for"
    by_policy, by_tools = (
        bytes(i for i, m in zip(episode.completion_ids, episode.sampled_mask, strict=True) if m == mask).decode() for mask in (1, 0)
    )
    assert (by_policy, by_tools) == ("".join(messages), first.result.text)


def test_a_served_policy_whose_stop_text_the_server_keeps_writes_its_own_format_too() -> None:
    said = "<tool_call>\n<function=search_pages>\n<parameter=query>\nMira\n</parameter>\n</function>\n"
    assert parse_turn(close_stopped(said, TOOL_STOPS)).call == ToolCall(SEARCH, "Mira")
