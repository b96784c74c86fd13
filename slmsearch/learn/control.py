"""The control of every training run: supervised training continued from the same checkpoint.

It answers what reinforcement learning adds: same start, same scripted reader, at least the same minutes, all weights trained (the
strongest form of it). Demonstrations are fresh ones of the reader that made the checkpoint, never the evaluated world.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from slmsearch.config import RunConfig, SftConfig
from slmsearch.generate.load import load_model
from slmsearch.keys import content_key
from slmsearch.searcher.prompt import make_prompt

RECORD = "control.json"
CONTROL_VERSION = 3
"""Raise when the same inputs would give another control."""


def control_key(config: RunConfig, model_key: str) -> str:
    """Name a control by what it is made from."""
    return content_key(
        version=CONTROL_VERSION,
        model=model_key,
        sft=_sft(config).key_parts(),
        top_k=config.retrieval.top_k,
        max_tokens=config.searcher.max_episode_tokens,
        prompt=[dict(message) for message in make_prompt("?", config.searcher)],
    )


def train_control(config: RunConfig, out: Path, on_log: Callable[[int, dict[str, float]], None] | None = None) -> dict[str, Any]:
    """Continue supervised training from `config.policy.model`; a finished directory is returned as it is.

    Args:
        config: run; `control` says how long, `sft` how demonstrations are made.
        out: model directory to write, complete or absent.
        on_log: progress, as in `train_sft`.

    Returns:
        What `control.json` in the directory says: steps and seconds of training.
    """
    from slmsearch.generate.chat_renderer import ChatRenderer
    from slmsearch.learn.sft import demonstrated
    from slmsearch.learn.teach import Lesson, teach

    def prepare() -> Lesson:
        model, tokenizer = load_model(config.policy.model_copy(update={"adapter": None, "dtype": "float32", "load_in_4bit": False}))
        renderer, settings = ChatRenderer(tokenizer, config.searcher.tool_role), _sft(config).model_copy(update={"lora": False})
        return Lesson(model, tokenizer, settings, lambda: demonstrated(renderer, config, settings))

    return teach(config, out, RECORD, prepare, on_log, once=True)


def _sft(config: RunConfig) -> SftConfig:
    """The continued run's settings; its stream of worlds is not the one the checkpoint saw."""
    changes = {"steps": config.control.steps, "learning_rate": config.control.learning_rate, "seed": config.sft.seed + 100}
    return config.sft.model_copy(update=changes)
