"""Nightly test: is a night worse than the nights before it?

A night plays the champion again on two sets: the *fixed* one, the same questions every night, and a *fresh* world of new questions. It
makes four comparisons, each over all questions and over each kind and each source of questions that has enough of them:

- `green nights`: the fixed set tonight and on the last green nights of the same adapter, question by question. Without any change,
  tonight could have been any of these nights: given how often each question was right in all of them, the number right tonight is a sum
  of independent draws (Poisson binomial, exact; for values other than right and wrong the draws are simulated). Questions with the same
  result in every night do not affect the test, so that it sees only the noise of replaying. With one night it is McNemar's exact test.
- `promotion`: the same with the evaluation that the champion was promoted by. It detects a small loss every night.
- `fresh worlds`: tonight's fresh world and those of the green nights. Worlds differ, by their questions and as worlds; the spread
  between worlds is estimated from the history (random effects, Paule and Mandel), the variance of each from its questions, page
  by page.
- `three fresh worlds`: the same with the mean of the last three.

If the questions are no longer those of the last green night, the two nights are compared unpaired (`other questions`).

All p-values of a night, one-sided, are corrected together by Holm's method. A slice has fallen if its p stays below `alpha` and
it lost at least `min_fall`. So the chance of a false alarm on a night is at most alpha: at 0.01 half an alarm is expected in 50 nights,
and were nights independent, more than two would come in one of seventy such series. The promotion's score is one draw that all nights
share, and one high enough to promote, so that alarms may come in clusters.

Power at 1,000 questions: a fall of 5 points against one night or several is 3.5 to 7 standard errors; in a single fresh world it is 3.2,
found about every second night, and nearly always in three worlds together. `slmsearch bench nightly` measures all of this.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from slmsearch.config import DecisionConfig, NightlyConfig
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.evaluate.metrics import metric_values, slice_names
from slmsearch.evaluate.statistics import holm_adjust
from slmsearch.keys import content_key

ALL = "all"
"""The slice of all questions."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SliceScore:
    """Score of a slice of questions on one night."""

    n: int
    mean: float
    variance: float
    """Variance of the mean over other draws of the same kind of questions, page by page."""


@dataclass(frozen=True)
class Scores:
    """One value for each question that was played and graded, in the order of their ids."""

    ids: tuple[str, ...]
    values: Floats
    groups: tuple[tuple[str, ...], ...]
    """Slices of each question, by kind and source."""
    clusters: tuple[str, ...]
    """First gold page; empty where none is known."""

    def slices(self) -> dict[str, NDArray[np.intp]]:
        """Return the positions of the questions of each slice: all, each kind, each source."""
        found = {ALL: np.arange(len(self.ids))}
        names = sorted({name for group in self.groups for name in group})
        return found | {name: np.flatnonzero([name in group for group in self.groups]) for name in names}

    def summarise(self) -> dict[str, SliceScore]:
        """Summarise each slice."""
        return {name: _summarise(self.values[rows], [self.clusters[i] for i in rows]) for name, rows in self.slices().items() if len(rows)}


def scores_of(rows: Sequence[EpisodeRow], metric: str) -> Scores:
    """Return the values of a metric; failed rows are left out.

    Raises:
        ConfigError: the metric is not a mean over questions, or has no value for some.
    """
    graded = sorted((row for row in rows if not row.failed), key=lambda row: row.question_id)
    ids, clusters = (tuple(getattr(row, name) for row in graded) for name in ("question_id", "cluster"))
    # Not by hops: they tell little that kinds do not, and every slice costs power.
    groups = tuple(tuple(name for name in slice_names(row) if not name.startswith("hops=")) for row in graded)
    return Scores(ids, np.array(metric_values(graded, metric), dtype=np.float64), groups, clusters)


def questions_key(rows: Sequence[EpisodeRow]) -> str:
    """Return a key of the questions of rows, with their answers: rows with equal keys may be compared question by question."""
    return content_key(questions=sorted([row.question_id, row.question, row.gold] for row in rows))


