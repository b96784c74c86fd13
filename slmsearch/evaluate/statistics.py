"""Statistics of paired comparisons; the primitives come from numpy, scipy and statsmodels.

The rule of promotion is in `evaluate/compare.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

MAX_RESAMPLE_CELLS = 4_000_000
"""Largest number of counts (32 MB) in a block of resamples, so that memory does not grow with the data."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean paired difference (after - before) with its interval and two-sided p-value."""

    mean: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class McNemar:
    """Discordant pairs and the exact p-value that both directions are equally likely."""

    gained: int
    """Pairs that were wrong before and right after."""
    lost: int
    """Pairs that were right before and wrong after."""
    p: float


def paired_bootstrap(differences: Sequence[float], clusters: Sequence[str], resamples: int, alpha: float, seed: int) -> Difference:
    """Estimate the mean paired difference with a percentile interval from a bootstrap over clusters.

    Whole clusters are drawn with replacement, because questions about one page are not independent (Miller, "Adding Error Bars to
    Evals", arXiv 2411.00640; Efron & Tibshirani, "An Introduction to the Bootstrap", ch. 13 for the interval). The p-value inverts
    the interval: twice the smaller share of resampled means on either side of 0, plus one in numerator and denominator.

    Args:
        differences: one value per question.
        clusters: one name per question; an empty name is a cluster of its own. If all questions share one cluster, every question counts as
            its own, because one cluster cannot be resampled.
        resamples: number of resamples.
        alpha: 1 - level of the interval.
        seed: seeds the resampling.

    Raises:
        ValueError: there is no difference, or the lengths differ.
    """
    import numpy as np

    if not differences or len(differences) != len(clusters):
        raise ValueError(f"need one cluster for each of at least one difference, got {len(clusters)} for {len(differences)}")
    names = [f"c{name}" if name else f"q{i}" for i, name in enumerate(clusters)]
    if len(set(names)) == 1:
        names = [str(i) for i in range(len(names))]
    _, member_of = np.unique(np.array(names), return_inverse=True)
    sums, sizes = np.bincount(member_of, weights=np.array(differences, dtype=float)), np.bincount(member_of).astype(float)
    count = len(sums)
    rng = np.random.default_rng(seed)
    means: list[float] = []
    block = max(1, MAX_RESAMPLE_CELLS // count)
    while len(means) < resamples:
        draws = rng.multinomial(count, np.full(count, 1 / count), size=min(block, resamples - len(means)))
        means.extend(((draws @ sums) / (draws @ sizes)).tolist())
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    below, above = (sum(mean <= 0 for mean in means), sum(mean >= 0 for mean in means))
    p = min(1.0, 2 * (min(below, above) + 1) / (resamples + 1))
    return Difference(float(sums.sum() / sizes.sum()), float(low), float(high), p)


def mcnemar_exact(before: Sequence[bool], after: Sequence[bool]) -> McNemar:
    """Test two binary systems on the same questions by McNemar's exact (binomial) test on the discordant pairs."""
    from statsmodels.stats.contingency_tables import mcnemar

    gained = sum(new and not old for old, new in zip(before, after, strict=True))
    lost = sum(old and not new for old, new in zip(before, after, strict=True))
    if gained + lost == 0:
        return McNemar(0, 0, 1.0)
    both = sum(old and new for old, new in zip(before, after, strict=True))
    neither = len(before) - gained - lost - both
    return McNemar(gained, lost, float(mcnemar([[both, lost], [gained, neither]], exact=True).pvalue))


def smallest_detectable_effect(n: int, mean_square: float, alpha: float) -> float:
    """Find the smallest mean paired difference that n questions would show with a power of 0.8.

    (z_{1-alpha/2} + z_{0.8}) * sqrt(mean_square / n), the normal approximation of the paired test (Connor, Biometrics 43, 1987,
    with the variance under no difference). Questions count as independent, so with clusters this is a lower bound.

    Args:
        n: paired questions.
        mean_square: mean squared difference; for right/wrong the share of discordant pairs.
        alpha: two-sided level of the test.
    """
    from scipy.stats import norm

    if n < 1:
        raise ValueError("need at least one pair")
    return float((norm.ppf(1 - alpha / 2) + norm.ppf(0.8)) * sqrt(mean_square / n))


def holm_adjust(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for testing several hypotheses at once (Holm, Scandinavian Journal of Statistics 6, 1979).

    The results are those of statsmodels' `multipletests`, which collects garbage at every call: half a second once torch is loaded.
    """
    import numpy as np

    order = np.argsort(p_values)
    steps = np.maximum.accumulate(np.asarray(p_values)[order] * np.arange(len(order), 0, -1)) if len(order) else np.empty(0)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(steps, 1.0)
    return [float(p) for p in adjusted]
