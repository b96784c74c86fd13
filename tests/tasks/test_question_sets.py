"""Against a real SQLite store in a temporary folder."""

import json
from pathlib import Path

import pytest

from slmsearch.config import PathsConfig, RunConfig
from slmsearch.corpus.records import parse_question
from tasks.traces import CORRECT, EXPECTED, Assessment, Span
from tasks.tracking import Tracker, find_wrong, keep_questions, open_tracker
from tests.flows.test_commands import Invoke, invoke

__all__ = ["invoke"]


@pytest.fixture
def tracker(tmp_path: Path) -> Tracker:
    config = RunConfig(paths=PathsConfig(mlruns_dir=str(tmp_path / "mlruns")))
    return open_tracker(config.paths, config.tracking)


def ask(tracker: Tracker, name: str, *said: Assessment, source: str = "service") -> None:
    root = Span("episode", "AGENT", {"question": f"{name}?"}, {"answer": "A"}, 0.0, 1.0, assessments=said)
    tracker.record_trace(root, {"source": source, "question_id": name})


def person(value: bool | str, name: str = CORRECT, id: str = "f1") -> Assessment:
    return Assessment(name, value, "people", "HUMAN", id)


def test_what_people_called_wrong_is_asked_again(tracker: Tracker, tmp_path: Path, invoke: Invoke) -> None:
    ask(tracker, "praised", person(True))
    ask(tracker, "silent")
    ask(tracker, "evaluated", Assessment(CORRECT, False, "typed match"), source="")
    ask(tracker, "judged", Assessment(CORRECT, False, "qwen", "LLM_JUDGE"))
    ask(tracker, "wrong", person(False))
    ask(tracker, "corrected", person(False), person("Ä", EXPECTED))
    ask(tracker, "withdrawn", person(False))
    ask(tracker, "numbered", person(False), person(1823.0, EXPECTED))  # type: ignore[arg-type]
    tracker.record_trace(Span("odd", "AGENT", {}, {}, 0.0, 1.0, assessments=(person(False),)), {"source": "service", "question_id": "odd"})
    assert tracker.assess("withdrawn", [person(True, id="f2")])
    wrong = {one.question: one for one in find_wrong(tracker)}
    assert {question: one.answer for question, one in wrong.items()} == {"wrong?": None, "corrected?": "Ä", "numbered?": None}
    first = keep_questions(tracker, "again", [wrong["wrong?"]])
    assert tracker.assess("wrong", [person("B", EXPECTED, "f3")])
    out = tmp_path / "again.jsonl"
    store = ["--paths.mlruns_dir", str(tmp_path / "mlruns")]
    code, said, _ = invoke("dataset", "from-traces", "--name", "again", "--out", str(out), *store, "--json")
    told = json.loads(said)
    assert code == 0
    assert (told["dataset_id"], told["questions"], told["with_answer"], told["file"]) == (first, 3, 2, str(out))
    stored = tracker.client.get_dataset(first)
    records = {record.inputs["question"]: record for record in stored.records}
    assert {question: record.expectations for question, record in records.items()} == {
        "wrong?": {EXPECTED: "B"},
        "corrected?": {EXPECTED: "Ä"},
        "numbered?": {},
    }
    assert records["wrong?"].source.source_data == {"trace_id": wrong["wrong?"].trace_id}
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    asked = [parse_question(row, "line 1", lambda _: []) for row in rows]  # type: ignore[arg-type, return-value]
    assert {(one.question, one.answer, one.source) for one in asked} == {("wrong?", "B", "traces"), ("corrected?", "Ä", "traces")}


def test_without_such_traces_the_set_is_empty(tracker: Tracker) -> None:
    assert find_wrong(tracker) == []
    assert not tracker.client.get_dataset(keep_questions(tracker, "none", [])).records


def test_a_name_that_a_filter_would_read_is_refused(invoke: Invoke) -> None:
    code, _, said = invoke("dataset", "from-traces", "--name", "it's")
    assert code == 2 and "take letters" in said