def common(scores: Sequence[Scores]) -> tuple[list[Floats], Scores]:
    """Keep the questions that were graded in all of several evaluations of the same questions.

    Returns:
        The values of each, in the same order, and the first of them cut to those questions.
    """
    shared = sorted(set.intersection(*(set(part.ids) for part in scores)))
    places = [{name: i for i, name in enumerate(part.ids)} for part in scores]
    columns = [part.values[[place[name] for name in shared]] for part, place in zip(scores, places, strict=True)]
    groups = tuple(scores[0].groups[places[0][name]] for name in shared)
    clusters = tuple(scores[0].clusters[places[0][name]] for name in shared)
    return columns, Scores(tuple(shared), columns[0], groups, clusters)


def _summarise(values: Floats, clusters: Sequence[str]) -> SliceScore:
    """Estimate a mean and its variance over clusters (Miller, arXiv 2411.00640), at least that of one more hit and one more miss."""
    n, mean = len(values), float(values.mean())
    names = [f"c{name}" if name else f"q{i}" for i, name in enumerate(clusters)]
    places: dict[str, int] = {}
    member_of = np.array([places.setdefault(name, len(places)) for name in names])
    clustered = float((np.bincount(member_of, weights=values - mean) ** 2).sum()) / n**2
    share = (float(values.sum()) + 1) / (n + 2)
    floor = share * (1 - share) / (n + 2) if np.isin(values, (0.0, 1.0)).all() else 0.0
    return SliceScore(n, mean, max(clustered, floor))


GREEN, PROMOTION, FRESH, FRESH_WINDOW, OTHER = "green nights", "promotion", "fresh worlds", "three fresh worlds", "other questions"
WINDOW = 3
"""Number of nights of `three fresh worlds`, tonight included."""
SMALL_HISTORY = 5
"""Number of worlds below which their spread is uncertain, and assumed to be at least `WORLD_SD`."""
WORLD_SD = 0.01
RESAMPLES = 20_000
BLOCK = 1_000
"""Number of resamples drawn at once."""
Z95 = 1.959964

FreshScores = Mapping[str, SliceScore]
"""Slice -> its score in one fresh world."""


@dataclass(frozen=True)
class Past:
    """References of a night's comparisons."""

    green: tuple[Scores, ...] = ()
    """The fixed set on green nights of one adapter, newest first, the same questions as tonight."""
    other: FreshScores | None = None
    """Last green night if it had other questions."""
    promotion: Scores | None = None
    fresh: tuple[FreshScores, ...] = ()
    """Fresh worlds of green nights of one adapter, newest first."""
    fresh_before: tuple[FreshScores, ...] = ()
    """Fresh worlds of the nights just before, newest first, whether they were green or not."""
    fresh_older: tuple[FreshScores, ...] = ()
    """Worlds of `fresh` before the window of `three fresh worlds`."""


@dataclass(frozen=True, slots=True)
class NightTest:
    """A comparison of one slice of a night with one reference."""

    against: str
    slice: str
    n: int
    before: float
    now: float
    low: float
    """Lower end of the 95 % interval of now - before."""
    high: float
    p: float
    """One-sided p-value: the chance of a score as low as this one."""
    p_holm: float | None = None
    """p-value corrected over the night; None for a slice too small to be tested."""
    fell: bool = False


def compare_night(fixed: Scores, fresh: FreshScores | None, past: Past, config: NightlyConfig) -> tuple[NightTest, ...]:
    """Compare a night's two sets with its past by the rule above; empty parts of the past are skipped.

    Slices too small for a veto in decisions are shown and not tested.
    """
    tests: list[NightTest] = []
    if past.green:
        tests += _replayed(GREEN, fixed, past.green)
    if past.promotion is not None:
        tests += _replayed(PROMOTION, fixed, [past.promotion])
    if past.other is not None:
        tests += _drawn(OTHER, [fixed.summarise()], [past.other])
    if fresh is not None and past.fresh:
        tests += _drawn(FRESH, [fresh], past.fresh)
    window = [fresh, *past.fresh_before[: WINDOW - 1]] if fresh is not None else []
    if len(window) == WINDOW and past.fresh_older:
        tests += _drawn(FRESH_WINDOW, window, past.fresh_older)
    return _corrected(tests, config)


