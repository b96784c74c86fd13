"""A measure of independence that needs no model."""

import re
from collections.abc import Sequence
from itertools import combinations


class WordIndependence:
    """By the words that pairs of subproblems share (Jaccard)."""

    name = "words"

    def score(self, plans: Sequence[Sequence[str]]) -> list[float]:
        """See `slmsearch.environments.planner.plan_reward.Independence.score`."""
        return [_words_apart(plan) for plan in plans]


def _words_apart(plan: Sequence[str]) -> float:
    words = [set(re.findall(r"\w+", text.casefold())) for text in plan]
    apart = [1 - len(a & b) / max(1, len(a | b)) for a, b in combinations(words, 2)]
    return sum(apart) / len(apart) if apart else 0.0
