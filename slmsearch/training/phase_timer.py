"""Timer of a training run's phases, with its use of a card: every moment counts for exactly one purpose."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NotRequired, Protocol, TypedDict

SAMPLING, UPDATE, HELD_OUT, BEFORE, OTHER, JUDGING = "sampling", "update", "held_out", "preflight", "other", "judging"
"""Purposes: playing episodes to learn from; learning from them; scoring weights; the preflight rollouts; all else, such as starting,
loading, checkpoints, reports; waiting for a judge after all episodes of a step have ended, which the exact judge never needs."""


class CardUse(TypedDict):
    """Use of a card in one phase."""

    allocated_gib: float
    """Most memory that tensors took at once; the context of CUDA, and memory of other libraries, is not included."""
    reserved_gib: float
    """Most memory that torch kept of the card, with what earlier phases left in its cache."""
    busy_frac: NotRequired[float]
    """Mean of the samples; absent where there were none, or the phase was too short."""


class Card(Protocol):
    """A record of a card's use by phase, see `card.py`."""

    def turn(self, phase: str) -> None:
        """Record that another phase begins, or one continues."""

    def read(self) -> dict[str, CardUse]:
        """Return the use of each phase up to now."""

    def metrics(self) -> dict[str, float]:
        """Return the same as metrics of a step."""


class PhaseTimer:
    """A counter of seconds by phase. A phase begun inside another pauses the outer one."""

    def __init__(self, begun: float | None = None, card: Card | None = None) -> None:
        """Start with `OTHER`.

        Args:
            begun: start of the run (seconds since the epoch), if that was before now.
            card: notified of phases.
        """
        self.seconds: dict[str, float] = {OTHER: max(0.0, time.time() - begun) if begun else 0.0}
        self._purposes = [OTHER]
        self._since = time.perf_counter()
        self.card = card
        self._tell()

    def begin(self, purpose: str) -> None:
        """Count for a purpose from now on, until `end`."""
        self._count()
        self._purposes.append(purpose)
        self._tell()

    def end(self) -> None:
        """Return to the purpose before."""
        self._count()
        self._purposes.pop()
        self._tell()

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        """Count for a purpose."""
        self.begin(purpose)
        try:
            yield
        finally:
            self.end()

    def read(self) -> dict[str, float]:
        """Return the seconds by purpose up to now, to tenths."""
        self._count()
        return {purpose: round(seconds, 1) for purpose, seconds in self.seconds.items()}

    def _tell(self) -> None:
        if self.card is not None:
            self.card.turn(self._purposes[-1])

    def _count(self) -> None:
        now = time.perf_counter()
        purpose = self._purposes[-1]
        self.seconds[purpose] = self.seconds.get(purpose, 0.0) + now - self._since
        self._since = now
