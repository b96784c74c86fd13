"""Numbers as the cells of a table."""

from slmsearch.evaluate.statistics import Difference

NONE = "-"
"""What stands where there is no value."""


def percent(value: float | None) -> str:
    """Write a share as a percentage with one decimal; no value is a dash."""
    return NONE if value is None else f"{100 * value:.1f}"


def share(value: float, low: float, high: float) -> str:
    """Write a share with its interval."""
    return f"{percent(value)} ({percent(low)}-{percent(high)})"


def points(value: float | None) -> str:
    """Write a difference of shares in percentage points."""
    return NONE if value is None else f"{100 * value:+.1f}"


def number(value: float | None, digits: int = 1) -> str:
    """Write a number with so many decimals; no value is a dash."""
    return NONE if value is None else f"{value:.{digits}f}"


def whole(value: float | None) -> str:
    """Write a number without decimals; no value is a dash."""
    return number(value, 0)


def change(before: float, after: float, found: Difference) -> tuple[str, ...]:
    """Write two means, their difference, its interval and its p-value as five cells."""
    return (f"{before:.3f}", f"{after:.3f}", f"{found.mean:+.3f}", f"[{found.low:+.3f}, {found.high:+.3f}]", f"{found.p:.4f}")


def difference(mean: float, low: float, high: float, p: float) -> str:
    """Write a mean difference with its interval and p-value."""
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}], p {p:.4f}"
