"""Intervals: Wilson's for shares, and how people read any."""


def wilson_interval(successes: int, n: int, alpha: float) -> tuple[float, float]:
    """Bound a share by Wilson's score interval, which stays inside [0, 1] and is sound near both ends.

    Returns:
        Lower and upper end, exactly 0 without and exactly 1 with nothing but successes; (0, 1) when n is 0, since nothing is known.
    """
    from statsmodels.stats.proportion import proportion_confint

    if n == 0:
        return 0.0, 1.0
    low, high = proportion_confint(successes, n, alpha=alpha, method="wilson")
    # Computed, the two ends miss their bound by a rounding error: 0.9999999999999999.
    return 0.0 if successes == 0 else float(low), 1.0 if successes == n else float(high)


def show_interval(low: float, high: float, form: str = "+z.3f") -> str:
    """Write an interval in brackets, both ends in a format of `format()`."""
    return f"[{low:{form}}, {high:{form}}]"
