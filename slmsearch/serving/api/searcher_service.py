"""The searcher as a service: the player, the queue, and the end."""

import logging
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Protocol

from fastapi.responses import Response

from slmsearch.config import ServiceConfig
from slmsearch.environments.searcher.scope import EVERYWHERE, Scope
from slmsearch.episodes.episode import ToolCall
from slmsearch.errors import ServiceError, SlmSearchError
from slmsearch.processes.call import Child
from slmsearch.serving.api.caller import NOBODY, Caller
from slmsearch.serving.api.metrics import ABANDONED, SERVED_CALL, ServiceMetrics
from slmsearch.serving.api.player import Admit, HeldBackError, OnAnswer, Player
from slmsearch.serving.api.playing import Answer, ClientQuestion, PlayedStep, Promise, ServedCall, ServedPolicy
from slmsearch.serving.api.protocol import ApiError
from slmsearch.serving.api.waiting import RETRY_S, AskedQuestion, WaitingQuestions
from slmsearch.serving.documents.originals import read_original

FindNew = Callable[[ServedPolicy], ServedPolicy | None]
"""Function of the policy that plays: returns the one to play from now on, None if it is the same."""


class Documents(Protocol):
    """Documents that change while they are served."""

    since: float
    """Time since which the first version is served, in seconds since the epoch."""

    def judge(self, before: ServedPolicy, after: ServedPolicy, child: Child) -> Promise | None:
        """Decide whether the policy that a child has loaded may play in the place of another one; return its promise, see `Admit`.

        Raises:
            HeldBackError: it may not.
        """
        ...

    def withdrawn(self, served: ServedPolicy) -> frozenset[str]:
        """Return the ids of pages of a policy's documents that are no longer there; no question finds them."""
        ...

    def describe(self) -> dict[str, object]:
        """Describe them."""
        ...


FOLLOW_SECONDS = 3.0
"""Time between two checks for another version."""
AGAIN_SECONDS = 60.0
"""Time until a version that could not be loaded is tried again."""
FULL_RETRY_S = 2
CLOSE_SECONDS = 5.0
"""Time limit for a running check for another version when the service ends."""
_POLL_SECONDS = 0.05
log = logging.getLogger(__name__)


