"""Questions as data sets: those of an evaluation, and those whose answers people called wrong, to be reviewed and asked again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlflow.data.evaluation_dataset_source import EvaluationDatasetSource
from mlflow.entities import Dataset, DatasetRecordSourceType, Expectation, Feedback
from mlflow.genai.label_schemas import InputText, create_label_schema, get_label_schema
from mlflow.genai.review_queues import add_items_to_review_queue, create_review_queue, get_review_queue
from mlflow.tracing.client import TracingClient

from slmsearch.corpus.questions import Question
from slmsearch.keys import content_key
from tasks.traces import CORRECT, EXPECTED, WITHIN
from tasks.tracking.service import as_service, if_there
from tasks.tracking.tracker import Tracker

RECORDS_AT_ONCE = 1000
"""Records that one request to a server may hold."""
ITEMS_AT_ONCE = 100
"""Traces that one request may put into a review queue."""


@dataclass(frozen=True, slots=True)
class WrongQuestion:
    """A question whose answer somebody called wrong."""

    trace_id: str
    question: str
    answer: str | None
    """Right answer, if it was given."""


@as_service
def find_wrong(tracker: Tracker) -> list[WrongQuestion]:
    """Return the questions of the service whose last verdict by a person is "wrong", the oldest first, each once.

    A question that was asked several times has the last verdict of all of its traces, and the last right answer that was given.

    Raises:
        ServiceError: the store cannot be read.
    """
    said: dict[str, list[tuple[int, str, Any]]] = {}
    for info in sorted(tracker.find_traces(tracker.experiment_id, "tags.source = 'service'"), key=lambda info: info.request_time):
        people = [one for one in info.assessments if isinstance(one, Feedback | Expectation) and one.source.source_type == "HUMAN"]
        if people and (question := _read_question(tracker, info.trace_id)):
            said.setdefault(question, []).extend((one.create_time_ms or 0, info.trace_id, one) for one in people)
    found = (_find_last(question, sorted(given, key=lambda one: one[0])) for question, given in said.items())
    return [one for one in found if one is not None]


def _read_question(tracker: Tracker, trace_id: str) -> str | None:
    """Return the question of a trace; None if it was about some pages alone, of which another answer may be right."""
    # Also of a trace that lacks spans, as others may write it: by itself MLflow waits for them, and refuses the trace.
    trace = TracingClient(tracker.uri).store.get_trace(trace_id, allow_partial=True)
    roots = [span.inputs for span in trace.data.spans if span.parent_id is None]
    asked = (roots[0] or {}) if roots else {}
    question = asked.get("question")
    return question if isinstance(question, str) and WITHIN not in asked else None


def _find_last(question: str, said: Sequence[tuple[int, str, Any]]) -> WrongQuestion | None:
    """Return a question if the last verdict on it is "wrong", with the trace of that verdict.

    Args:
        question: its text.
        said: time, trace and assessment of all that people said of it, the oldest first.
    """
    verdicts = [(trace_id, one.value) for _, trace_id, one in said if one.name == CORRECT]
    if not verdicts or verdicts[-1][1] is not False:
        return None
    answers = [one.value.strip() for _, _, one in said if one.name == EXPECTED and isinstance(one.value, str) and one.value.strip()]
    return WrongQuestion(verdicts[-1][0], question, answers[-1] if answers else None)


@as_service
def record_questions(tracker: Tracker, run_id: str, split: str, questions: Sequence[Question]) -> str:
    """Name the questions of an evaluation as an input of its run: an evaluation data set of the experiment, made once; return its name.

    The name and the digest are those of the questions and their answers; MLflow's own digest changes with the time of writing.

    Raises:
        ServiceError: the store cannot be written to.
    """
    records = {
        one.question: {"inputs": {"question": one.question}, "expectations": {EXPECTED: one.answer, "aliases": [*one.aliases]}}
        for one in questions
    }
    digest = content_key(questions=[*records.values()])
    name = f"{split}-{digest[:12]}"
    with tracker.lock:
        found = tracker.client.search_datasets([tracker.experiment_id], f"name = '{name}'", max_results=1)
        dataset = found[0] if found else tracker.client.create_dataset(name, [tracker.experiment_id])
        if json.loads(dataset.profile or "{}").get("num_records", 0) < len(records):  # new, or a killed process made it
            rows = [*records.values()]
            for start in range(0, len(rows), RECORDS_AT_ONCE):
                dataset.merge_records(rows[start : start + RECORDS_AT_ONCE])
    source, profile = EvaluationDatasetSource(dataset.dataset_id), json.dumps({"num_records": len(records)})
    entity = Dataset(name, digest, EvaluationDatasetSource._get_source_type(), json.dumps(source.to_dict()), profile=profile)
    tracker.link_dataset(run_id, entity, "evaluation")
    return name


@as_service
def keep_questions(tracker: Tracker, name: str, questions: Sequence[WrongQuestion]) -> str:
    """Add questions to a data set of the experiment, which is made if it is missing; a question that it has is completed. Return its id.

    Those without a right answer wait in the review queue of the same name, whose reviewers are asked for it.

    Args:
        tracker: records into the experiment.
        name: the data set's name, of letters, digits, dots and dashes; of several with that name the newest counts.
        questions: each once.

    Raises:
        ServiceError: the store cannot be written to.
    """
    with tracker.lock:  # of two that make the same data set or queue at a time one fails
        found = tracker.client.search_datasets([tracker.experiment_id], f"name = '{name}'", max_results=1, order_by=["created_time DESC"])
        dataset = found[0] if found else tracker.client.create_dataset(name, [tracker.experiment_id])
        if questions:
            dataset.merge_records(
                [
                    {
                        "inputs": {"question": one.question},
                        "expectations": {} if one.answer is None else {EXPECTED: one.answer},
                        "source": {"source_type": DatasetRecordSourceType.TRACE.value, "source_data": {"trace_id": one.trace_id}},
                    }
                    for one in questions
                ]
            )
            _ask_for_answers(tracker, name, [one.trace_id for one in questions if one.answer is None])
    return str(dataset.dataset_id)


def _ask_for_answers(tracker: Tracker, name: str, trace_ids: Sequence[str]) -> None:
    """Put traces into a review queue of the experiment, which has one question to people; those that were in it stay as they are."""
    here: dict[str, Any] = {"experiment_id": tracker.experiment_id}
    queue = if_there(lambda: get_review_queue(name=name, **here))
    if queue is None:
        schema = if_there(lambda: get_label_schema(EXPECTED, **here)) or create_label_schema(
            EXPECTED, type="expectation", input=InputText(), instruction="What is the right answer, in a few words of the text?", **here
        )
        queue = create_review_queue(name, queue_type="custom", schema_ids=[schema.schema_id], **here)
    for start in range(0, len(trace_ids), ITEMS_AT_ONCE):
        add_items_to_review_queue(queue.queue_id, item_ids=[*trace_ids[start : start + ITEMS_AT_ONCE]])


@as_service
def hash_questions(tracker: Tracker, dataset_id: str) -> str:
    """Hash the questions and right answers of a data set; MLflow's own digest changes with the time of writing.

    Raises:
        ServiceError: the store cannot be read.
    """
    records = tracker.client.get_dataset(dataset_id).records
    return content_key(questions=sorted(json.dumps([one.inputs, one.expectations], sort_keys=True) for one in records))
