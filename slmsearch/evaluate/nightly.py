"""Whether a night is worse than the nights before it.

A night plays the champion anew on two sets: the *fixed* one, the same questions every night, and a *fresh* world of questions that
nobody has seen. Four comparisons, each over all questions and over each kind of question that has enough of them:

- `green nights`: the fixed set tonight and on the last green nights of the same adapter. The difference of each question from its mean
  in those nights is paired; its variance is taken under no change, as in McNemar's test. Questions that always come out alike say
  nothing and cost nothing, so the test feels only the noise of replaying.
- `promotion`: the same with the evaluation that the champion was promoted by. It notices what creeps in a little every night.
- `fresh worlds`: tonight's fresh world and those of the green nights. Worlds differ, by their questions and as worlds; the spread
  between worlds is estimated from the history, the variance of each from its questions, page by page.
- `three fresh worlds`: the same with the mean of the last three.

Where the questions are no longer those of the last green night, it is compared unpaired (`other questions`).

All p-values of a night, one-sided, are corrected together by Holm's method. A slice has fallen if its p stays below `alpha` and
it lost at least `min_fall`. So the chance that a night alarms without cause is at most alpha: at 0.01 half an alarm is expected
in 50 nights, and were nights independent, more than two would come in one of seventy such series. The promotion's score is one draw
that all nights share, and one high enough to promote, so that alarms may come in clusters.

What this can see at 1,000 questions: a fall of 5 points against one night or several is 3.5 to 7 standard errors; in a single fresh world
it is 3.2, found about every second night, and nearly always in three worlds together. `slmsearch bench nightly` measures all of this.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from slmsearch.config import DecisionConfig, NightlyConfig
from slmsearch.environments.rows import EpisodeRow
from slmsearch.errors import ConfigError
from slmsearch.evaluate.metrics import row_metrics, row_values
from slmsearch.evaluate.statistics import cluster_members, holm_adjust
from slmsearch.keys import content_key

ALL = "all"
"""The slice of all questions."""
GREEN, PROMOTION, FRESH, FRESH_WINDOW, OTHER = "green nights", "promotion", "fresh worlds", "three fresh worlds", "other questions"
SMALL_HISTORY, WORLD_SD = 5, 0.01
"""With fewer worlds their standard deviation is not known, and taken to be at least this."""
Z95 = 1.959964
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SliceScore:
    """How a slice of questions came out on one night."""

    n: int
    mean: float
    variance: float
    """Of the mean, had other questions of the same kind been drawn, page by page."""


World = Mapping[str, SliceScore]
"""Slice -> how it came out in one world of questions."""


@dataclass(frozen=True)
class Scores:
    """One value for each question that was played and graded, in the order of their ids."""

    ids: tuple[str, ...]
    values: Floats
    kinds: tuple[str, ...]
    clusters: tuple[str, ...]
    """First gold page; empty where none is known."""

    def slices(self) -> dict[str, NDArray[np.intp]]:
        """Return the positions of the questions of each slice that has any: all, and each kind."""
        kinds = np.array(self.kinds)
        found = {f"kind={kind}": np.flatnonzero(kinds == kind) for kind in sorted(set(self.kinds))}
        return {ALL: np.arange(len(self.ids)), **found} if self.ids else {}

    def summarise(self) -> dict[str, SliceScore]:
        """Summarise each slice."""
        return {name: _summarise(self.values[rows], [self.clusters[i] for i in rows]) for name, rows in self.slices().items()}

    def keep(self, ids: Sequence[str]) -> "Scores":
        """Keep some of the questions, in the order given."""
        places = {name: i for i, name in enumerate(self.ids)}
        rows = [places[name] for name in ids]
        kinds, clusters = (tuple(column[i] for i in rows) for column in (self.kinds, self.clusters))
        return Scores(tuple(ids), self.values[rows], kinds, clusters)


def scores_of(rows: Sequence[EpisodeRow], metric: str) -> Scores:
    """Take the values of a metric; failed rows are left out.

    Raises:
        ConfigError: the metric is no mean over questions, or has no value for some.
    """
    if metric not in row_metrics():
        raise ConfigError(f"decision.metric {metric!r} is no mean over questions; use one of {', '.join(row_metrics())}")
    graded = sorted((row for row in rows if not row.failed), key=lambda row: row.question_id)
    values = row_values(graded, metric)
    if any(value is None for value in values):
        raise ConfigError(f"decision.metric {metric!r} is undefined for some questions; use answer/exact_match")
    ids, kinds, clusters = (tuple(getattr(row, name) for row in graded) for name in ("question_id", "kind", "cluster"))
    return Scores(ids, np.array(values, dtype=np.float64), kinds, clusters)


def questions_key(rows: Sequence[EpisodeRow]) -> str:
    """Name the questions that rows are of, with their answers: equal keys may be compared question by question."""
    return content_key(questions=sorted([row.question_id, row.question, row.gold] for row in rows))


def _summarise(values: Floats, clusters: Sequence[str]) -> SliceScore:
    """Estimate a mean and its variance over clusters (Miller, arXiv 2411.00640), never below that of one more hit and one more miss."""
    n, mean = len(values), float(values.mean())
    clustered = float((np.bincount(cluster_members(clusters), weights=values - mean) ** 2).sum()) / n**2
    share = (float(values.sum()) + 1) / (n + 2)
    floor = share * (1 - share) / (n + 2) if np.isin(values, (0.0, 1.0)).all() else 0.0
    return SliceScore(n, mean, max(clustered, floor))


@dataclass(frozen=True, slots=True)
class NightTest:
    """One slice of a night beside one reference."""

    against: str
    slice: str
    n: int
    before: float
    now: float
    low: float
    """Of the 95 % interval of now - before."""
    high: float
    p: float
    """One-sided: that it came out this low by chance."""
    p_holm: float | None = None
    """Corrected over the night; None for a slice too small to be tested."""
    fell: bool = False


def replayed(now: Scores, against: str, history: Sequence[Scores]) -> Iterator[NightTest]:
    """Compare a night with others of the same questions, by those that were graded in all of them."""
    shared = sorted(set(now.ids).intersection(*(night.ids for night in history)))
    now, *earlier = (night.keep(shared) for night in (now, *history))
    expected = np.mean([night.values for night in earlier], axis=0)
    for name, rows in now.slices().items():
        before, after = expected[rows], now.values[rows]
        error = sqrt(float(((after - before) ** 2).mean()) / len(rows))
        yield _test((against, name, len(rows)), float(before.mean()), float(after.mean()), error)


def drawn(now: Sequence[World], against: str, history: Sequence[World]) -> Iterator[NightTest]:
    """Compare the mean of some worlds with what other worlds let expect."""
    for name in now[0]:
        latest = [world[name] for world in now if name in world]
        earlier = [world[name] for world in history if name in world]
        if len(latest) == len(now) and earlier:
            before, between, of_before = _pooled(earlier)
            variance = sum(found.variance + between for found in latest) / len(now) ** 2 + of_before
            mean = sum(found.mean for found in latest) / len(now)
            yield _test((against, name, min(found.n for found in latest)), before, mean, sqrt(variance))


def _test(what: tuple[str, str, int], before: float, now: float, error: float) -> NightTest:
    """Test the difference by its standard error; `what` is reference, slice and number of questions."""
    from scipy.stats import norm

    gap, margin = now - before, Z95 * error
    p = float(norm.cdf(gap / error)) if error else float(gap >= 0)
    return NightTest(*what, before, now, gap - margin, gap + margin, p)


def _pooled(history: Sequence[SliceScore]) -> tuple[float, float, float]:
    """Return the mean of worlds, the variance between them that their questions do not explain, and the variance of the mean."""
    means = np.array([world.mean for world in history])
    variances = np.array([max(world.variance, 1e-12) for world in history])
    least = WORLD_SD**2 if len(history) < SMALL_HISTORY else 0.0
    between = max(least, float(means.var(ddof=1) - variances.mean())) if len(history) > 1 else least
    weights = 1 / (variances + between)
    return float((weights * means).sum() / weights.sum()), between, float(1 / weights.sum())


def corrected(tests: Sequence[NightTest], config: NightlyConfig) -> tuple[NightTest, ...]:
    """Correct the p-values of a night's tests and say what fell; slices of fewer questions than have a veto in decisions are only shown."""
    large = [i for i, test in enumerate(tests) if test.n >= DecisionConfig.min_slice]
    found = list(tests)
    for i, p in zip(large, holm_adjust([tests[i].p for i in large]), strict=True):
        found[i] = replace(tests[i], p_holm=p, fell=p < config.alpha and tests[i].before - tests[i].now >= config.min_fall)
    return tuple(found)
