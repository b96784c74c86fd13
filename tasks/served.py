"""Traces in MLflow of a sample of the service's episodes, and people's feedback on them, written in the background.

Feedback is first a line of a log that survives kills. From there it goes to the trace of its answer, also of one outside the sample; a file
beside the log says how far that went, so that what a store or this process could not do is done later.
"""

import logging
import queue
import random
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from filelock import FileLock, Timeout

from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.errors import ServiceError, SlmSearchError
from slmsearch.serving.api.caller import NOBODY, Caller
from slmsearch.serving.api.feedback import Feedback, FeedbackLog
from slmsearch.serving.api.playing import Answer
from tasks.traces import CORRECT, EXPECTED, WITHIN, Assessment, Span, served_span
from tasks.tracking import Tracker

MAX_WAITING = 100
"""Maximum number of episodes that wait to be written; further ones are not recorded."""
REMEMBERED = 1000
"""Number of latest answers whose episode is at hand when feedback comes; feedback on an older one makes a trace without turns."""
AGAIN_SECONDS = 5.0
"""Time between two tries to write feedback while the store does not take it."""
CLOSE_SECONDS = 5.0
"""Time limit to write waiting episodes when the service ends."""
AT_ONCE = 20
"""Number of records after which waiting episodes are written."""
TRIES = 3
"""Number of times that a trace is written which a store that answers does not take."""
PEOPLE = "people"
"""Source of the assessments that feedback becomes."""
_ANSWER_ID = re.compile(r"(?:chatcmpl-)?([0-9a-f]{32})")
Told: TypeAlias = tuple[Span, Mapping[str, str]]
"""Root span and tags of an episode."""
log = logging.getLogger(__name__)


class ServedTraces:
    """Recorder of a share of the answers and of all feedback, in a thread of its own."""

    def __init__(self, open_store: Callable[[], Tracker], frac: float, feedback: FeedbackLog | None = None) -> None:
        """Start recording a share of the answers, and the feedback of a log from now on; the thread opens the store."""
        self._open_store, self._frac = open_store, frac
        self._waiting: queue.Queue[Told | None] = queue.Queue(MAX_WAITING)
        self._feedback = TracedFeedback(open_store, feedback) if feedback is not None else None
        self._chance = random.Random()
        self._thread = threading.Thread(target=self._write, name="traces", daemon=True)
        self._thread.start()

    def offer(self, question: str, answer: Answer, caller: Caller = NOBODY) -> None:
        """Queue an answer if it is in the sample; return at once."""
        told = _render(question, answer, caller)
        if self._feedback is not None:
            self._feedback.remember(answer.episode.question_id, told)
        if self._chance.random() >= self._frac:
            return
        try:
            self._waiting.put_nowait(told)
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
        is_over, pause_s = False, AGAIN_SECONDS if self._feedback is not None else None
        while not is_over:
            with suppress(queue.Empty):
                item = self._waiting.get(timeout=pause_s)
                while item is not None:
                    self._try(partial(self._record, *item))
                    item = self._waiting.get_nowait()
                is_over = True
            if self._feedback is not None:
                self._try(self._feedback.write)

    def _record(self, root: Span, tags: Mapping[str, str]) -> None:
        if self._feedback is None or tags["question_id"] not in self._feedback.traced:
            self._open_store().record_trace(root, tags)

    def _try(self, action: Callable[[], object]) -> None:
        """Call the store; errors are logged and do not end the service."""
        try:
            action()
        except Exception as error:
            log.warning("traces: %s", error, exc_info=not isinstance(error, SlmSearchError))


class TracedFeedback:
    """Feedback of a log on its way to traces; `write` belongs to one thread."""

    def __init__(self, open_store: Callable[[], Tracker], feedback: FeedbackLog) -> None:
        """Begin where an earlier process ended, else at the end of the log."""
        self._open_store, self._log = open_store, feedback
        self._file = feedback.path.with_name(f"{feedback.path.name}.traced")
        self._latest: OrderedDict[str, Told] = OrderedDict()
        """Latest episodes by the id of the question."""
        self._lock = threading.Lock()
        self._given = threading.Event()
        """Event of feedback that may not be written yet."""
        self._given.set()
        self._refused = 0
        """Number of times that the store did not take the next record's trace."""
        self.traced = set[str]()
        """Ids of the questions whose trace was made for their feedback."""
        if not self._file.exists():
            with suppress(OSError):  # where nothing can be written no feedback is taken either
                feedback.path.parent.mkdir(parents=True, exist_ok=True)
                replace_json(self._file, {"place": feedback.size, "id": None})
        feedback.on_append = self._given.set

    def remember(self, name: str, told: Told) -> None:
        """Keep an episode by the id of its question until feedback comes; from any thread."""
        with self._lock:
            self._latest[name] = told
            while len(self._latest) > REMEMBERED:
                self._latest.popitem(last=False)

    def write(self) -> None:
        """Write the next `AT_ONCE` records that are not on their traces yet.

        Raises:
            ServiceError: the store does not take them; the next call tries again.
        """
        if not self._given.is_set():
            return
        self._given.clear()
        try:
            with FileLock(f"{self._file}.lock", timeout=0):
                self._write()
        except Timeout:  # another service on this data directory writes
            self._given.set()
        except BaseException:
            self._given.set()
            raise

    def _write(self) -> None:
        done = read_json(self._file)
        place, last = done.get("place", 0), done.get("id")
        records = self._read(place) if place <= self._log.size else []
        if last is not None:
            records = records[1:] if records and records[0][0].id == last else self._read(0)  # or another log lies there now
        elif place > self._log.size:
            records = self._read(0)
        for record, place in records[:AT_ONCE]:
            self._assess(record)
            self._refused = 0
            replace_json(self._file, {"place": place, "id": record.id})
        if len(records) > AT_ONCE:
            self._given.set()

    def _read(self, start: int) -> list[tuple[Feedback, int]]:
        given = self._log.read(start)
        return [*zip(given.records, given.places, strict=True)]

    def _assess(self, given: Feedback) -> None:
        """Write feedback to the trace of its answer, and make that trace if there is none."""
        found = _ANSWER_ID.fullmatch(given.completion or "")
        name = found[1] if found else given.id
        assessments = [Assessment(CORRECT, given.verdict == "right", PEOPLE, "HUMAN", given.id, given.created)]
        if given.correct_answer is not None:
            assessments.append(Assessment(EXPECTED, given.correct_answer, PEOPLE, "HUMAN", given.id, given.created))
        if self._open_store().assess(name, assessments):
            return
        asked = {"question": given.question} | ({WITHIN: given.within} if given.within else {})
        span = Span("episode", "AGENT", asked, given.answer or "", 0.0, 0.0)
        with self._lock:
            span, tags = self._latest.get(name, (span, {"source": "service", "question_id": name}))
        try:
            self._open_store().record_trace(replace(span, assessments=tuple(assessments)), tags)
        except ServiceError as error:  # of a store that has just answered: one that it refuses must not hold up the others
            self._refused += 1
            if self._refused < TRIES:
                raise
            log.warning("traces: feedback %s stays in %s alone: %s", given.id, self._log.path, error)
            return
        self.traced.add(name)


def _render(question: str, answer: Answer, caller: Caller) -> Told:
    played = {"stop_reason": str(answer.episode.stop_reason), "question_id": answer.episode.question_id}
    tags = {"source": "service", **played, "model_version": answer.version, "index_key": answer.index_key}
    return served_span(answer.episode, question, caller, str(answer.scope)), tags
