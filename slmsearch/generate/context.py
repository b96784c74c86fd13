"""How much of a model's context prompts and episodes take."""

from collections.abc import Iterable, Sequence
from typing import Any

from slmsearch.errors import ModelError
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.generate.sampler import Message


def longest_prompt(prompts: Iterable[Sequence[Message]], renderer: ChatRenderer) -> int:
    """Count the tokens of the longest opening; 0 where there is none."""
    return max((len(renderer.encode_prompt(prompt)) for prompt in prompts), default=0)


def require_context(model: Any, tokens: int, what: str, remedy: str) -> None:
    """Refuse what does not fit into a model's context.

    Args:
        model: a loaded model of transformers; one whose configuration names no length takes everything.
        tokens: how many it must take.
        what: that they are of.
        remedy: what to do beside taking another model.

    Raises:
        ModelError: the context is shorter.
    """
    config = getattr(model, "config", None)
    length = getattr(config.get_text_config(), "max_position_embeddings", None) if config is not None else None
    if length is not None and tokens > length:
        raise ModelError(f"{what} has {tokens} tokens, and the model's context ends at {length}: {remedy}, or take another policy.model")
