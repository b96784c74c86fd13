"""Tool sessions: which tools a client's programs reach.

A session belongs to who holds its token. Its programs get its tools over their own channel and never see the token.
"""

import functools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import pydantic
from pydantic import Field

from slmsearch.episodes.episode import ToolCall, ToolResult

MAX_SESSIONS = 256
IDLE_SECONDS = 6 * 3600.0
"""A session nobody used for so long is closed."""


class Tools(Protocol):
    """What serves calls; `searcher.tools.Toolbox` does."""

    def serve(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Serve calls, one result each."""
        ...


Key = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid"))
class SessionCorpus:
    """Which corpus and index a client plays on, and what a search shows; as JSON, what opens a session."""

    corpus: Key
    """Digest."""
    index: Key
    top_k: Annotated[int, Field(ge=1, le=50)]


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """What a client is told of its new session."""

    token: str


OpenTools = Callable[[SessionCorpus], Tools]
"""Opens the tools of a corpus and its index, or raises what is missing."""


@dataclass(slots=True)
class ToolSession:
    """Tools, and who may use them."""

    tools: Tools
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used_at: float = field(default_factory=time.monotonic)

    def serve(self, call: ToolCall) -> ToolResult:
        """Serve one call of a program."""
        return self.tools.serve([call])[0]


class Sessions:
    """The open sessions; the tools of the last few corpora stay open."""

    def __init__(self, open_tools: OpenTools, kept_corpora: int = 4) -> None:
        self._open_tools = functools.lru_cache(kept_corpora)(open_tools)
        self._sessions: OrderedDict[str, ToolSession] = OrderedDict()
        self._lock, self._opening = threading.Lock(), threading.Lock()

    def open(self, indexed: SessionCorpus) -> ToolSession:
        """Open a session.

        Raises:
            SlmSearchError: its corpus or index cannot be opened.
        """
        with self._opening:  # opening takes seconds, in which other sessions go on, and happens once
            session = ToolSession(self._open_tools(indexed))
        with self._lock:
            self._sessions[session.token] = session
            oldest = time.monotonic() - IDLE_SECONDS
            while len(self._sessions) > MAX_SESSIONS or next(iter(self._sessions.values())).used_at < oldest:
                self._sessions.popitem(last=False)
        return session

    def find(self, token: str) -> ToolSession | None:
        """Return the session of a token; None where there is none, as when the server was started anew."""
        with self._lock:
            session = self._sessions.get(token)
            if session is not None:
                session.used_at = time.monotonic()
                self._sessions.move_to_end(token)
            return session

    def close(self, token: str) -> None:
        """Close a session; one that is not there is closed already."""
        with self._lock:
            self._sessions.pop(token, None)

    def __len__(self) -> int:
        return len(self._sessions)
