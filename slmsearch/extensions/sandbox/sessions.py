"""Tool sessions: the tools that a client's programs reach.

A session belongs to the holder of its token. Its programs get its tools over their own channel and never see the token.
"""

import functools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

import pydantic
from pydantic import Field

from slmsearch.episodes.episode import ToolCall, ToolResult

MAX_SESSIONS = 256
IDLE_SECONDS = 6 * 3600.0
"""Time without use after which a session is closed."""


class Tools(Protocol):
    """Protocol of tools that serve calls, such as `searcher.tools.Toolbox`."""

    def serve(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Serve calls, one result each."""
        ...


Key = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid"))
class SessionCorpus:
    """Corpus and index of a client, and what its tools show; as JSON, the request that opens a session."""

    corpus: Key
    """Digest of the corpus."""
    index: Key
    top_k: Annotated[int, Field(ge=1, le=50)]
    ranking: Literal["hybrid", "dense", "lexical"] = "hybrid"
    shows: Literal["titles", "sections"] = "titles"
    missing_names: bool = True
    max_section_chars: Annotated[int, Field(ge=100)] = 1500


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """Reply to a client with its new session."""

    token: str


OpenTools = Callable[[SessionCorpus], Tools]
"""Function that opens the tools of a corpus and its index, or raises an error about a missing one."""


@dataclass(slots=True)
class ToolSession:
    """Tools, and the token of their user."""

    tools: Tools
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used_at: float = field(default_factory=time.monotonic)

    def serve(self, call: ToolCall) -> ToolResult:
        """Serve one call of a program."""
        return self.tools.serve([call])[0]


class Sessions:
    """The open sessions; the tools of the last few corpora stay open."""

    def __init__(self, open_tools: OpenTools) -> None:
        self._open_tools = functools.lru_cache(4)(open_tools)
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
        """Return the session of a token; None if there is none, as after a restart of the server."""
        with self._lock:
            session = self._sessions.get(token)
            if session is not None:
                session.used_at = time.monotonic()
                self._sessions.move_to_end(token)
            return session

    def close(self, token: str) -> None:
        """Close a session; ignore one that does not exist."""
        with self._lock:
            self._sessions.pop(token, None)

    def __len__(self) -> int:
        return len(self._sessions)
