"""The collapse monitor: says, from what every step reports, when a training run begins to collapse.

Collapse shows in many ways: the likelihood of right and wrong episodes alike decays and gradients explode (2512.04220), the policy
becomes so sure that nothing is left to explore, it stops to search, makes the same call whatever it was asked, or writes answers
that get longer and longer.

Each rule compares the last steps with the steps before them. Both windows are sized in questions, and every limit follows from the
noise of the run's own steps, so that one rule holds for two questions a step and for sixty-four. A change that comes with a clearly
higher reward is learning, not collapse. A fall of the reward is only a suspicion, which held-out questions confirm: the same ones are
played greedily each time, so that rewards are compared question by question. What they are compared with is each question's mean over
the last scorings, not the best one: the best of many is partly luck.

Pure: the same reports, restarts and dismissals give the same answers, so that a resumed run stands where the killed one stood.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, log, sqrt
from statistics import fmean, median, stdev

WINDOW_QUESTIONS = 128
"""Questions whose episodes are compared with those before."""
MIN_WINDOW, MAX_WINDOW = 8, 24
"""Bounds of the window in steps: fewer say nothing about noise, more take too long to see anything."""
FIRST_WINDOW = 6
"""Steps of the window while the run is young: half of the steps so far are compared with the other half, from twice this on."""
PAST_WINDOWS = 4
"""Windows before the last one that count as what is normal."""
SURE = 4.0
"""Standard errors by which a metric must have moved."""
SUSPECT = 2.5
"""Standard errors by which the mean reward must have fallen before the held-out questions are asked."""
TOGETHER, CONFIRMED = 5.0, 1.0
"""Standard errors of both falls together that are a collapse; those of the held-out questions at least."""
RISEN, RISEN_SURE = 0.25, 3.0
"""Share and standard errors by which a reward must have risen for a change to be learning."""
Scores = list[float | None]
"""Reward of each held-out question, in order; None where a service broke and the episode counts for nothing."""

SCORINGS = 8
"""Earlier scorings that count."""
ALONE = 4.0
"""Standard errors that are a collapse without any suspicion, at a scheduled scoring."""
SMALLEST_FALL = 0.25
"""Share of the earlier mean by which it must have fallen: policies vary a little in earnest, too."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What looks like a collapse."""

    rule: str
    value: float
    """What was measured over the window, in the metric's unit."""
    limit: float
    """What it should not have passed, in the same unit."""
    confirm: float = 0.0
    """Standard errors by which the held-out questions must have fallen, too, which alone can tell a collapse from a run of hard
    questions; 0: it counts as it is."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The last steps of a metric beside those before."""

    value: float
    """Of the last steps: their mean, or (logarithms) their median, which single wild steps do not move."""
    reference: float
    """Of the steps before: the median of their windows' means, or their median."""
    error: float
    """Standard error of the difference, from the spread of the steps before."""

    @classmethod
    def compare(cls, recent: list[float], past: list[float], logarithms: bool) -> "Windows":
        """Compare values, oldest first; there are at least as many before."""
        size = len(recent)
        if logarithms:
            value, reference = median(recent), median(past)
            deviation, loss = 1.4826 * median([abs(x - reference) for x in past]), (1.57, 1.57)
        else:
            value = fmean(recent)
            reference = median([fmean(past[end - size : end]) for end in range(len(past), size - 1, -size)])
            deviation, loss = stdev(past), (1.0, 1.2)
        # A median is less exact than a mean: `loss` is the ratio of their variances.
        return cls(value, reference, deviation * sqrt(loss[0] / size + loss[1] / len(past)))


@dataclass(frozen=True, slots=True)
class Rule:
    """Watches one metric."""

    name: str
    metric: str
    above: bool
    """Suspects a rise; False: a fall."""
    margin: float
    """Smallest change that matters: a factor where `offset` is given, a difference in the metric's unit otherwise."""
    offset: float | None = None
    """Added before logarithms are taken, so that a change of what is almost nothing is not large; None: no logarithms."""

    def scale(self, x: float) -> float | None:
        """Bring a value to the scale on which it is compared; None where it has no logarithm."""
        if self.offset is None:
            return x
        return log(x + self.offset) if x + self.offset > 0 else None

    def judge(self, windows: Windows) -> Suspicion | None:
        """Compare; the limit is the margin or `SURE` standard errors, whichever is further away."""
        sign = 1 if self.above else -1
        margin = self.margin if self.offset is None else log(self.margin)
        if sign * (windows.value - windows.reference) < margin:
            return None
        limit = windows.reference + sign * max(margin, SURE * windows.error)
        return Suspicion(self.name, self._unscale(windows.value), self._unscale(limit)) if sign * (windows.value - limit) >= 0 else None

    def _unscale(self, y: float) -> float:
        return y if self.offset is None else exp(y) - self.offset


