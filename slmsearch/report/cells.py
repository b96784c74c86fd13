"""Numbers as the cells of a table."""

NONE = "-"
"""What stands where there is no value."""


def percent(value: float | None) -> str:
    """Write a share as a percentage with one decimal; no value is a dash."""
    return NONE if value is None else f"{100 * value:.1f}"


def number(value: float | None, digits: int = 1) -> str:
    """Write a number with so many decimals; no value is a dash."""
    return NONE if value is None else f"{value:.{digits}f}"