def _corrected(tests: Sequence[NightTest], config: NightlyConfig) -> tuple[NightTest, ...]:
    large = [i for i, test in enumerate(tests) if test.n >= DecisionConfig.min_slice]
    corrected = list(tests)
    for i, p in zip(large, holm_adjust([tests[i].p for i in large]), strict=True):
        fell = p < config.alpha and tests[i].before - tests[i].now >= config.min_fall
        corrected[i] = replace(tests[i], p_holm=p, fell=fell)
    return tuple(corrected)


def _replayed(against: str, now: Scores, history: Sequence[Scores]) -> Iterable[NightTest]:
    columns, shared = common([now, *history])
    nights = np.vstack(columns)
    for name, rows in shared.slices().items():
        if len(rows):
            part = nights[:, rows]
            differences = part[0] - part[1:].mean(axis=0)
            error = Z95 * float(differences.std()) / sqrt(len(rows))
            before, tonight = float(part[1:].mean()), float(part[0].mean())
            gap = tonight - before
            # Nights that are all alike say nothing of what a change without a fall would flip: the last one alone is tested, too.
            p = max(replay_p(part), replay_p(part[:2]))
            yield NightTest(against, name, len(rows), before, tonight, gap - error, gap + error, p)


def replay_p(nights: Floats) -> float:
    """Return the chance that the first of several nights scores as low as it did, if it could have been any of them.

    `nights` has shape (nights, questions).
    """
    from scipy.stats import poisson_binom

    varying = nights[:, np.ptp(nights, axis=0) > 0]
    if not varying.size:
        return 1.0
    total = float(varying[0].sum())
    if np.isin(varying, (0.0, 1.0)).all():
        return min(1.0, float(poisson_binom(varying.mean(axis=0)).cdf(round(total))))
    rng, columns, as_low = np.random.default_rng(0), np.arange(varying.shape[1]), 0
    for _ in range(RESAMPLES // BLOCK):
        picked = rng.integers(0, len(varying), size=(BLOCK, varying.shape[1]))
        as_low += int((varying[picked, columns].sum(axis=1) <= total + 1e-9).sum())
    return (as_low + 1) / (RESAMPLES + 1)


def _drawn(against: str, now: Sequence[FreshScores], history: Sequence[FreshScores]) -> Iterable[NightTest]:
    for name in now[0]:
        latest = [found[name] for found in now if name in found]
        earlier = [found[name] for found in history if name in found]
        if len(latest) == len(now) and earlier:
            mean = sum(found.mean for found in latest) / len(latest)
            before, variance, p = history_p(latest, earlier)
            n, gap, error = min(found.n for found in latest), mean - before, Z95 * sqrt(variance)
            yield NightTest(against, name, n, before, mean, gap - error, gap + error, p)


def history_p(now: Sequence[SliceScore], history: Sequence[SliceScore]) -> tuple[float, float, float]:
    """Test whether the mean of some worlds is lower than expected from other worlds.

    The variance between worlds is known only from the history. The t distribution therefore has degrees of freedom by the uncertainty of
    that part of the variance (Satterthwaite): the number of worlds minus one where it is the whole variance, infinity where worlds do not
    differ.

    Returns:
        The expected mean, the variance of the difference, and the one-sided p-value.
    """
    from scipy.stats import t

    before, between, of_before = _pooled(history)
    within = sum(found.variance for found in now) / len(now) ** 2
    variance = within + between / len(now) + of_before
    mean = sum(found.mean for found in now) / len(now)
    if variance == 0:
        return before, 0.0, 0.0 if mean < before else 1.0
    spread = between / len(now)
    freedom = max(len(history) - 1, 1) * (variance / spread) ** 2 if spread and len(history) >= SMALL_HISTORY else inf
    return before, variance, float(t.cdf((mean - before) / sqrt(variance), freedom))


def _pooled(history: Sequence[SliceScore]) -> tuple[float, float, float]:
    """Return the mean of worlds, the variance between them, and the variance of the mean."""
    from statsmodels.stats.meta_analysis import combine_effects

    least = WORLD_SD**2 if len(history) < SMALL_HISTORY else 0.0
    variances = np.array([max(found.variance, 1e-12) for found in history])
    means = np.array([found.mean for found in history])
    between = least
    if len(history) > 1:
        between = max(least, float(combine_effects(means, variances, method_re="iterated").tau2))
    weights = 1 / (variances + between)
    return float((weights * means).sum() / weights.sum()), between, float(1 / weights.sum())
