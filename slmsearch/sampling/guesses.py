"""Draft tokens for speculative decoding by prompt lookup: what followed the same tokens before, in this episode or in another of the batch.

Much of a turn occurs earlier: a title or a section's id in a tool result, the form of a call in the turn before. The model checks draft
tokens in the pass of the last known token. The sampler keeps those that the policy draws, too, so that they change only the time
(prompt lookup decoding: Saxena 2023; speculative decoding: Leviathan et al. 2023).
"""

from collections.abc import Sequence

CONTEXT = 2
"""Number of preceding tokens that must be the same."""
TRIAL, WORTH_FRAC = 32, 0.25
"""Draft tokens after which their use is checked, and the share of accepted ones below which no more are proposed."""


class Guesses:
    """A memory of which token followed which."""

    def __init__(self) -> None:
        """Begin without memory."""
        self._seen: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        """`CONTEXT` tokens in a row -> index in `_seen` of the token that followed them last."""
        self._made = self._right = 0

    def learn(self, ids: Sequence[int], before: Sequence[int] = ()) -> None:
        """Remember a piece of text that follows the tokens `before`."""
        self._seen += before[-CONTEXT:]  # context only: no draft token is looked up at these
        for token in ids:
            if len(self._seen) >= CONTEXT:
                self._after[tuple(self._seen[-CONTEXT:])] = len(self._seen)
            self._seen.append(token)

    def guess(self, ids: Sequence[int], most: int) -> list[int]:
        """Return at most `most` draft tokens for a history; none while too few were accepted."""
        if most <= 0 or (self._made >= TRIAL and self._right < WORTH_FRAC * self._made):
            return []
        place = self._after.get(tuple(ids[-CONTEXT:]))
        return [] if place is None else self._seen[place : place + most]  # fewer at the end of what was learnt

    def count(self, made: int, right: int) -> None:
        """Add to the counts: draft tokens of a line, and how many of them one of its rows accepted."""
        self._made += made
        self._right += right
