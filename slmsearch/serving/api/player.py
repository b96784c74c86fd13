"""A thread that plays waiting questions, and serves waiting calls of tools, in a child process of its own.

A small model computes on one core: where there is another one, a second player takes from the same queue.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from slmsearch.episodes.episode import StopReason
from slmsearch.errors import ServiceError, SlmSearchError
from slmsearch.processes.call import Child
from slmsearch.processes.processor import count_cores
from slmsearch.serving.api import playing
from slmsearch.serving.api.caller import Caller
from slmsearch.serving.api.metrics import ServiceMetrics
from slmsearch.serving.api.playing import Answer, PlayedStep, Promise, ServedPolicy
from slmsearch.serving.api.protocol import ApiError
from slmsearch.serving.api.waiting import RETRY_S, AskedQuestion, WaitingQuestions

OnAnswer = Callable[[str, Answer, Caller], None]
"""Callback with question, answer and who asked; it runs in the thread that plays and must return at once."""
Admit = Callable[[Child], Promise | None]
"""Callback with the child of a loaded policy, before its first batch; it raises if the policy may not play, and returns the promise that
the policy keeps on its documents, None if that is the one it came with."""
LOOK_SECONDS = 0.25
"""Time between two checks of an idle player that its child lives."""
GAP_SECONDS = 0.02
"""Gap of questions for which the next batch waits after a batch of several: most clients ask again at once."""
GRACE_SECONDS = 30.0
"""Time after the last deadline of a batch at which it counts as hung; its child is killed."""
NO_PAGES_ERROR = ApiError(404, "no_such_pages", playing.NO_PAGES, "metadata")
log = logging.getLogger(__name__)


class HeldBackError(ServiceError):
    """Error of a version that may not play; the one that plays goes on."""


class Player(threading.Thread):
    """Thread that loads a policy into a child and plays batches until it is retired; if the child dies, another one loads it again."""

    def __init__(
        self,
        served: ServedPolicy,
        waiting: WaitingQuestions,
        metrics: ServiceMetrics,
        on_loaded: "Callable[[Player], None]",
        on_answer: OnAnswer | None = None,
        spares: bool = True,
        withdrawn: Callable[[], frozenset[str]] = frozenset,
        admit: Admit | None = None,
    ) -> None:
        """Set up the player without starting it.

        Args:
            served: policy and index to load.
            waiting: queue of questions.
            metrics: metrics of the service.
            on_loaded: called in the new thread when the policy is loaded for the first time, before the first batch.
            on_answer: receives each answer.
            spares: keep a second child. For a small model it plays, too; for others it has only the same imports (some 0.5 GB) and can
                replace the first one within seconds.
            withdrawn: returns the ids of the pages that are no longer there.
            admit: decides whether the loaded policy may play; None: it may.
        """
        super().__init__(name=f"player of {served.version}", daemon=True)
        self.served, self.index_key = served, served.index_key or ""
        self.failure: Exception | None = None
        """Error of the first load; the thread has ended then."""
        self.settled = threading.Event()
        """Event of the end of the first load, successful or not."""
        self._ready = threading.Event()
        """Event that is set while the policy is loaded."""
        self._waiting, self._metrics, self._on_loaded, self._on_answer = waiting, metrics, on_loaded, on_answer
        self._withdrawn, self._admit = withdrawn, admit
        self._retired = threading.Event()
        self._loading = threading.Lock()
        """Lock of both players: of two that load again, the second waits, so that the first answers sooner."""
        self._child, self._spare, self._spares = Child(), Child(), spares
        self._loaded = served
        """Policy with the documents that were loaded first: another load takes the same."""
        self._beside: Player | None = None
        """The other player of a small model."""
        self._spared: Player | None = None
        """The same, if it was started here."""
        self._several = False
        """True if the last batch had several questions."""

    @property
    def _both(self) -> "list[Player]":
        return [self] if self._beside is None else [self, self._beside]

    @property
    def loaded(self) -> ServedPolicy:
        """Return the policy with the documents that were loaded, those of `served` before."""
        return self._loaded

    @property
    def is_ready(self) -> bool:
        """Return whether the policy is loaded, here or in the second player."""
        return any(player._ready.is_set() for player in self._both)

    def retire(self) -> None:
        """End after the present batch; the second player shares the event."""
        self._retired.set()

    def close(self) -> None:
        """End now; questions in play get an error."""
        self.retire()
        for player in self._both:
            player._child.interrupt()
        self.join()

    def run(self) -> None:
        """See `threading.Thread.run`."""
        with ExitStack() as ends:
            ends.callback(lambda: self._child.stop())  # those of that time
            ends.callback(lambda: self._spare.stop())
            if self._beside is None and not self._begin():
                return
            while not self._retired.is_set():
                self._go_on()
            if self._spared is not None:
                self._spared.join()  # its child was started here, and dies with this thread

    def _begin(self) -> bool:
        """Load the policy for the first time; return whether it may play."""
        try:
            self._child.start()
            if self._admit is None:
                self._prepare_spare()  # beside the first child: later it would take its time from questions
            self._load()
            if self._admit is not None:
                if (promise := self._admit(self._child)) is not None:
                    self._child.call(playing.keep, promise)
                    self.served, self._loaded = replace(self.served, promise=promise), replace(self._loaded, promise=promise)
                self._prepare_spare()  # another player answers so long
            self._on_loaded(self)
            if self._spares and self._is_small and count_cores() > 1 and not self._retired.is_set():
                self._start_beside()
        except Exception as error:
            self.failure = error
        finally:
            self.settled.set()
        return self.failure is None

    def _prepare_spare(self) -> None:
        if self._spares:
            self._spare.start(playing.IMPORTED)

    def _load(self) -> None:
        self._ready.clear()
        started = time.monotonic()
        self._loaded, self._is_small = self._child.call(playing.load, self._loaded)
        self.index_key = self._loaded.index_key or ""
        self._ready.set()
        log.info("%s is loaded, in %.1f s", self.served.version, time.monotonic() - started)

    def _start_beside(self) -> None:
        """Let the spare child play, too, in a thread of its own, on the same documents."""
        beside = Player(self._loaded, self._waiting, self._metrics, lambda _: None, self._on_answer, False, self._withdrawn)
        beside._child, self._spare, self._spares = self._spare, beside._child, False
        self._beside, beside._beside, self._spared = beside, self, beside
        beside._retired, beside._loading = self._retired, self._loading
        beside.start()

    def _go_on(self) -> None:
        """Play one batch, if one comes; first load the policy again if the child has died."""
        batch: Sequence[AskedQuestion] = ()
        try:
            self._revive()
            gap_s = GAP_SECONDS if self._several else 0.0
            batch = self._waiting.take(self.served.config.evaluate.batch_size, LOOK_SECONDS, self._may_play, gap_s)
            if batch:
                self._several = len(batch) > 1
                self._play(batch)
        except Exception as error:
            self._ready.clear()
            self._child.stop()
            if self._retired.is_set() and not batch:
                return
            log.error("%s: %s", self.served.version, error, exc_info=not isinstance(error, SlmSearchError))
            known = error if isinstance(error, SlmSearchError) else ServiceError(f"unforeseen {type(error).__name__}")
            for question in batch or ([] if self.is_ready else self._waiting.take(len(self._waiting), 0.0)):
                question.tell(known)
            if not batch:  # it cannot be loaded
                self._retired.wait(RETRY_S)

    def _revive(self) -> None:
        """Load the policy again if the child has died."""
        if self._child.pid is None:
            self._metrics.restarts.inc()
            self._child, self._spare = self._spare, self._child
            self._ready.clear()
        if not self._ready.is_set():
            with self._loading:
                if not self._retired.is_set():
                    self._load()
            self._prepare_spare()

    def _may_play(self) -> bool:
        """Return whether a batch may be taken: the child may have died, or the player been retired, while it waited for questions."""
        return self._child.pid is not None and not self._retired.is_set()

    def _play(self, batch: Sequence[AskedQuestion]) -> None:
        asked = {question.id: question for question in batch if question.call is None}
        calls = [(question, question.call) for question in batch if question.call is not None]
        withdrawn = self._withdrawn()

        def on_turn(name: str, step: PlayedStep) -> None:
            asked[name].tell(step)

        def on_end(name: str, answer: Answer) -> None:
            if answer.episode.stop_reason is StopReason.FAILED:
                asked[name].tell(NO_PAGES_ERROR if answer.episode.failure == playing.NO_PAGES else ServiceError(answer.episode.failure))
                return
            if not self._withdrawn().isdisjoint({source.page_id for source in answer.sources} - withdrawn):
                again.append(asked[name])  # a page that it read has gone meanwhile
                return
            asked[name].tell(answer)
            if self._on_answer is not None:
                self._on_answer(asked[name].question.text, answer, asked[name].caller)

        again: list[AskedQuestion] = []
        if asked:
            self._metrics.batch.observe(len(asked))
        left_s = max(question.deadline for question in batch) - time.monotonic()
        hangs = threading.Timer(max(0.0, left_s) + GRACE_SECONDS, self._child.interrupt)
        hangs.start()
        try:
            if calls:  # first: they take no time beside questions
                served = self._child.call(playing.serve_calls, [(call, question.question.scope) for question, call in calls], withdrawn)
                for (question, _), result in zip(calls, served, strict=True):
                    question.tell(result)
            if asked:
                questions = {name: one.question for name, one in asked.items()}
                self._child.call(playing.play, questions, withdrawn, on_turn=on_turn, on_end=on_end)
        finally:
            hangs.cancel()
        if again:
            self._play(again)
