"""Models of real shapes with random weights and real tokenizers, at most 40 MB on disk each.

What a shape has that tiny-searcher lacks: grouped key and value heads, a vocabulary of 49,152 or 151,936, heads that are wider together
than the residual stream, somebody else's chat template, weights in bfloat16. Widths are multiples of 64, as those of all published models:
bitsandbytes' products on the CPU need that.
"""

from pathlib import Path
from typing import Any

from tests.zoo.tokenizers import load_qwen, load_smollm2

NAMES = ("smollm2", "qwen2.5", "qwen3")
DEFAULT = "smollm2"
"""The shape of the one real model that everybody can fetch; the fastest, too: its vocabulary is a third of Qwen's."""
MAX_BYTES = 40_000_000


def make_model(name: str, folder: Path) -> Path:
    """Write one of `NAMES` into a folder; the same weights every time."""
    import torch

    torch.manual_seed(0)
    model, tokenizer = {"smollm2": _smollm2, "qwen2.5": _qwen2, "qwen3": _qwen3}[name]()
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _smollm2() -> tuple[Any, Any]:
    """SmolLM2-135M: Llama with 3 key and value heads, embeddings tied; 6 heads: 9 would need a width of 576 and so 57 MB."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = load_smollm2()
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
        **_ends(tokenizer),
    )
    return LlamaForCausalLM(config), tokenizer


def _qwen2() -> tuple[Any, Any]:
    """Qwen2.5-0.5B and 3B: two key and value heads, biases on queries, keys and values, more rows of embeddings than tokens."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = load_qwen("qwen2_5.jinja")
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        **_ends(tokenizer),
    )
    return Qwen2ForCausalLM(config), tokenizer


def _qwen3() -> tuple[Any, Any]:
    """Qwen3-4B-Instruct-2507: norms on queries and keys, heads that are wider together than the residual stream."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = load_qwen("qwen3_instruct_2507.jinja")
    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": "default", "rope_theta": 5_000_000.0},
        tie_word_embeddings=True,
        **_ends(tokenizer),
    )
    return Qwen3ForCausalLM(config), tokenizer


def _ends(tokenizer: Any) -> dict[str, Any]:
    return {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.bos_token_id}
