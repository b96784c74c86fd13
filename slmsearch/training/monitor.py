"""The collapse monitor: reports when a training run begins to collapse, from the metrics of every step.

Collapse shows in many ways: the likelihood of right and wrong episodes alike decays and gradients explode (2512.04220), the policy's
entropy falls so low that it no longer explores, it stops searching, makes the same call for every question, or writes longer and longer
answers.

Each rule compares the last steps with the steps before them. Both windows are sized in questions, and every limit follows from the
noise of the run's own steps, so that one rule holds for two questions a step and for sixty-four. A change with a clearly higher reward is
learning, not collapse. A fall of the reward is only a suspicion, which held-out questions confirm: the policy plays the same questions
greedily each time, so that rewards are compared question by question. The reference is each question's mean over the last scorings, not
the best one: the best of many is partly luck.

Pure: the same reports, restarts and dismissals give the same answers, so that a resumed run is in the state of the killed one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, log, sqrt
from statistics import fmean, median, stdev

WINDOW_QUESTIONS = 128
"""Number of questions whose episodes are compared with those before."""
MIN_WINDOW, MAX_WINDOW = 8, 24
"""Bounds of the window in steps: fewer steps do not show the noise, more detect a collapse too late."""
FIRST_WINDOW = 6
"""Steps of the window early in the run: half of the steps so far are compared with the other half, from twice this number on."""
PAST_WINDOWS = 4
"""Windows before the last one that define the normal state."""
SURE = 4.0
"""Standard errors by which a metric must have moved."""
SUSPECT = 2.5
"""Standard errors by which the mean reward must have fallen before the held-out questions are played."""
TOGETHER, CONFIRMED = 5.0, 1.0
"""Standard errors of both falls together that are a collapse; and those of the held-out questions at least."""
RISEN, RISEN_SURE = 0.25, 3.0
"""Share and standard errors by which a reward must have risen for a change to count as learning."""
Scores = list[float | None]
"""Reward of each held-out question, in order; None where a service broke and the episode does not count."""

SCORINGS = 8
"""Earlier scorings that count."""
ALONE = 4.0
"""Standard errors that are a collapse without any earlier suspicion, at a scheduled scoring."""
SMALLEST_FALL = 0.25
"""Smallest fall, as a share of the earlier mean: policies vary a little without collapse, too."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A suspected collapse."""

    rule: str
    value: float
    """Measured value over the window, in the metric's unit."""
    limit: float
    """Limit that it passed, in the same unit."""
    confirm: float = 0.0
    """Standard errors by which the held-out questions must have fallen, too; only they can tell a collapse from a run of hard
    questions. 0: no confirmation is needed."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Last steps of a metric beside the steps before."""

    value: float
    """Mean of the last steps, or (logarithms) their median, which single outliers do not move."""
    reference: float
    """Reference from the steps before: the median of their windows' means, or their median."""
    error: float
    """Standard error of the difference, from the spread of the steps before."""

    @classmethod
    def compare(cls, recent: list[float], past: list[float], logarithms: bool) -> "Windows":
        """Compare values, oldest first; `past` has at least as many as `recent`."""
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
    """A rule that watches one metric."""

    name: str
    metric: str
    above: bool
    """True: suspects a rise; False: a fall."""
    margin: float
    """Smallest change that matters: a factor where `offset` is given, a difference in the metric's unit otherwise."""
    offset: float | None = None
    """Number added before logarithms are taken, so that a change of almost nothing is not large; None: no logarithms."""

    def scale(self, x: float) -> float | None:
        """Convert a value to the scale of the comparison; None where it has no logarithm."""
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
"""Rule for the reward: it only suspects, from `SUSPECT` standard errors on."""
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
"""Rules for the other metrics. Entropy and gradients vary by factors from step to step: their logarithms are compared. A step without a
gradient has no logarithm and is ignored."""


class Series:
    """Values that a rule has seen, oldest first."""

    def __init__(self, rule: Rule, window: int) -> None:
        """Start empty; `window` is in steps."""
        self.rule, self._window = rule, window
        self._values: list[float] = []

    def note(self, value: float) -> None:
        """Record the value of the next step."""
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
    """A monitor that looks at reports one by one."""

    def __init__(self, questions_per_step: int) -> None:
        """Start without a past; `questions_per_step`, the number of different questions in a step, sizes the windows."""
        self.window = min(MAX_WINDOW, max(MIN_WINDOW, ceil(WINDOW_QUESTIONS / questions_per_step)))
        """Size of the window, in steps."""
        self._watched = [Series(rule, self.window) for rule in RULES]
        self._reward = Series(REWARD, self.window)
        self._quiet = 0

    def look(self, metrics: Mapping[str, float]) -> Suspicion | None:
        """Record the metrics of the next step; return the first rule's suspicion of a collapse.

        The caller answers a suspicion with `restart` or `dismiss`, before the next look.
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
        """Start again after other weights were restored: earlier steps describe other weights.

        Only the reward before the collapse is kept: the run must reach it again.
        """
        self._watched = [Series(rule, self.window) for rule in RULES]
        self._reward.drop(self.window)
        self._quiet = 0

    def dismiss(self) -> None:
        """Suspect no fall of the reward for half a window: the held-out questions did not confirm it."""
        self._quiet = self.window // 2


def mean_score(scores: Scores) -> float:
    """Average the known rewards; 0.0 where there are none."""
    known = [score for score in scores if score is not None]
    return fmean(known) if known else 0.0


def find_fall(past: Sequence[Scores], scores: Scores, sure: float) -> Suspicion | None:
    """Return the fall of a scoring's mean reward below earlier ones of the same questions, if it is `sure` standard errors."""
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
