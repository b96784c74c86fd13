import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.failure_modes import measure_episode
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, ToolResult, Turn
from slmsearch.episodes.reward import Reward
from slmsearch.episodes.rows import make_row
from slmsearch.judge import Verdict
from tasks.traces import MAX_SPAN_CHARS, MAX_TURNS, USAGE, episode_span, trace_tags

QUESTION = Question("q1", "When was Mira born?", "1823", page_ids=("mira",), kind="one_hop", hops=1)


def play(*turns: Turn, stop_reason: StopReason = StopReason.ANSWERED) -> Episode:
    return Episode("q1", turns, stop_reason, seconds=6.0)


def row(episode: Episode, correct: bool = True):  # type: ignore[no-untyped-def]
    return make_row(QUESTION, episode, Verdict(correct), Reward(1.0, {}), measure_episode(QUESTION, episode))


def test_an_episode_becomes_a_tree_of_turns_and_tool_calls() -> None:
    search = Turn("s", ToolCall("search_pages", "Mira"), None, ToolResult("mira: Mira", True, ("mira",)), sampled_ids=(1, 2))
    read = Turn("r", ToolCall("read_section", "nowhere"), None, ToolResult("no such section", False), context_ids=(3,))
    episode = play(search, read, Turn("a", answer="1823"))
    span = episode_span(episode, row(episode))
    assert (span.kind, span.inputs, span.outputs) == ("AGENT", {"question": QUESTION.question}, "1823")
    assert [turn.name for turn in span.children] == ["turn 1", "turn 2", "turn 3"]
    assert [(turn.start_s, turn.end_s) for turn in span.children] == [(0, 2), (2, 4), (4, 6)]
    tools = [tool for turn in span.children for tool in turn.children]
    assert [(tool.kind, tool.name, tool.attributes["served"]) for tool in tools] == [
        ("RETRIEVER", "search_pages", True),
        ("TOOL", "read_section", False),
    ]
    for turn, tool in zip(span.children, tools, strict=False):
        assert turn.start_s < tool.start_s < tool.end_s <= turn.end_s


def test_a_turn_says_how_many_tokens_it_read_and_wrote() -> None:
    turns = Turn("s", sampled_ids=(1, 2)), Turn("r", context_ids=(3, 4, 5), sampled_ids=(6,)), Turn("served elsewhere", answer="1823")
    episode = replace(play(*turns), prompt_ids=(9,) * 10)
    found = [turn.attributes.get(USAGE) for turn in episode_span(episode, row(episode)).children]
    assert found[:2] == [
        {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12},
        {"input_tokens": 15, "output_tokens": 1, "total_tokens": 16},
    ]
    assert found[2] is None, "MLflow would count zero tokens"


def test_what_was_searched_and_read_are_documents() -> None:
    found = ToolResult(
        "b:first: Brixa\nFounded in 1501,\na: note in a text.\n\na: Alba\nc: Cortona", True, ("b", "a", "c"), ("b:first",), (0.5, 0.25, 0.0)
    )
    search, read = Turn("s", ToolCall("search_pages", "x"), None, found), Turn("r", ToolCall("read_section", "a"), None)
    read = replace(read, result=ToolResult("## History\nOld.", True, ("a",), ("a:history",)))
    none, view = replace(search, result=ToolResult("no pages found", True)), Turn("v", ToolCall("view_sections", "a"), None)
    episode = play(search, read, none, replace(view, result=ToolResult("a:history: History", True, ("a",), ("a:history",))))
    tools = [tool for turn in episode_span(episode, row(episode)).children for tool in turn.children]
    assert [tool.kind for tool in tools] == ["RETRIEVER", "RETRIEVER", "RETRIEVER", "TOOL"]
    assert [(one["id"], one["metadata"]) for one in tools[0].outputs] == [
        ("b", {"doc_uri": "b", "rank": 1, "score": 0.5}),
        ("a", {"doc_uri": "a", "rank": 2, "score": 0.25}),
        ("c", {"doc_uri": "c", "rank": 3, "score": 0.0}),
    ]
    assert [one["page_content"] for one in tools[0].outputs] == [
        "b:first: Brixa\nFounded in 1501,\na: note in a text.",
        "a: Alba",
        "c: Cortona",
    ]
    assert tools[1].outputs == [{"id": "a:history", "page_content": "## History\nOld.", "metadata": {"doc_uri": "a:history", "page": "a"}}]
    assert (tools[2].outputs, tools[3].outputs) == ([], {"text": "a:history: History"})


@given(st.text(), st.lists(st.text(max_size=8), max_size=4, unique=True))
def test_of_any_result_every_page_is_one_document(text: str, pages: list[str]) -> None:
    episode = play(Turn("s", ToolCall("search_pages", "x"), None, ToolResult(text, True, tuple(pages))))
    (tool,) = episode_span(episode, row(episode)).children[0].children
    assert [one["metadata"]["rank"] for one in tool.outputs] == [*range(1, len(pages) + 1)]
    json.dumps(tool.outputs).encode()


def test_gold_and_verdicts_are_assessments() -> None:
    episode = play(Turn("a", answer="1824"))
    assert [(one.name, one.value, one.source, one.by) for one in episode_span(episode, row(episode)).assessments] == [
        ("expected_response", "1823", "questions", "CODE"),
        ("correct", True, "typed match", "CODE"),
        ("exact_match", False, "exact match", "CODE"),
        ("f1", 0.0, "token F1", "CODE"),
    ]


@pytest.mark.parametrize(
    ("answer", "gold", "asked"),
    [
        ("1823", "1824", True),
        ("1823", "1823", False),
        ("I don't know", "1823", False),
        ("", "1823", False),
        ("1823", "I don't know", False),
    ],
)
def test_only_where_no_rule_decides_a_verdict_is_the_judge_s(answer: str, gold: str, asked: bool) -> None:
    episode = play(Turn("a", answer=answer))
    question = Question("q1", "When?", gold)
    judged = episode_span(episode, make_row(question, episode, Verdict(False), Reward(0.0, {})), "qwen2.5:7b").assessments[1]
    assert (judged.source, judged.by) == (("qwen2.5:7b", "LLM_JUDGE") if asked else ("typed match", "CODE"))


def test_what_is_large_or_odd_is_bounded() -> None:
    turn = Turn("x" * 10_000, ToolCall("view_sections", "\ud800"), None, ToolResult("y" * 10_000, True))
    episode = play(*[turn] * 100, stop_reason=StopReason.MAX_TURNS)
    span = episode_span(episode, row(episode, False))
    assert len(span.children) == MAX_TURNS
    first = span.children[0]
    assert len(first.outputs["text"]) < MAX_SPAN_CHARS + 50
    assert "10000 characters" in first.children[0].outputs["text"]
    first.children[0].inputs["argument"].encode()


def test_an_episode_without_turns_is_a_span_too() -> None:
    episode = play(stop_reason=StopReason.MAX_TOKENS)
    assert episode_span(episode, row(episode, False)).children == ()


def test_traces_are_filtered_by_how_they_went() -> None:
    episode = play(Turn("a", answer="1823"))
    assert trace_tags(row(episode))["outcome"] == "right"
    assert trace_tags(row(episode, False)) == {
        "question_id": "q1",
        "kind": "one_hop",
        "source": "",
        "stop_reason": "answered",
        "outcome": "wrong",
        "failure_mode": "no_search",
    }
