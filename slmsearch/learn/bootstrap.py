"""`slmsearch bootstrap`: make tiny-searcher from nothing - tokenizer, weights, model card - in minutes on two cores."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM, set_seed

from slmsearch.artifacts.directories import replaced_directory
from slmsearch.config import SearcherConfig, SftConfig
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.learn.demonstrations import make_demonstrations
from slmsearch.learn.encoding import Encoded
from slmsearch.learn.sft import demonstrated, train_sft
from slmsearch.learn.teach import writing_alone
from slmsearch.learn.tokenizer import build_tokenizer

TOKENIZER_EPISODES = 4000
"""Demonstrations whose text trains the tokenizer."""
INIT_STD = 0.05
"""Standard deviation of the initial weights; output projections are divided by sqrt(2 layers)."""


def make_model(tokenizer: PreTrainedTokenizerBase, **sizes: Any) -> Qwen3ForCausalLM:
    """Make an untrained Qwen3 model, seeded by torch's global generator.

    Args:
        tokenizer: gives vocabulary and special tokens.
        sizes: fields of `Qwen3Config` that differ from those of tiny-searcher, which make about one million parameters.
    """
    fields: dict[str, Any] = {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "intermediate_size": 384,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
        "initializer_range": INIT_STD,
    }
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **(fields | sizes),
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.div_((2 * config.num_hidden_layers) ** 0.5)
    return model


def bootstrap(
    config: SftConfig,
    out: Path,
    top_k: int = 3,
    searcher: SearcherConfig | None = None,
    on_log: Callable[[int, dict[str, float]], None] | None = None,
) -> dict[str, Any]:
    """Train tokenizer and model from scratch and write them as a Hugging Face model directory.

    Args:
        config: recipe, steps, seed.
        out: directory to write; replaced as a whole when everything is done.
        top_k: pages a search shows.
        searcher: prompt, and the longest demonstration; None takes the defaults.
        on_log: progress, as in `train_sft`.

    Returns:
        What `bootstrap.json` in the directory says: recipe, steps, seconds, parameters.
    """

    def stream(renderer: ChatRenderer) -> Iterator[Encoded]:
        return demonstrated(renderer, config, top_k, searcher or SearcherConfig())

    tokenizer = build_tokenizer(_texts(config, top_k))
    return make_start(config, out, tokenizer, stream, _card, on_log)


def make_start(
    config: SftConfig,
    out: Path,
    tokenizer: PreTrainedTokenizerBase,
    stream: Callable[[ChatRenderer], Iterator[Encoded]],
    card: Callable[[SftConfig, dict[str, Any]], str],
    on_log: Callable[[int, dict[str, float]], None] | None = None,
    even: bool = False,
) -> dict[str, Any]:
    """Train a model from scratch on any stream of demonstrations, and write it with its tokenizer.

    Args:
        config: steps, seed, batch size.
        out: directory to write; replaced as a whole when everything is done.
        tokenizer: trained already.
        stream: begins an endless stream of demonstrations, encoded by the model's chat renderer.
        card: writes the model card from what `bootstrap.json` will say.
        on_log: progress, as in `train_sft`.
        even: weigh every token alike, as in `train_sft`.
    """
    started = time.perf_counter()
    set_seed(config.seed)
    model = make_model(tokenizer)
    renderer = ChatRenderer(tokenizer)
    with writing_alone(out), replaced_directory(out, sealed=True) as temporary:
        train_sft(model, tokenizer, config, temporary / "scratch", lambda: stream(renderer), on_log, even)
        shutil.rmtree(temporary / "scratch", ignore_errors=True)
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        facts = {
            "config": config.key_parts(exclude={"lora", "batch_size", "own_questions", "own_tries", "own_kept"}),
            "seconds": round(time.perf_counter() - started, 1),
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "threads": torch.get_num_threads(),
        }
        (temporary / "bootstrap.json").write_text(json.dumps(facts, indent=2) + "\n")
        (temporary / "README.md").write_text(card(config, facts))
    return facts


def _texts(config: SftConfig, top_k: int) -> Iterator[str]:
    for demonstration in islice(make_demonstrations(config, top_k, config.seed + 500), TOKENIZER_EPISODES):
        yield "\n".join([demonstration.question, *(part for turn in demonstration.turns for part in turn)])


_CARD = """---
library_name: transformers
tags: [slmsearch, search-agent]
---
# tiny-searcher ({recipe} demonstrations)

A Qwen3-architecture model of {parameters:,} parameters that searches a generated encyclopedia with three tools.
It was trained from scratch by supervised learning on scripted episodes in fresh random worlds: {steps} steps of about
{tokens} tokens, {minutes:.1f} minutes on {threads} CPU threads. No pretrained weights, no third-party text.

{lacks}

Made by `slmsearch bootstrap --sft.recipe {recipe} --sft.steps {steps}`. It knows only the language of those worlds and
is of no use on real text.
"""

_LACKS = {
    "noisy": """The reader that wrote the demonstrations was noisy: on four of five questions that need a second page it answered
with what the first page gave, and it admitted not knowing two times in five. Reinforcement learning is meant to cure that.""",
    "expert": """The reader that wrote the demonstrations followed every question to its end. This model is the measure for what
supervised training alone reaches with perfect demonstrations.""",
}


def _card(config: SftConfig, facts: dict[str, Any]) -> str:
    return _CARD.format(
        recipe=config.recipe,
        parameters=facts["parameters"],
        steps=config.steps,
        tokens=config.tokens_per_batch,
        minutes=facts["seconds"] / 60,
        threads=facts["threads"],
        lacks=_LACKS[config.recipe],
    )