class SearcherService:
    """Service that answers questions; call its methods from the thread that started it, `ask` and `call` from the event loop."""

    def __init__(
        self,
        served: ServedPolicy,
        settings: ServiceConfig,
        find_new: FindNew | None = None,
        on_answer: OnAnswer | None = None,
        spares: bool = True,
        documents: Documents | None = None,
    ) -> None:
        """Set up the service without starting it.

        Args:
            served: first policy to play.
            settings: length of the queue, deadline.
            find_new: finds another version to play; None keeps the first.
            on_answer: receives each answer, must return at once.
            spares: see `Player`.
            documents: judges other versions; None: they are never judged.
        """
        self.settings = settings
        self.waiting = WaitingQuestions(settings.queue)
        self.metrics = ServiceMetrics(lambda: len(self.waiting))
        self.created = int(time.time())
        self._since = time.time() if documents is None else documents.since
        self._on_answer, self._find_new, self._spares = on_answer, find_new, spares
        self.documents = documents
        self._open: set[AskedQuestion] = set()
        self._draining = threading.Event()
        self._switching = threading.Lock()
        """Lock of the player, which no longer changes once `_draining` is set."""
        self.player = self._make_player(served)
        self._follower = threading.Thread(target=self._follow, name="follower", daemon=True)

    def _make_player(self, served: ServedPolicy, admit: Admit | None = None) -> Player:
        withdrawn = partial(self.documents.withdrawn, served) if self.documents is not None else frozenset
        return Player(served, self.waiting, self.metrics, self._switch, self._on_answer, self._spares, withdrawn, admit)

    def start(self, stop: threading.Event) -> None:
        """Load the first policy; return when it is loaded, or `stop` is set.

        Raises:
            SlmSearchError: it cannot be loaded.
        """
        self.player.start()
        while not self.player.settled.wait(_POLL_SECONDS):
            if stop.is_set():
                return
        if self.player.failure is not None:
            raise self.player.failure
        if self._find_new is not None:
            self._follower.start()

    @property
    def state(self) -> str:
        """`ready`, `loading`, or `stopping`."""
        return "stopping" if self._draining.is_set() else "ready" if self.player.is_ready else "loading"

    @property
    def version(self) -> str:
        """Return the version of the policy that plays."""
        return self.player.served.version

    async def ask(
        self, question: ClientQuestion, name: str | None = None, caller: Caller = NOBODY
    ) -> AsyncGenerator[PlayedStep | Answer, None]:
        """Ask a question; yield its steps as they come, and last the answer.

        Args:
            question: a client's question.
            name: id of the question in its trace; None makes one.
            caller: who asks, for the trace.

        Raises:
            ApiError: the question was not answered.
        """
        async with aclosing(self._events(question, name=name, caller=caller)) as events:
            async for event in events:
                assert not isinstance(event, ServedCall)
                yield event

    async def call(self, call: ToolCall, scope: Scope = EVERYWHERE) -> ServedCall:
        """Call a tool of the searcher within a scope. The call waits in the queue of the questions and is served before the next batch.

        Raises:
            ApiError: the tool was not called.
        """
        async with aclosing(self._events(ClientQuestion(call.argument, scope), call)) as events:
            event = await anext(events)
        assert isinstance(event, ServedCall)
        return event

    async def _events(
        self, question: ClientQuestion, call: ToolCall | None = None, name: str | None = None, caller: Caller = NOBODY
    ) -> AsyncGenerator[PlayedStep | Answer | ServedCall, None]:
        started = time.monotonic()
        asked = AskedQuestion(question, started + self.settings.deadline_s, call, name or uuid.uuid4().hex, caller)
        outcome = ABANDONED
        try:
            self._accept(asked)
            while True:
                event = await asked.next()
                if isinstance(event, Answer):
                    outcome = str(event.episode.stop_reason)
                    self.metrics.seconds.observe(time.monotonic() - started)
                elif isinstance(event, ServedCall):
                    outcome = SERVED_CALL
                yield event
                if not isinstance(event, PlayedStep):
                    return
        except ApiError as error:
            outcome = error.code
            raise
        finally:
            asked.abandoned = True
            self._open.discard(asked)
            self.metrics.requests.labels(outcome).inc()

    def _accept(self, asked: AskedQuestion) -> None:
        if self.player.served.config.searcher.programs and (asked.question.scope != EVERYWHERE or asked.question.verify):
            told = "programs see all of the corpus, so that a question can be neither restricted nor verified (searcher.programs)"
            raise ApiError(400, "unsupported_parameter", told, "metadata")
        self._open.add(asked)  # before the look: `drain` looks the other way round
        if self._draining.is_set():
            raise ApiError(503, "stopping", "the service is stopping and takes no more questions; ask again later", retry_s=RETRY_S)
        if not self.waiting.add(asked):
            raise ApiError(
                429, "queue_full", f"{self.settings.queue} questions wait already (service.queue); ask again", retry_s=FULL_RETRY_S
            )

    def describe_documents(self) -> dict[str, object]:
        """Describe the documents: the version of their index and its age, and of a folder that is watched what is held back and why."""
        age_s = round(time.time() - self._since, 1)
        return {"index_key": self.player.index_key, "age_s": age_s, **(self.documents.describe() if self.documents is not None else {})}

    def read_document(self, path: str) -> Response | None:
        """Return a file that a page of the documents was read from, as a reply; None if there is none of that path.

        Raises:
            CorpusError: the corpus cannot be read.
        """
        played = self.player.loaded
        if played.corpus_digest is None:
            return None
        return read_original(played.config.corpus.pages, played.config.paths.corpora / played.corpus_digest, path)

    def drain(self) -> None:
        """Take no more questions; return when the waiting ones are answered, or out of time."""
        self._stop_taking()
        end = time.monotonic() + self.settings.deadline_s
        while self._open and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End the processes; unanswered questions get an error."""
        self._stop_taking()
        if self._follower.is_alive():
            self._follower.join(CLOSE_SECONDS)
        if self.player.is_alive():
            self.player.close()

    def _switch(self, player: Player) -> None:
        """Replace the player by a loaded one; called in the thread of the new one."""
        with self._switching:
            before = self.player
            if self._draining.is_set() and player is not before:
                player.retire()
                return
            if before is not player:
                before.retire()  # first: it takes none of the questions that are asked from now on
                self._since = time.time()
            self.player = player
        self.metrics.show_model(player.served.version, player.index_key)
        if before.served.version != player.served.version:
            log.warning("%s plays from now on, in the place of %s", player.served.version, before.served.version)

    def _stop_taking(self) -> None:
        with self._switching:
            self._draining.set()

    def _follow(self) -> None:
        """Check for another version every few seconds, and load it beside the one that plays."""
        assert self._find_new is not None
        pause_s = FOLLOW_SECONDS
        while not self._draining.wait(pause_s):
            pause_s = FOLLOW_SECONDS
            try:
                served = self._find_new(self.player.served)
            except Exception as error:
                log.warning("no other version was looked for: %s", error, exc_info=not isinstance(error, SlmSearchError))
                # A model would be exported again and again, documents be read.
                pause_s = FOLLOW_SECONDS if isinstance(error, ServiceError) else AGAIN_SECONDS
                continue
            if served is None:
                continue
            admit = partial(self.documents.judge, self.player.served, served) if self.documents is not None else None
            player = self._make_player(served, admit)
            player.start()
            while not player.settled.wait(_POLL_SECONDS):
                if self._draining.is_set() and player is not self.player:
                    player.close()
            if isinstance(player.failure, HeldBackError):
                log.warning("%s", player.failure)
            elif player.failure is not None:
                pause_s = AGAIN_SECONDS
                log.error("%s cannot be loaded, %s goes on: %s", served.version, self.version, player.failure)
