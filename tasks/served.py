"""Traces in MLflow of a sample of the service's episodes, written in the background without delaying answers."""

import logging
import queue
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from slmsearch.errors import SlmSearchError
from slmsearch.serving.api.playing import Answer
from tasks.traces import served_span
from tasks.tracking import Tracker

MAX_WAITING = 100
"""Maximum number of episodes that wait to be written; further ones are not recorded."""
CLOSE_SECONDS = 5.0
"""Time limit to write waiting episodes when the service ends."""
log = logging.getLogger(__name__)


class ServedTraces:
    """Recorder of a share of the answers, in a thread of its own."""

    def __init__(self, open_store: Callable[[], Tracker], frac: float) -> None:
        """Start recording a share of the answers; the thread opens the store."""
        self._open_store, self._frac = open_store, frac
        self._waiting: queue.Queue[tuple[str, Answer] | None] = queue.Queue(MAX_WAITING)
        self._chance = random.Random()
        self._thread = threading.Thread(target=self._write, name="traces", daemon=True)
        self._thread.start()

    def offer(self, question: str, answer: Answer) -> None:
        """Queue an answer if it is in the sample; return at once."""
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
        while (item := self._waiting.get()) is not None:
            self._try(partial(self._record, *item))

    def _record(self, question: str, answer: Answer) -> None:
        tags = {"source": "service", "stop_reason": str(answer.episode.stop_reason), "question_id": answer.episode.question_id}
        made_by = {"model_version": answer.version, "index_key": answer.index_key}
        self._open_store().record_trace(served_span(answer.episode, question), {**tags, **made_by})

    def _try(self, action: Callable[[], object]) -> None:
        """Call the store; errors are logged and do not end the service."""
        try:
            action()
        except Exception as error:
            log.warning("traces: %s", error, exc_info=not isinstance(error, SlmSearchError))