REWARD = Rule("reward", "reward/mean", above=False, margin=0.0)
"""Only suspected, from `SUSPECT` standard errors on."""
RULES = (
    Rule("gradient", "optim/grad_norm", above=True, margin=10.0, offset=0.0),
    Rule("malformed", "stop/malformed", above=True, margin=0.25),
    Rule("entropy", "policy/entropy", above=True, margin=3.0, offset=0.1),
    Rule("entropy", "policy/entropy", above=False, margin=5.0, offset=1e-6),
    Rule("likelihood", "policy/logprob_right", above=False, margin=1.0),
    Rule("likelihood", "policy/logprob_wrong", above=False, margin=2.0),
    Rule("searches", "episode/searches", above=False, margin=4.0, offset=0.1),
    Rule("calls", "episode/single_call_frac", above=True, margin=0.3),
    Rule("calls", "episode/common_call_frac", above=True, margin=0.3),
    Rule("answer length", "answer/words", above=True, margin=4.0, offset=1.0),
)
"""Entropy and gradients vary by factors from step to step: their logarithms are compared. A step without a gradient says nothing."""


class Series:
    """What a rule has seen, oldest first."""

    def __init__(self, rule: Rule, window: int) -> None:
        """Start empty; `window` is in steps."""
        self.rule, self._window = rule, window
        self._values: list[float] = []

    def note(self, value: float) -> None:
        """Take the value of the next step."""
        scaled = self.rule.scale(value)
        if scaled is not None:
            self._values.append(scaled)
            del self._values[: -(1 + PAST_WINDOWS) * self._window]

    def drop(self, steps: int) -> None:
        """Forget the last steps."""
        del self._values[max(0, len(self._values) - steps) :]

    def compare(self) -> Windows | None:
        """Compare the last steps with those before; None where there are too few."""
        values = self._values
        size = min(self._window, len(values) // 2)
        if size < FIRST_WINDOW:
            return None
        return Windows.compare(values[-size:], values[:-size], logarithms=self.rule.offset is not None)


class CollapseMonitor:
    """Looks at reports one by one."""

    def __init__(self, questions_per_step: int) -> None:
        """Start without a past; the number of different questions in a step sizes the windows."""
        self.window = min(MAX_WINDOW, max(MIN_WINDOW, ceil(WINDOW_QUESTIONS / questions_per_step)))
        """Steps."""
        self._watched = [Series(rule, self.window) for rule in RULES]
        self._reward = Series(REWARD, self.window)
        self._quiet = 0

    def look(self, metrics: Mapping[str, float]) -> Suspicion | None:
        """Take the metrics of the next step; return the first rule that suspects a collapse.

        The answer to a suspicion is `restart` or `dismiss`, before the next look.
        """
        for series in [*self._watched, self._reward]:
            if series.rule.metric in metrics:
                series.note(metrics[series.rule.metric])
        self._quiet = max(0, self._quiet - 1)
        reward = self._reward.compare()
        risen = reward.value - reward.reference if reward is not None else 0.0
        if reward is not None and risen > RISEN * abs(reward.reference) and risen > RISEN_SURE * reward.error:
            return None
        for series in self._watched:
            windows = series.compare()
            if windows is not None and (suspicion := series.rule.judge(windows)):
                return suspicion
        if reward is None or risen >= 0 or self._quiet:
            return None
        error = reward.error
        if -risen <= SUSPECT * error:
            return None
        confirm = max(CONFIRMED, TOGETHER + risen / error) if error else CONFIRMED
        return Suspicion(REWARD.name, reward.value, reward.reference - SUSPECT * error, confirm)

    def restart(self) -> None:
        """Start anew after other weights were put in place: the past no longer speaks of them.

        Only the reward before the collapse is kept: the run must come back to it.
        """
        self._watched = [Series(rule, self.window) for rule in RULES]
        self._reward.drop(self.window)
        self._quiet = 0

    def dismiss(self) -> None:
        """Suspect no reward for half a window: the held-out questions did not confirm it."""
        self._quiet = self.window // 2


def mean_score(scores: Scores) -> float:
    """Average the rewards there are; 0.0 where there are none."""
    known = [score for score in scores if score is not None]
    return fmean(known) if known else 0.0


def find_fall(past: Sequence[Scores], scores: Scores, sure: float) -> Suspicion | None:
    """Compare the mean reward of a scoring with earlier ones of the same questions; a fall has `sure` standard errors."""
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
    return Suspicion("held-out reward", value, limit) if value < limit else None
