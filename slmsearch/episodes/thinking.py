"""Marks around a model's thinking, and the text after them."""

THINK, THOUGHT = "<think>", "</think>"


def after_thinking(text: str) -> str:
    """Return the text after the last `</think>`, and up to a `<think>` that is never closed."""
    return text.rpartition(THOUGHT)[2].partition(THINK)[0]
