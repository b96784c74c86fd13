"""Guesses of what follows in an episode: what followed the same tokens before, in it or in those beside it.

Much of a turn stands somewhere already: a title or a section's id in a tool result, the form of a call in the turn before. Guessed tokens
go through the model with the one that is known, and are kept where the policy draws the same, so that they change nothing but the time
(prompt lookup decoding; Saxena 2023, and Leviathan et al. 2023 for guessing in general).
"""

from collections.abc import Sequence

CONTEXT = 2
"""Tokens that must have been the same."""
TRIAL, WORTH_FRAC = 32, 0.25
"""Guesses after which it is asked whether they are worth it, and the share of right ones from which on they are."""


class Guesses:
    """Remembers what followed what."""

    def __init__(self) -> None:
        """Begin without memory."""
        self._seen: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        """Some tokens in a row -> where what last followed them stands in `_seen`."""
        self._made = self._right = 0

    def learn(self, ids: Sequence[int], before: Sequence[int] = ()) -> None:
        """Remember a piece of text, which came after the tokens `before`."""
        self._seen += before[-CONTEXT:]
        for token in ids:
            if len(self._seen) >= CONTEXT:
                self._after[tuple(self._seen[-CONTEXT:])] = len(self._seen)
            self._seen.append(token)

    def guess(self, ids: Sequence[int], most: int) -> list[int]:
        """Guess at most so many tokens after a history; none while most have been wrong."""
        if most <= 0 or (self._made >= TRIAL and self._right < WORTH_FRAC * self._made):
            return []
        place = self._after.get(tuple(ids[-CONTEXT:]))
        return [] if place is None else self._seen[place : place + most]

    def count(self, made: int, right: int) -> None:
        """Note how many guesses for a line were made, and how many were right for one of its rows."""
        self._made += made
        self._right += right
