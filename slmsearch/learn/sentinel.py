"""Says when a run begins to collapse, from what every step reports.

Collapse shows before the reward falls: the likelihood of right and wrong episodes alike decays and gradients explode (2512.04220);
the policy stops to search, or answers get longer, or shorter than sense. Each rule compares a mean over the last steps with what
was normal earlier in this run. Pure: the same reports give the same trips, so a resumed run stands where the killed one stood.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median

from slmsearch.config import SentinelConfig


@dataclass(frozen=True, slots=True)
class Trip:
    """A rule that tripped."""

    rule: str
    value: float
    """What was measured, mean over the window."""
    limit: float
    """What it should not have passed."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Watches one metric.

    Attributes:
        name: of the rule.
        metric: watched.
        above: trips above the limit; False: below it.
        factor: the limit is the reference times this,
        margin: plus (above) or minus (below) this.
    """

    name: str
    metric: str
    above: bool
    factor: float
    margin: float

    def limit(self, reference: float) -> float:
        """Compute the limit, given what was normal."""
        return self.factor * reference + (self.margin if self.above else -self.margin)

    def judge(self, value: float, reference: float) -> Trip | None:
        """Return the trip, or None."""
        limit = self.limit(reference)
        return Trip(self.name, value, limit) if (value > limit if self.above else value < limit) else None


RULES = (
    Rule("gradient", "optim/grad_norm", above=True, factor=10.0, margin=0.0),
    Rule("malformed", "stop/malformed", above=True, factor=1.0, margin=0.25),
    Rule("entropy", "policy/entropy", above=True, factor=3.0, margin=0.3),
    Rule("likelihood", "policy/logprob_right", above=False, factor=1.0, margin=1.0),
    Rule("likelihood", "policy/logprob_wrong", above=False, factor=1.0, margin=2.0),
    Rule("searches", "episode/searches", above=False, factor=0.25, margin=0.0),
    Rule("answer length", "answer/words", above=True, factor=4.0, margin=2.0),
)
"""Compared with the median of the steps before the window."""

REWARD = "reward/mean"


class Sentinel:
    """Looks at reports one by one."""

    def __init__(self, config: SentinelConfig) -> None:
        """Start without a past."""
        self._config = config
        self._past: dict[str, list[float]] = {}
        self._recent: dict[str, deque[float]] = {}
        self._best_reward = float("-inf")

    def look(self, metrics: Mapping[str, float]) -> Trip | None:
        """Take the metrics of the next step; return the first rule that trips, and forget the past if one does."""
        trip = None
        for name in dict.fromkeys([rule.metric for rule in RULES] + [REWARD]):
            if name in metrics:
                self._note(name, metrics[name])
        for rule in RULES:
            trip = trip or self._judge(rule)
        trip = trip or self._judge_reward()
        if trip:
            self.forget()
        return trip

    def forget(self) -> None:
        """Start anew: the weights are no longer those that the past speaks of."""
        self._past.clear()
        self._recent.clear()

    def _note(self, name: str, value: float) -> None:
        recent = self._recent.setdefault(name, deque())
        recent.append(value)
        if len(recent) > self._config.window:
            self._past.setdefault(name, []).append(recent.popleft())

    def _judge(self, rule: Rule) -> Trip | None:
        past = self._past.get(rule.metric, [])
        if len(past) < self._config.warmup:
            return None
        return rule.judge(fmean(self._recent[rule.metric]), median(past[-self._config.memory :]))

    def _judge_reward(self) -> Trip | None:
        """Compare with the best window so far; it is kept through a return, for the run must come back to it."""
        recent = self._recent.get(REWARD, deque())
        if len(recent) < self._config.window:
            return None
        value = fmean(recent)
        limit = self._best_reward - self._config.reward_drop
        if value < limit:
            return Trip("reward", value, limit)
        self._best_reward = max(self._best_reward, value)
        return None
