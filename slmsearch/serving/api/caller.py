"""Caller of the service: user, session and span, for the trace of its question."""

import re
from dataclasses import dataclass

_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


@dataclass(frozen=True, slots=True)
class Caller:
    """User, session and span of a client, as far as it says so."""

    user: str | None = None
    session: str | None = None
    """Id of the conversation."""
    traceparent: str | None = None
    """Header with trace and span of the client (W3C Trace Context)."""

    @property
    def parent(self) -> tuple[str, str] | None:
        """Return trace and span of the client, in hexadecimal."""
        found = _PARENT.fullmatch(self.traceparent or "")
        return found and (found[2], found[3])


NOBODY = Caller()
"""Caller of whom nothing is said."""


def read_traceparent(header: str) -> str | None:
    """Return a header `traceparent`; None for a malformed one, which W3C Trace Context says to ignore."""
    found = _PARENT.fullmatch(header.strip())
    if found is None or (found[1] == "00" and found[4]):  # only later versions may say more
        return None
    return found[0]
