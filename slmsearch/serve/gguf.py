"""Weights of this project as GGUF, so that llama.cpp can serve what was trained here.

For models of Qwen3's architecture in one file of float32 or float16, with a byte-level BPE tokenizer: tiny-searcher and what is trained
from it, and LoRA adapters of any Qwen3. Everything else is the business of llama.cpp's own converters.

llama.cpp splits text before it is encoded by a rule it knows by name, and has none that cuts numbers into pairs of digits as
tiny-searcher's tokenizer does. The nearest is written into the file; the tokenizer itself is laid beside it, for a server that
can take it (`llamacpp.py`). Without it, numbers of more than two digits would be other tokens than in training.
"""

import json
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slmsearch.errors import ConfigError
from slmsearch.keys import file_key
from slmsearch.staging import publish, staging_directory

if TYPE_CHECKING:
    from gguf import GGUFWriter

ARCHITECTURE = "qwen3"
MODEL, ADAPTER, TOKENIZER = "model.gguf", "adapter.gguf", "tokenizer"
NEAREST_PRE_TOKENIZER = "superbpe"
"""llama.cpp's name of the rule that splits at numbers alone, in threes: of those tried it gave tiny-searcher's tokens most often."""
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
"""Kinds of tokens in a GGUF: of the merges; special; found whole in any text; none."""
_SYSTEM_IGNORED = "{% for m in messages %}{% if m['role'] == 'system' %}{% set ignored = m['content'] | length %}{% endif %}{% endfor %}"
"""Put before a template that passes over system messages: `llama-server` takes one that never looks at them for one that needs them as
part of the first question."""
_PEFT_PREFIX = "base_model.model."
_MOST_LAYERS = 256


def convert_model(source: Path, folder: Path) -> Path:
    """Convert a model, or find it converted; returns the GGUF, with its tokenizer in a directory beside it.

    Args:
        source: directory of the model, as `save_pretrained` writes it.
        folder: parent of converted models, named by their content.

    Raises:
        ConfigError: it is none that can be converted here.
    """
    config = _read_config(source)
    weights = source / "model.safetensors"
    if not weights.is_file():
        raise ConfigError(
            f"{source} holds no model.safetensors: convert it with llama.cpp's convert_hf_to_gguf.py and give the file with --model"
        )
    key = file_key(weights, source / "config.json", source / "tokenizer.json")
    target = folder / f"{source.name}-{key}"
    if not _has(target, MODEL):
        with staging_directory(folder, source.name) as staging:
            writer = _writer(staging / MODEL)
            _add_shape(writer, config, source.name)
            _add_tokenizer(writer, source, config)
            _add_tensors(writer, _load(weights), config)
            _write(writer)
            (staging / TOKENIZER).mkdir()
            for name in _TOKENIZER_FILES:
                if (source / name).is_file():
                    shutil.copy(source / name, staging / TOKENIZER / name)
            publish(staging, target, lambda path: _has(path, MODEL))
    return target / MODEL


def convert_adapter(source: Path, folder: Path) -> Path:
    """Convert a LoRA adapter of PEFT, or find it converted.

    Args:
        source: its directory.
        folder: parent of converted adapters.

    Raises:
        ConfigError: it is none that can be converted here.
    """
    settings = json.loads((source / "adapter_config.json").read_text(encoding="utf-8"))
    weights = source / "adapter_model.safetensors"
    if not weights.is_file() or settings.get("use_dora") or settings.get("modules_to_save"):
        raise ConfigError(f"{source} is no plain LoRA adapter: convert it with llama.cpp's convert_lora_to_gguf.py and give the file")
    target = folder / f"{source.name}-{file_key(weights, source / 'adapter_config.json')}"
    if not _has(target, ADAPTER):
        with staging_directory(folder, source.name) as staging:
            writer = _writer(staging / ADAPTER)
            writer.add_type("adapter")
            writer.add_string("adapter.type", "lora")
            # llama.cpp scales by alpha / r.
            alpha = settings["lora_alpha"] * (settings["r"] ** 0.5 if settings.get("use_rslora") else 1.0)
            writer.add_float32("adapter.lora.alpha", float(alpha))
            _add_lora(writer, _load(weights))
            _write(writer)
            publish(staging, target, lambda path: _has(path, ADAPTER))
    return target / ADAPTER


def _has(directory: Path, name: str) -> bool:
    return (directory / name).is_file()


def _read_config(source: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((source / "config.json").read_text(encoding="utf-8"))
    scaled = config.get("rope_parameters", {}).get("rope_type", "default") != "default"
    if config.get("model_type") != ARCHITECTURE or scaled or not (source / "tokenizer.json").is_file():
        raise ConfigError(
            f"{source} is no plain Qwen3 model: convert it with llama.cpp's convert_hf_to_gguf.py and give the file with --model, or take"
            " --engine transformers"
        )
    return config


def _writer(path: Path) -> "GGUFWriter":
    from gguf import GGUFWriter

    return GGUFWriter(path, ARCHITECTURE)


def _load(weights: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors: dict[str, Any] = load_file(weights)
    except (SafetensorError, KeyError, TypeError, AttributeError) as error:  # numpy knows no bfloat16
        raise ConfigError(f"{weights} cannot be read as float32 or float16 ({error}): convert it with llama.cpp's own scripts") from error
    return tensors


def _add_shape(writer: "GGUFWriter", config: Mapping[str, Any], name: str) -> None:
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


def _add_tokenizer(writer: "GGUFWriter", source: Path, config: Mapping[str, Any]) -> None:
    spec = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    if spec["model"].get("type") != "BPE":
        raise ConfigError(f"the tokenizer of {source} is no byte-level BPE: convert the model with llama.cpp's convert_hf_to_gguf.py")
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


def _add_tensors(writer: "GGUFWriter", tensors: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    for name, tensor in tensors.items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        # One-dimensional tensors (norms) are float32 in every GGUF.
        writer.add_tensor(_place(name, ".weight"), tensor.astype("float32") if tensor.ndim == 1 else tensor)


def _add_lora(writer: "GGUFWriter", tensors: Mapping[str, Any]) -> None:
    for name, tensor in tensors.items():
        for half in ("A", "B"):
            suffix = f".lora_{half}.weight"
            if name.endswith(suffix):
                writer.add_tensor(_place(name, suffix) + f".lora_{half.lower()}", tensor.astype("float32"))
                break
        else:
            raise ConfigError(f"the adapter holds {name}, which is no LoRA matrix: convert it with llama.cpp's convert_lora_to_gguf.py")


def _place(name: str, suffix: str) -> str:
    """Return the name llama.cpp gives a weight.

    Args:
        name: in transformers or PEFT.
        suffix: end of that name.
    """
    found = _name_map().get_name(name.removeprefix(_PEFT_PREFIX).removesuffix(suffix))
    if found is None:
        raise ConfigError(f"llama.cpp's Qwen3 has no weight {name!r}: convert with llama.cpp's own scripts")
    return f"{found}.weight"


@cache
def _name_map() -> Any:
    from gguf import MODEL_ARCH, get_tensor_name_map

    return get_tensor_name_map(MODEL_ARCH.QWEN3, _MOST_LAYERS)


def _write(writer: "GGUFWriter") -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
