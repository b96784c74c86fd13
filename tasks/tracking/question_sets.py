"""Questions of traces as a data set: what people called wrong is there to be reviewed, completed, and asked again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlflow.entities import DatasetRecordSourceType, Expectation, Feedback

from tasks.traces import CORRECT, EXPECTED, WITHIN
from tasks.tracking.service import as_service
from tasks.tracking.tracker import Tracker


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

    Raises:
        ServiceError: the store cannot be read.
    """
    traces = tracker.find_traces(tracker.experiment_id, "tags.source = 'service'")
    found = (_read(tracker, info) for info in sorted(traces, key=lambda info: info.request_time))
    return [*{one.question: one for one in found if one is not None}.values()]


def _read(tracker: Tracker, info: Any) -> WrongQuestion | None:
    """Return the question of a trace that was answered wrongly, and the right answer if it is a text."""
    said = [one for one in info.assessments if isinstance(one, Feedback | Expectation) and one.source.source_type == "HUMAN"]
    last = {one.name: one.value for one in sorted(said, key=lambda one: one.create_time_ms or 0)}
    if last.get(CORRECT) is not False:
        return None
    roots = [span.inputs for span in tracker.client.get_trace(info.trace_id).data.spans if span.parent_id is None]
    question, answer = (roots[0] or {}).get("question") if roots else None, last.get(EXPECTED)
    known = answer.strip() if isinstance(answer, str) and answer.strip() else None
    if roots and WITHIN in (roots[0] or {}):
        return None  # of other pages another answer may be right
    return WrongQuestion(info.trace_id, question, known) if isinstance(question, str) else None


@as_service
def keep_questions(tracker: Tracker, name: str, questions: Sequence[WrongQuestion]) -> str:
    """Add questions to a data set of the experiment, which is made if it is missing; a question that it has is completed. Return its id.

    Args:
        tracker: of the experiment.
        name: of the data set, of letters, digits, dots and dashes; of several with that name the newest counts.
        questions: each once.

    Raises:
        ServiceError: the store cannot be written to.
    """
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
    return str(dataset.dataset_id)
