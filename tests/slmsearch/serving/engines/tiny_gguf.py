"""tiny-searcher as GGUF, made for tests of llama.cpp: float32, with the rule for splitting text that is nearest to its own."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gguf import MODEL_ARCH, GGUFWriter, get_tensor_name_map
from safetensors.numpy import load_file

NEAREST_PRE_TOKENIZER = "superbpe"
"""llama.cpp's name of the rule that splits at numbers alone, in threes: of those tried it gave tiny-searcher's tokens most often."""
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_SYSTEM_IGNORED = "{% for m in messages %}{% if m['role'] == 'system' %}{% set ignored = m['content'] | length %}{% endif %}{% endfor %}"
"""Put before a template that passes over system messages: `llama-server` takes one that never looks at them for one that needs them as
part of the first question."""


def write_tiny_gguf(source: Path, path: Path) -> Path:
    """Convert the model; returns the GGUF."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    writer = GGUFWriter(path, "qwen3")
    _add_shape(writer, config, source.name)
    _add_tokenizer(writer, source, config)
    names = get_tensor_name_map(MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for name, tensor in load_file(source / "model.safetensors").items():
        if name != "lm_head.weight" or not config.get("tie_word_embeddings"):
            writer.add_tensor(f"{names.get_name(name.removesuffix('.weight'))}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_shape(writer: GGUFWriter, config: Mapping[str, Any], name: str) -> None:
    rope = config.get("rope_parameters") or config
    writer.add_type("model")
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])


def _add_tokenizer(writer: GGUFWriter, source: Path, config: Mapping[str, Any]) -> None:
    spec = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [f"[unused{i}]" for i in range(config["vocab_size"])]
    kinds = [_UNUSED] * len(tokens)
    for text, index in spec["model"]["vocab"].items():
        tokens[index], kinds[index] = text, _NORMAL
    for added in spec["added_tokens"]:
        tokens[added["id"]], kinds[added["id"]] = added["content"], _CONTROL if added["special"] else _USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(NEAREST_PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in spec["model"]["merges"]])
    writer.add_add_bos_token(False)
    end = config["eos_token_id"]
    writer.add_eos_token_id(end[0] if isinstance(end, list) else end)
    if config.get("pad_token_id") is not None:
        writer.add_pad_token_id(config["pad_token_id"])
    template = source / "chat_template.jinja"
    if template.is_file():
        text = template.read_text(encoding="utf-8")
        writer.add_chat_template(text if "system" in text else _SYSTEM_IGNORED + text)
