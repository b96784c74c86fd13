"""Queue of questions for the next batch. The event loop adds them, threads that play take them."""

import asyncio
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from slmsearch.episodes.episode import ToolCall
from slmsearch.errors import SlmSearchError
from slmsearch.serving.api.caller import NOBODY, Caller
from slmsearch.serving.api.playing import Answer, ClientQuestion, PlayedStep, ServedCall
from slmsearch.serving.api.protocol import ApiError

Event = PlayedStep | Answer | ServedCall | SlmSearchError | ApiError
"""Events of a question: its steps, then its answer or an error; events of a call of a tool: its result, or an error."""
RETRY_S = 5
"""Time to wait after a failure, within which a new child process is up."""


@dataclass(eq=False, slots=True)
class AskedQuestion:
    """A question, or a call of a tool, and the events for the client. Made in the event loop."""

    question: ClientQuestion
    """Question, or as its text the argument of the call."""
    deadline: float
    """Deadline by `time.monotonic`."""
    call: ToolCall | None = None
    """Name of the tool; None for a question."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    caller: Caller = NOBODY
    abandoned: bool = False
    """True if no client waits for the answer any more."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _events: "asyncio.Queue[Event]" = field(default_factory=asyncio.Queue)

    def tell(self, event: Event) -> None:
        """Deliver an event, from any thread."""
        if not self.abandoned:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def next(self) -> PlayedStep | Answer | ServedCall:
        """Wait for the next event.

        Raises:
            ApiError: the deadline has passed, or the player failed.
        """
        try:
            async with asyncio.timeout(self.deadline - time.monotonic()):
                event = await self._events.get()
        except TimeoutError as error:
            raise ApiError(
                504, "deadline_exceeded", "the question was not answered in time (service.deadline_s); ask again later"
            ) from error
        if isinstance(event, ApiError):
            raise event
        if isinstance(event, SlmSearchError):
            raise ApiError(503, "service_unavailable", f"the question was not answered: {event}; ask again", retry_s=RETRY_S) from event
        return event


class WaitingQuestions:
    """A bounded queue."""

    def __init__(self, limit: int) -> None:
        """Hold at most `limit` questions."""
        self._limit = limit
        self._questions: deque[AskedQuestion] = deque()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        with self._changed:
            self._drop_abandoned()
            return len(self._questions)

    def add(self, question: AskedQuestion) -> bool:
        """Add a question; return False if the queue is full."""
        with self._changed:
            self._drop_abandoned()
            if len(self._questions) >= self._limit:
                return False
            self._questions.append(question)
            self._changed.notify_all()
            return True

    def take(self, most: int, timeout_s: float, may: Callable[[], bool] = lambda: True, gap_s: float = 0.0) -> list[AskedQuestion]:
        """Take the questions that have waited longest, once there are any; none if the time passes before, or none may be taken then.

        It waits for further ones as long as one comes within `gap_s` after the other.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._questions, timeout_s)
            while 0 < len(self._questions) < most and self._changed.wait(gap_s):
                pass
            if not may():
                return []
            self._drop_abandoned()
            return [self._questions.popleft() for _ in range(min(most, len(self._questions)))]

    def _drop_abandoned(self) -> None:
        self._questions = deque(question for question in self._questions if not question.abandoned)
