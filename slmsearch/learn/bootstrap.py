"""`slmsearch bootstrap`: make an environment's tiny model from nothing - tokenizer, weights, model card - in minutes on two cores."""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM, set_seed

from slmsearch.config import RunConfig, SftConfig
from slmsearch.environments.environment import TinyModel
from slmsearch.environments.registry import environment_of
from slmsearch.errors import ConfigError
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.learn.sft import Facts, Lesson, OnLog, demonstrated
from slmsearch.learn.teach import teach
from slmsearch.learn.tokenizer import build_tokenizer

RECORD = "bootstrap.json"
TOKENIZER_EPISODES = 4000
"""Demonstrations whose text trains the tokenizer."""
INIT_STD = 0.05
"""Standard deviation of the initial weights; output projections are divided by sqrt(2 layers)."""


def make_model(tokenizer: PreTrainedTokenizerBase, **sizes: Any) -> Qwen3ForCausalLM:
    """Make an untrained Qwen3 model for a tokenizer, seeded by torch's global generator.

    `sizes` are fields of `Qwen3Config` that differ from those of tiny-searcher, which make about one million parameters.
    """
    sizes = {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "intermediate_size": 384,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
        "initializer_range": INIT_STD,
        **sizes,
    }
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **sizes,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.div_((2 * config.num_hidden_layers) ** 0.5)
    return model


def bootstrap(config: RunConfig, out: Path, on_log: OnLog | None = None) -> Facts:
    """Train tokenizer and tiny model of the configured environment from scratch and write them as a Hugging Face model directory.

    The directory is replaced as a whole when everything is done; what its `bootstrap.json` says is returned.

    Raises:
        ConfigError: nobody demonstrates how the environment is played.
    """
    environment, settings = environment_of(config), bootstrap_settings(config)
    tiny = environment.tiny
    if tiny is None:
        raise ConfigError(f"there is no tiny {environment.name}: start from another model (policy.model)")

    def prepare() -> Lesson:
        of_texts = settings.model_copy(update={"seed": settings.seed + 500, "recipe": tiny.text_recipe or settings.recipe})
        shown = islice(environment.demonstrations(config, of_texts), TOKENIZER_EPISODES)
        texts = ("\n".join([one.question, *(part for turn in one.turns for part in turn)]) for one in shown)
        tokenizer = build_tokenizer(texts, tiny.pieces, tiny.vocabulary)
        set_seed(settings.seed)
        model, renderer = make_model(tokenizer), ChatRenderer(tokenizer)
        facts: Facts = {
            "config": settings.key_parts(exclude={"lora", "batch_size", "own_questions", "own_tries", "own_kept"}),
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "threads": torch.get_num_threads(),
        }
        card = partial(_write_card, environment.name, tiny, settings)
        return Lesson(model, tokenizer, settings, lambda: demonstrated(renderer, config, settings), facts, tiny.even, card)

    return teach(config, out, RECORD, prepare, on_log)


def bootstrap_settings(config: RunConfig) -> SftConfig:
    """Put the environment's own numbers in the place of those of `sft` that were left at their defaults."""
    tiny, defaults = environment_of(config).tiny, SftConfig()
    own = {name: value for name, value in tiny.sft.items() if getattr(config.sft, name) == getattr(defaults, name)} if tiny else {}
    return config.sft.model_copy(update={**own, "lora": False})


def _write_card(name: str, tiny: TinyModel, settings: SftConfig, facts: Facts) -> str:
    return f"""---
library_name: transformers
tags: [slmsearch, {name}]
---
# tiny-{name} ({settings.recipe} demonstrations)

A Qwen3-architecture model of {facts["parameters"]:,} parameters that {tiny.does}.
It was trained from scratch by supervised learning on {tiny.learnt_from}: {facts["steps"]} steps of about {settings.tokens_per_batch} \
tokens, {facts["seconds"] / 60:.1f} minutes
on {facts["threads"]} CPU threads. No pretrained weights, no third-party text.

{tiny.lacks[settings.recipe]}

Made by `slmsearch bootstrap {name} --sft.recipe {settings.recipe} --sft.steps {facts["steps"]}`. It knows only that language and is of no \
use on real text.
"""
