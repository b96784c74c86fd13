"""Against a real SQLite store in a temporary folder."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.genai.review_queues import get_review_queue, list_review_queue_items
from mlflow.tracing.client import TracingClient
from mlflow.tracing.constant import TraceMetadataKey

from slmsearch.config import PathsConfig, RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.records import parse_question
from tasks.traces import CORRECT, EXPECTED, Assessment, Span
from tasks.tracking import Tracker, find_wrong, hash_questions, keep_questions, open_tracker, question_sets, record_questions
from tests.flows.test_commands import Invoke, invoke

__all__ = ["invoke"]


@pytest.fixture
def tracker(tmp_path: Path) -> Tracker:
    config = RunConfig(paths=PathsConfig(mlruns_dir=str(tmp_path / "mlruns")))
    return open_tracker(config.paths, config.tracking)


def ask(tracker: Tracker, name: str, *said: Assessment, source: str = "service", **inputs: str) -> None:
    root = Span("episode", "AGENT", {"question": f"{name}?", **inputs}, {"answer": "A"}, 0.0, 1.0, assessments=said)
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
    out = tmp_path / "new" / "again.jsonl"
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
    queue = get_review_queue(name="again", experiment_id=tracker.experiment_id)
    items = {item.item_id for item in list_review_queue_items(queue.queue_id)}
    assert items == {wrong[question].trace_id for question in ("wrong?", "numbered?")}, "once each, also those answered meanwhile"
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    asked = [parse_question(row, "line 1", lambda _: []) for row in rows]  # type: ignore[arg-type, return-value]
    assert {(one.question, one.answer, one.source) for one in asked} == {("wrong?", "B", "traces"), ("corrected?", "Ä", "traces")}


def test_a_trace_that_lacks_spans_is_read_too(tracker: Tracker) -> None:
    """MLflow's own tracing leaves such a trace where a server was killed, and refuses to read it."""
    ask(tracker, "half", person(False))
    (info,) = tracker.find_traces(tracker.experiment_id, "tags.question_id = 'half'")
    client = TracingClient(tracker.uri)
    stats = json.loads(info.trace_metadata[TraceMetadataKey.SIZE_STATS])
    info.trace_metadata[TraceMetadataKey.SIZE_STATS] = json.dumps({**stats, "num_spans": 4})
    client.start_trace(info)
    with pytest.raises(MlflowException, match="not fully exported"):
        tracker.client.get_trace(info.trace_id)
    assert [one.question for one in find_wrong(tracker)] == ["half?"]


def test_a_question_asked_again_has_the_last_verdict_and_the_last_right_answer(tracker: Tracker) -> None:
    said = {
        "righted": [(False, None), (True, None)],
        "still wrong": [(False, "Ä"), (False, None)],
        "wrong after all": [(True, None), (False, None)],
    }
    for question, answers in said.items():
        for number, (verdict, answer) in enumerate(answers):
            told = [person(verdict), *([person(answer, EXPECTED)] if answer else [])]
            timed = [replace(one, created=1_700_000_000 + number) for one in told]
            root = Span("episode", "AGENT", {"question": question}, "A", 0.0, 1.0, assessments=tuple(timed))
            tracker.record_trace(root, {"source": "service", "question_id": f"{question} {number}"})
    ask(tracker, "of a folder", person(False), within="folder: reports/2024")
    found = {one.question: one for one in find_wrong(tracker)}
    assert {question: one.answer for question, one in found.items()} == {"still wrong": "Ä", "wrong after all": None}
    last = [info.trace_id for info in tracker.find_traces(tracker.experiment_id, "tags.question_id = 'still wrong 1'")]
    assert [found["still wrong"].trace_id] == last


def test_the_questions_of_an_evaluation_are_a_data_set_and_an_input_of_its_run(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_sets, "RECORDS_AT_ONCE", 2)
    asked = [Question(f"q{number}", f"Which {number}?", str(number), ("zero",) if not number else ()) for number in range(5)]
    names = []
    for key in ("first", "second"):
        with tracker.run("evaluate", key) as run_id:
            names += [record_questions(tracker, run_id, "validation", asked), record_questions(tracker, run_id, "validation", asked[:2])]
            inputs = [one.dataset for one in tracker.client.get_run(run_id).inputs.dataset_inputs]
            assert [one.name for one in inputs] == names[-2:]
    assert names[:2] == names[2:] and len({*names}) == 2
    sets = {one.name: one for one in tracker.client.search_datasets([tracker.experiment_id])}
    assert sets.keys() == {*names}, "made once"
    records = {one.inputs["question"]: one.expectations for one in tracker.client.get_dataset(sets[names[0]].dataset_id).records}
    assert len(records) == 5 and records["Which 0?"] == {EXPECTED: "0", "aliases": ["zero"]}
    assert json.loads(inputs[0].source)["dataset_id"] == sets[names[0]].dataset_id


def test_a_data_set_whose_maker_was_killed_is_completed(tracker: Tracker) -> None:
    asked = [Question(f"q{number}", f"Which {number}?", str(number)) for number in range(3)]
    with tracker.run("evaluate", "key") as run_id:
        name = record_questions(tracker, run_id, "test", asked)
        (found,) = tracker.client.search_datasets([tracker.experiment_id])
        found.delete_records([found.records[0].dataset_record_id])
        assert record_questions(tracker, run_id, "test", asked) == name
    assert len(tracker.client.get_dataset(found.dataset_id).records) == 3


def test_the_hash_of_a_data_set_is_that_of_its_questions(tracker: Tracker) -> None:
    ask(tracker, "wrong", person(False))
    wrong = find_wrong(tracker)
    first, second = (keep_questions(tracker, name, wrong) for name in ("a", "b"))
    before = hash_questions(tracker, first)
    assert before == hash_questions(tracker, second)
    keep_questions(tracker, "a", [replace(wrong[0], answer="Ä")])
    assert hash_questions(tracker, first) != before


def test_without_such_traces_the_set_is_empty(tracker: Tracker) -> None:
    assert find_wrong(tracker) == []
    assert not tracker.client.get_dataset(keep_questions(tracker, "none", [])).records


def test_a_name_that_a_filter_would_read_is_refused(invoke: Invoke) -> None:
    code, _, said = invoke("dataset", "from-traces", "--name", "it's")
    assert code == 2 and "take letters" in said
