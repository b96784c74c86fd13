"""Traces in a real SQLite store: their spans, assessments and callers, and what a kill left of them."""

import json
from typing import Any

import pytest
from mlflow.tracing.client import TracingClient

from slmsearch.serving.api.caller import Caller
from tasks.traces import EXPECTED, Assessment, Span
from tasks.tracking import Tracker
from tasks.tracking.tracker import TABLES


def test_traces_hold_turns_and_tools_and_are_linked_not_repeated(tracker: Tracker) -> None:
    document = {"id": "1", "page_content": "1: X", "metadata": {"doc_uri": "1"}}
    tool = Span("search_pages", "RETRIEVER", {"argument": "x"}, [document], 0.5, 1.0)
    turn = Span("turn 1", "CHAT_MODEL", {"turn": 1}, {"text": "<tool>"}, 0.0, 1.0, children=(tool,))
    root = Span("episode", "AGENT", {"question": "?"}, {"answer": "!"}, 0.0, 1.0, {"reward": 1.0}, (turn,))
    with tracker.run("first", "key") as first, tracker.run("second", "key") as second:
        for run_id in (first, second):
            tracker.record_traces(run_id, "evalkey", [(root, {"outcome": "right", "question_id": "q1"})])
    found = tracker.client.search_traces(locations=[tracker.experiment_id])
    assert len(found) == 1
    assert [(span.name, span.span_type) for span in found[0].data.spans] == [
        ("episode", "AGENT"),
        ("turn 1", "CHAT_MODEL"),
        ("search_pages", "RETRIEVER"),
    ]
    assert found[0].data.spans[2].outputs == [document]
    assert found[0].info.tags["outcome"] == "right"
    for run_id in (first, second):
        assert len(tracker.client.search_traces(locations=[tracker.experiment_id], run_id=run_id)) == 1


def test_a_trace_has_its_assessments_and_takes_more_once(tracker: Tracker) -> None:
    gold, right = Assessment(EXPECTED, "1823", "questions"), Assessment("correct", False, "typed match")
    tracker.record_trace(Span("episode", "AGENT", {"question": "?"}, {}, 0.0, 1.0, assessments=(gold, right)), {"question_id": "a1"})
    said = [Assessment("correct", True, "people", "HUMAN", "feedback-1"), Assessment(EXPECTED, "1824", "people", "HUMAN", "feedback-1")]
    assert [tracker.assess("a1", said) for _ in range(2)] == [True, True]
    assert not tracker.assess("a2", said)
    (trace,) = tracker.client.search_traces(locations=[tracker.experiment_id])
    found = [(one.name, one.value, one.source.source_type, one.source.source_id) for one in trace.info.assessments]
    assert sorted(found, key=str) == [
        ("correct", False, "CODE", "typed match"),
        ("correct", True, "HUMAN", "people"),
        ("expected_response", "1823", "CODE", "questions"),
        ("expected_response", "1824", "HUMAN", "people"),
    ]


def test_a_trace_names_who_asked_and_links_to_the_span_of_the_client(tracker: Tracker) -> None:
    caller = Caller("ada \ud800\x00", "s" * 300, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    tracker.record_trace(Span("episode", "AGENT", {}, "", 0.0, 1.0, caller=caller), {"question_id": "a1"})
    tracker.record_trace(Span("episode", "AGENT", {}, "", 0.0, 1.0), {"question_id": "a2"})
    found = {trace.info.tags["question_id"]: trace for trace in tracker.client.search_traces(locations=[tracker.experiment_id])}
    metadata = found["a1"].info.trace_metadata
    assert (
        metadata["mlflow.trace.user"].startswith("ada ")
        and "\x00" not in metadata["mlflow.trace.user"]
        and metadata["mlflow.trace.session"] == "s" * 250
    )
    (link,) = found["a1"].data.spans[0].links
    assert (link.trace_id.removeprefix("tr-"), link.span_id) == caller.parent
    assert not {"mlflow.trace.user", "mlflow.trace.session"} & set(found["a2"].info.trace_metadata)


def test_what_a_kill_left_of_a_table_and_of_traces_is_completed(tracker: Tracker) -> None:
    roots = [(Span("episode", "AGENT", {}, {}, 0.0, 1.0), {"question_id": f"q{number}"}) for number in range(3)]
    with tracker.run("evaluate", "key") as run_id:
        tracker.record_traces(run_id, "evalkey", roots[:1])
        tracker.record_table(run_id, [{"question": "Who?"}], "eval/abc.json")
        tracker.client.delete_tag(run_id, TABLES)
        tracker.record_traces(run_id, "evalkey", roots)
        tracker.record_table(run_id, [{"question": "Who?"}], "eval/abc.json")
    found = tracker.client.search_traces(locations=[tracker.experiment_id], run_id=run_id)
    assert sorted(trace.info.tags["question_id"] for trace in found) == ["q0", "q1", "q2"]
    assert json.loads(tracker.client.get_run(run_id).data.tags[TABLES]) == [{"path": "eval/abc.json", "type": "table"}]
    assert len(tracker.client.load_table(tracker.experiment_id, "eval/abc.json", [run_id])) == 1


@pytest.mark.parametrize(("request_", "call"), [("log_spans", 1), ("start_trace", 1), ("start_trace", 2)])
def test_a_kill_leaves_no_half_trace(tracker: Tracker, monkeypatch: pytest.MonkeyPatch, request_: str, call: int) -> None:
    turn = Span("turn 1", "CHAT_MODEL", {}, {}, 0.0, 1.0)
    roots = [(Span("episode", "AGENT", {}, {}, 0.0, 1.0, children=(turn,)), {"question_id": f"q{number}"}) for number in range(3)]
    send, calls = getattr(TracingClient, request_), []

    def send_or_die(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) == call:
            raise SystemExit(143)
        return send(*arguments, **named)

    monkeypatch.setattr(TracingClient, request_, send_or_die)
    with tracker.run("evaluate", "key") as run_id:
        with pytest.raises(SystemExit):
            tracker.record_traces(run_id, "evalkey", roots)
        assert len([*tracker.find_traces(tracker.experiment_id, "tags.eval_key = 'evalkey'")]) == call - 1
        tracker.record_traces(run_id, "evalkey", roots)
    found = tracker.client.search_traces(locations=[tracker.experiment_id], run_id=run_id)
    assert sorted((trace.info.tags["question_id"], len(trace.data.spans)) for trace in found) == [("q0", 2), ("q1", 2), ("q2", 2)]
