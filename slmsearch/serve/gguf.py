"""LoRA adapters of this project as GGUF, for llama.cpp beside a GGUF of their Qwen3 model.

Models themselves are converted by llama.cpp's own convert_hf_to_gguf.py, which knows every architecture and tokenizer.
"""

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slmsearch.artifacts.directories import publish, staging_directory
from slmsearch.errors import ConfigError
from slmsearch.keys import file_key

if TYPE_CHECKING:
    from gguf import GGUFWriter

ARCHITECTURE = "qwen3"
ADAPTER = "adapter.gguf"
_PEFT_PREFIX = "base_model.model."
_MOST_LAYERS = 256
_REMEDY = "convert it with llama.cpp's convert_lora_to_gguf.py and give the file"


def convert_adapter(source: Path, folder: Path) -> Path:
    """Convert a LoRA adapter of PEFT, or find it converted.

    Args:
        source: its directory.
        folder: parent of converted adapters, named by their content.

    Raises:
        ConfigError: it is none that can be converted here.
    """
    settings = json.loads((source / "adapter_config.json").read_text(encoding="utf-8"))
    weights = source / "adapter_model.safetensors"
    if not weights.is_file() or settings.get("use_dora") or settings.get("modules_to_save"):
        raise ConfigError(f"{source} is no plain LoRA adapter: {_REMEDY}")
    target = folder / f"{source.name}-{file_key(weights, source / 'adapter_config.json')}"
    if not _is_whole(target):
        from gguf import GGUFWriter

        with staging_directory(folder, source.name) as staging:
            writer = GGUFWriter(staging / ADAPTER, ARCHITECTURE)
            writer.add_type("adapter")
            writer.add_string("adapter.type", "lora")
            # llama.cpp scales by alpha / r.
            alpha = settings["lora_alpha"] * (settings["r"] ** 0.5 if settings.get("use_rslora") else 1.0)
            writer.add_float32("adapter.lora.alpha", float(alpha))
            _add_matrices(writer, weights)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            publish(staging, target, _is_whole)
    return target / ADAPTER


def _is_whole(directory: Path) -> bool:
    return (directory / ADAPTER).is_file()


def _add_matrices(writer: "GGUFWriter", weights: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(weights)
    except (SafetensorError, KeyError, TypeError, AttributeError) as error:  # numpy knows no bfloat16
        raise ConfigError(f"{weights} cannot be read as float32 or float16 ({error}): {_REMEDY}") from error
    for name, tensor in tensors.items():
        module, _, half = name.removesuffix(".weight").rpartition(".lora_")
        place = _name_map().get_name(module.removeprefix(_PEFT_PREFIX))
        if half not in ("A", "B") or place is None:
            raise ConfigError(f"the adapter holds {name}, which is no LoRA matrix of llama.cpp's Qwen3: {_REMEDY}")
        writer.add_tensor(f"{place}.weight.lora_{half.lower()}", tensor.astype("float32"))


@cache
def _name_map() -> Any:
    from gguf import MODEL_ARCH, get_tensor_name_map

    return get_tensor_name_map(MODEL_ARCH.QWEN3, _MOST_LAYERS)
