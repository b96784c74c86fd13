"""Confidence intervals: Wilson's for shares, and their text form."""


def wilson_interval(successes: int, n: int, alpha: float) -> tuple[float, float]:
    """Return Wilson's score interval of a share, which stays inside [0, 1] and is sound near both ends.

    Returns:
        Lower and upper end; exactly 0 without successes, exactly 1 without failures; (0, 1) if n is 0.
    """
    from statsmodels.stats.proportion import proportion_confint

    if n == 0:
        return 0.0, 1.0
    low, high = proportion_confint(successes, n, alpha=alpha, method="wilson")
    # The computed ends miss their bound by a rounding error: 0.9999999999999999.
    return 0.0 if successes == 0 else float(low), 1.0 if successes == n else float(high)


def show_interval(low: float, high: float, form: str = "+z.3f") -> str:
    """Format an interval in brackets, both ends in a format of `format()`."""
    return f"[{low:{form}}, {high:{form}}]"
