"""Questions of traces as a data set: what people called wrong is there to be reviewed, completed, and asked again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlflow.entities import DatasetRecordSourceType

from tasks.traces import CORRECT, EXPECTED
from tasks.tracking.service import as_service
from tasks.tracking.tracker import Tracker


@dataclass(frozen=True, slots=True)
class WrongQuestion:
    """A question whose answer somebody called wrong."""

    trace_id: str
    question: str
    answer: str | None
    """Right answer, if it was given."""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """MLflow's data set of questions."""

    name: str
    dataset_id: str
    digest: str


@as_service
def find_wrong(tracker: Tracker) -> list[WrongQuestion]:
    """Return the questions of the service whose last verdict by a person is "wrong", the oldest first.

    Raises:
        ServiceError: the store cannot be read.
    """
    return list(_find_wrong(tracker))


def _find_wrong(tracker: Tracker) -> Iterator[WrongQuestion]:
    traces = tracker.find_traces(tracker.experiment_id, "tags.source = 'service'")
    for info in sorted(traces, key=lambda info: info.request_time):
        said = [one for one in info.assessments if one.source.source_type == "HUMAN"]
        said.sort(key=lambda one: one.create_time_ms)
        last = {one.name: one.value for one in said}
        if last.get(CORRECT) is False:
            (root,) = (span for span in tracker.client.get_trace(info.trace_id).data.spans if span.parent_id is None)
            yield WrongQuestion(info.trace_id, str(root.inputs["question"]), last.get(EXPECTED))


@as_service
def keep_questions(tracker: Tracker, name: str, questions: Sequence[WrongQuestion]) -> QuestionSet:
    """Add questions to a data set of the experiment, which is made if it is missing; a question that it has is completed.

    Raises:
        ServiceError: the store cannot be written to, or has several data sets of that name.
    """
    found = tracker.client.search_datasets([tracker.experiment_id], f"name = '{name}'", max_results=1)
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
    stored = tracker.client.get_dataset(dataset.dataset_id)
    return QuestionSet(name, str(stored.dataset_id), str(stored.digest))
