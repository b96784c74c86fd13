"""Traces in MLflow of a sample of the service's episodes, and people's feedback on them, written in the background.

Feedback is first a line of a log that survives kills. From there it goes to the trace of its answer, also of one outside the sample; a file
beside the log counts the lines that are done, so that what a store or this process could not do is done later.
"""

import logging
import queue
import random
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from slmsearch.artifacts.files import replace_text
from slmsearch.errors import ServiceError, SlmSearchError
from slmsearch.serving.api.feedback import Feedback, FeedbackLog
from slmsearch.serving.api.playing import Answer
from tasks.traces import CORRECT, EXPECTED, Assessment, Span, served_span
from tasks.tracking import Tracker

MAX_WAITING = 100
"""Maximum number of episodes that wait to be written; further ones are not recorded."""
REMEMBERED = 1000
"""Number of latest answers whose episode is at hand when feedback comes; feedback on an older one makes a trace without turns."""
AGAIN_SECONDS = 5.0
"""Time between two tries to write feedback while the store does not take it."""
CLOSE_SECONDS = 5.0
"""Time limit to write waiting episodes when the service ends."""
PEOPLE = "people"
"""Source of the assessments that feedback becomes."""
_ANSWER_ID = re.compile(r"(?:chatcmpl-)?([0-9a-f]{32})")
log = logging.getLogger(__name__)


class ServedTraces:
    """Recorder of a share of the answers and of all feedback, in a thread of its own."""

    def __init__(self, open_store: Callable[[], Tracker], frac: float, feedback: FeedbackLog | None = None) -> None:
        """Start recording a share of the answers, and the feedback of a log; the thread opens the store."""
        self._open_store, self._frac, self._feedback = open_store, frac, feedback
        self._waiting: queue.Queue[tuple[str, Answer] | None] = queue.Queue(MAX_WAITING)
        self._latest: OrderedDict[str, tuple[str, Answer]] = OrderedDict()
        """Latest questions and answers by the id of the question."""
        self._lock = threading.Lock()
        self._given = threading.Event()
        """Event of feedback that may not be written yet."""
        self._chance = random.Random()
        if feedback is not None:
            feedback.on_append = self._given.set
            self._given.set()
        self._thread = threading.Thread(target=self._write, name="traces", daemon=True)
        self._thread.start()

    def offer(self, question: str, answer: Answer) -> None:
        """Queue an answer if it is in the sample; return at once."""
        with self._lock:
            self._latest[answer.episode.question_id] = question, answer
            while len(self._latest) > REMEMBERED:
                self._latest.popitem(last=False)
        if self._chance.random() >= self._frac:
            return
        try:
            self._waiting.put_nowait((question, answer))
        except queue.Full:
            log.warning("a trace was not recorded: %d wait to be written", MAX_WAITING)

    def close(self) -> None:
        """Write the waiting episodes, for at most `CLOSE_SECONDS`."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning("%d traces were not recorded: the store is too slow", self._waiting.qsize())

    def _write(self) -> None:
        self._try(self._open_store)  # takes seconds the first time, while the policy is loaded
        is_over = False
        while not is_over:
            with suppress(queue.Empty):
                item = self._waiting.get(timeout=AGAIN_SECONDS if self._feedback is not None else None)
                is_over = item is None
                if item is not None:
                    self._try(partial(self._record, *item))
            if self._feedback is not None and self._given.is_set():
                self._given.clear()
                if not self._try(partial(self._record_feedback, self._feedback)):
                    self._given.set()

    def _record(self, question: str, answer: Answer) -> None:
        self._open_store().record_trace(served_span(answer.episode, question), _tags(answer))

    def _record_feedback(self, feedback: FeedbackLog) -> None:
        """Write the feedback that is not on its trace yet."""
        done_file, given = feedback.path.with_name(f"{feedback.path.name}.traced"), feedback.read().records
        done = int(done_file.read_text()) if done_file.exists() else 0
        for number, one in enumerate(given[done:], start=done + 1):
            self._assess(one)
            replace_text(done_file, str(number))

    def _assess(self, given: Feedback) -> None:
        """Write feedback to the trace of its answer, and make that trace if there is none."""
        found = _ANSWER_ID.fullmatch(given.completion or "")
        name = found[1] if found else given.id
        assessments = [Assessment(CORRECT, given.verdict == "right", PEOPLE, "HUMAN", given.id)]
        if given.correct_answer is not None:
            assessments.append(Assessment(EXPECTED, given.correct_answer, PEOPLE, "HUMAN", given.id))
        if self._open_store().assess(name, assessments):
            return
        with self._lock:
            question, answer = self._latest.get(name, (given.question, None))
        if answer is not None:
            span, tags = served_span(answer.episode, question), _tags(answer)
        else:
            span = Span("episode", "AGENT", {"question": question}, {"answer": given.answer or ""}, 0.0, 0.0)
            tags = {"source": "service", "question_id": name}
        self._open_store().record_trace(replace(span, assessments=tuple(assessments)), tags)
        if not self._open_store().assess(name, assessments):  # a store that is down loses traces without a word
            raise ServiceError(f"the trace of feedback {given.id} was not stored; it is written again")

    def _try(self, action: Callable[[], object]) -> bool:
        """Call the store and return whether that went well; errors are logged and do not end the service."""
        try:
            action()
        except Exception as error:
            log.warning("traces: %s", error, exc_info=not isinstance(error, SlmSearchError))
            return False
        return True


def _tags(answer: Answer) -> dict[str, str]:
    played = {"stop_reason": str(answer.episode.stop_reason), "question_id": answer.episode.question_id}
    return {"source": "service", **played, "model_version": answer.version, "index_key": answer.index_key}
