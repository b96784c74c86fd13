"""A demonstration: the messages that a model learns to write."""

from dataclasses import dataclass

from slmsearch.episodes.sampler import Message


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A question and alternating messages and tool results; ends with a message."""

    question: str
    turns: tuple[tuple[str, str], ...]
    """Pairs of a message and the tool result that answers it; the last result is empty."""
    prompt: tuple[Message, ...] = ()
    """Opening messages; empty: those of the environment."""
    new: bool = False
    """True if the model never got the question right: a correction, or a question that it plays wrongly."""
