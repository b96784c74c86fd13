"""Models that the presets for a GPU name, as random weights in their published shapes.

What a run takes can so be planned and measured without them.
"""

import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig

PUBLISHED: dict[str, dict[str, Any]] = tomllib.loads(files("slmsearch.bench").joinpath("published.toml").read_text(encoding="utf-8"))
"""Hub id -> what its `config.json` says of its shape."""
_SMALL = {"intermediate_size": 128, "vocab_size": 1536, "max_position_embeddings": 4096}
_SMALL_HEAD = 16


def shape_of(model: str, layers: int = 0, small: bool = False) -> PretrainedConfig:
    """Return the settings of a model of a published shape.

    Args:
        model: a key of `PUBLISHED`.
        layers: take this many; 0 takes all.
        small: narrow, with few heads that share key heads as the real ones do, and a small vocabulary.
    """
    shape = dict(PUBLISHED[model])
    if small:
        shared = min(4, shape["num_attention_heads"] // shape["num_key_value_heads"])
        shape |= {**_SMALL, "num_attention_heads": 2 * shared, "num_key_value_heads": 2, "hidden_size": 2 * shared * _SMALL_HEAD}
        shape |= {"head_dim": _SMALL_HEAD} if "head_dim" in shape else {}
    return AutoConfig.for_model(**{**shape, "num_hidden_layers": layers or shape["num_hidden_layers"]})


def write_model(shape: PretrainedConfig, tokenizer_dir: Path, directory: Path, dtype: str, device: str) -> Path:
    """Write random weights of a shape, with a tokenizer that has a token for every id.

    Args:
        shape: as `shape_of` gives it.
        tokenizer_dir: a fast tokenizer with a chat template; its vocabulary is filled up with meaningless words.
        directory: of the model.
        dtype: of the weights.
        device: where they are drawn.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(tokenizer_dir)
    shape.update({"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None})
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = AutoModelForCausalLM.from_config(shape, dtype=getattr(torch, dtype))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    file = directory / "tokenizer.json"
    words = json.loads(file.read_text(encoding="utf-8"))
    words["model"]["vocab"] |= {f"qz{i}": i for i in range(len(tokenizer), shape.vocab_size)}
    file.write_text(json.dumps(words), encoding="utf-8")
    return directory
