"""`slmsearch bootstrap`: make an environment's tiny model from scratch - tokenizer, weights, model card - in minutes on two cores."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed

from slmsearch.config import RunConfig, SftConfig
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.demonstrations import TINY_SEARCHER
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.teaching import TinyModel
from slmsearch.errors import ConfigError
from slmsearch.training.sft import Lesson, OnLog, OnPhase, TrainingFacts, tell_nobody
from slmsearch.training.streams import demonstrated
from slmsearch.training.teach import teach

RECORD = "bootstrap.json"
TOKENIZER_EPISODES = 4000
"""Demonstrations whose text trains the tokenizer."""
INIT_STD = 0.05
"""Standard deviation of the initial weights; output projections are divided by sqrt(2 layers)."""

PAD, END, QUESTION, RESULT, TURN = "<|pad|>", "<|end|>", "<|question|>", "<|result|>", "<|turn|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}" + QUESTION + "{{ message['content'] }}"
    "{% elif message['role'] == 'tool' %}" + RESULT + "{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}" + TURN + "{{ message['content'] }}" + END + "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + TURN + "{% endif %}"
)

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": TURN,
    "fields": {"content": {"close_pattern": END.replace("|", r"\|"), "content": "text"}},
}
"""Response template of transformers: a server takes the whole turn as its content, tool calls included. Without a template,
`transformers serve` would use Qwen3's own, whose marks these turns lack."""

_PIECES = r"\p{Lu}[\p{Ll}\p{M}]*| ?\p{Ll}+|\d{2}|\d|#+ |[.,:;] | ?[^\s\p{L}\d]|\n+|\s| ?\p{L}+"


def build_tokenizer(texts: Iterable[str], whole: Sequence[str] = TINY_SEARCHER.pieces, vocabulary: int = TINY_SEARCHER.vocabulary) -> Any:
    """Train a byte-level BPE on text that the model will read and write; return a `PreTrainedTokenizerFast` with the chat template above.

    The text is pre-split so that copying is easy for a small model: a capitalised word never carries its leading space (a name is the
    same tokens at the start of a line, in a query and in an answer), numbers fall into groups of two digits, punctuation takes the space
    after it, and the strings in `whole` are single tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(token, special=True, normalized=False) for token in (PAD, END, QUESTION, RESULT, TURN)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(whole),
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in whole])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        response_template=RESPONSE_TEMPLATE,
        model_max_length=1024,
    )


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


def bootstrap(config: RunConfig, out: Path, on_log: OnLog | None = None, on_phase: OnPhase = tell_nobody) -> TrainingFacts:
    """Train tokenizer and tiny model of the configured environment from scratch and write them as a Hugging Face model directory.

    The directory is replaced as a whole at the end; the result is the content of its `bootstrap.json`.

    Raises:
        ConfigError: the environment has no demonstrations.
    """
    environment = environment_of(config)
    tiny = environment.teaching.tiny
    if tiny is None:
        raise ConfigError(f"there is no tiny {environment.name}: start from another model (policy.model)")
    settings = bootstrap_settings(config.sft, tiny)

    def prepare() -> Lesson:
        of_texts = settings.model_copy(update={"seed": settings.seed + 500, "recipe": tiny.text_recipe or settings.recipe})
        shown = islice(environment.teaching(config).demonstrations(of_texts), TOKENIZER_EPISODES)
        texts = ("\n".join([one.question, *(part for turn in one.turns for part in turn)]) for one in shown)
        tokenizer = build_tokenizer(texts, tiny.pieces, tiny.vocabulary)
        set_seed(settings.seed)
        model, renderer = make_model(tokenizer), ChatRenderer(tokenizer)
        facts: TrainingFacts = {
            "config": settings.key_parts(exclude={"lora", "batch_size", "own_questions", "own_tries", "own_kept"}),
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "threads": torch.get_num_threads(),
        }
        card, on_cpu = partial(_write_card, environment.name, tiny, settings), config.policy.device == "cpu"
        return Lesson(
            model, tokenizer, settings, lambda: demonstrated(renderer, environment, settings), facts, tiny.even, card, use_cpu=on_cpu
        )

    return teach(config.policy, config.train, out, RECORD, prepare, on_log, on_phase)


def bootstrap_settings(sft: SftConfig, tiny: TinyModel) -> SftConfig:
    """Replace settings that were left at their defaults with the tiny model's own."""
    defaults = SftConfig()
    own = {name: value for name, value in tiny.sft.items() if getattr(sft, name) == getattr(defaults, name)}
    return sft.model_copy(update={**own, "lora": False})


def _write_card(name: str, tiny: TinyModel, settings: SftConfig, facts: TrainingFacts) -> str:
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
