"""Whether held-out questions are answered worse than before: what confirms a suspicion of collapse.

The same questions are played greedily each time, so that rewards are compared question by question. What they are compared with is
each question's mean over the last scorings, not the best one: the best of many is partly luck.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

Scores = list[float | None]
"""Reward of each held-out question, in order; None where a service broke and the episode counts for nothing."""

SCORINGS = 8
"""Earlier scorings that count."""
ALONE = 4.0
"""Standard errors that are a collapse without any suspicion, at a scheduled scoring."""
SMALLEST_FALL = 0.25
"""Share of the earlier mean by which it must have fallen: policies vary a little in earnest, too."""


@dataclass(frozen=True, slots=True)
class Fall:
    """Held-out questions are answered worse than before."""

    value: float
    """Their mean reward."""
    limit: float
    """What it should not have fallen below."""


def mean_score(scores: Scores) -> float:
    """Average the rewards there are; 0.0 where there are none."""
    known = [score for score in scores if score is not None]
    return fmean(known) if known else 0.0


def find_fall(past: Sequence[Scores], scores: Scores, sure: float) -> Fall | None:
    """Compare a scoring with those before it.

    Args:
        past: earlier scorings of the same questions.
        scores: the new one.
        sure: standard errors that the fall must have.
    """
    pairs = []
    for new, *old in zip(scores, *past[-SCORINGS:], strict=True):
        known = [score for score in old if score is not None]
        if new is not None and known:
            pairs.append((new, fmean(known)))
    if len(pairs) < 2:
        return None
    reference = fmean(old for _, old in pairs)
    error = stdev(new - old for new, old in pairs) / sqrt(len(pairs))
    limit = reference - max(sure * error, SMALLEST_FALL * abs(reference))
    value = fmean(new for new, _ in pairs)
    return Fall(value, limit) if value < limit else None
