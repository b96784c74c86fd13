"""What a thinking model writes before it says anything."""

THINK, THOUGHT = "<think>", "</think>"


def after_thinking(text: str) -> str:
    """Return what is said: the text after the last `</think>`, and up to a `<think>` that is never closed."""
    return text.rpartition(THOUGHT)[2].partition(THINK)[0]
