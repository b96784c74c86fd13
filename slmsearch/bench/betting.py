"""An anytime-valid test of the mean paired difference, by betting: it may be looked at after every page, and stopped whenever it is sure.

A bettor stakes a share of a capital on every page: it grows where the second evaluation is better by more than `min_gain`, and shrinks
where not. If it is not better, the capital reaches 1 / alpha with a chance of at most alpha, whatever the time at which one stops
(Ville's inequality). The capital is the mean of bettors with different stakes, so that none has to be chosen. Pages are bet on as a
whole, in a random order, because questions about one page are not independent. Source: Waudby-Smith & Ramdas, "Estimating means of
bounded random variables by betting", JRSS B 86 (2024), arXiv 2010.09686.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

STAKES = tuple(0.02 * i for i in range(1, 45))
"""Shares of the capital that the bettors stake."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """What the test came to."""

    verdict: Literal["better", "worse", "open"]
    """`open`: not sure of either when all questions were used."""
    questions: int
    """Used until it was sure, of whole pages."""


def bet_on_difference(differences: Sequence[float], clusters: Sequence[str], alpha: float, min_gain: float = 0.0, seed: int = 0) -> Stopped:
    """Test paired differences page by page until it is sure that their mean is above `min_gain`, or below 0.

    Args:
        differences: after - before, each in [-1, 1], one per question.
        clusters: one name per question; an empty name is a cluster of its own.
        alpha: chance of being sure of something that is not so; half of it for each side.
        min_gain: the mean must be above it to be better.
        seed: of the order of the pages.
    """
    import numpy as np

    names = [name or f"\0{i}" for i, name in enumerate(clusters)]
    pages = list(dict.fromkeys(names))
    random.Random(f"pages {seed}").shuffle(pages)
    place = {name: i for i, name in enumerate(pages)}
    member_of = np.array([place[name] for name in names])
    sizes = np.bincount(member_of, minlength=len(pages))
    sums = np.bincount(member_of, weights=np.asarray(differences, dtype=float), minlength=len(pages))
    stakes = np.array(STAKES)[:, None]
    bound = np.log(2 / alpha)
    sure = [len(pages)] * 2
    for side, gains in enumerate((sums - min_gain * sizes, -sums)):
        capital = np.log1p(stakes * (gains / (sizes.max() * (1 + abs(min_gain))))).cumsum(axis=1)
        wealth = np.logaddexp.reduce(capital, axis=0) - np.log(len(STAKES))
        reached = np.flatnonzero(wealth >= bound)
        sure[side] = int(reached[0]) if len(reached) else len(pages)
    if min(sure) == len(pages):
        return Stopped("open", len(differences))
    return Stopped("better" if sure[0] < sure[1] else "worse", int(sizes[: min(sure) + 1].sum()))
