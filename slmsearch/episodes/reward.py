"""The reward of an episode as a value; each environment computes its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reward:
    """Reward of an episode."""

    total: float
    """Sum of the parts."""
    parts: dict[str, float]
    """Named parts; an environment gives every episode the same ones, 0.0 where a part does not apply."""
