"""The same model by its names in different places.

A judge is called by its name in Ollama's library whatever serves it, so that `judge.model` and stored verdicts stay what they are
when the engine changes.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from slmsearch.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Names:
    """One model."""

    hub: str
    """Weights for vLLM and transformers."""
    gguf: str
    """Weights for llama.cpp: a repository and a quantisation."""


KNOWN = {
    "qwen2.5:7b": Names("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct-GGUF:q4_k_m"),
    "qwen2.5:3b": Names("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-3B-Instruct-GGUF:q4_k_m"),
    "phi3:mini": Names("microsoft/Phi-3-mini-4k-instruct", "microsoft/Phi-3-mini-4k-instruct-gguf:q4"),
}
"""Judges the documentation names; the quantisations are those Ollama's library has."""
_LIBRARY_NAME = re.compile(r"[\w.-]+:[\w.-]+")


def is_library_name(model: str) -> bool:
    """Say whether a model is called as in Ollama's library, and is no file here."""
    return _LIBRARY_NAME.fullmatch(model) is not None and not model.endswith(".gguf") and not Path(model).exists()


def hub_name(model: str) -> str:
    """Return where vLLM and transformers find a model: a path or Hub id.

    Raises:
        ConfigError: it is a name of Ollama's library that is not known here.
    """
    if model in KNOWN:
        return KNOWN[model].hub
    if is_library_name(model):
        raise ConfigError(f"{model!r} is a name of Ollama's library: give a path or Hub id with --model, such as {KNOWN['qwen2.5:7b'].hub}")
    return model


def require_directory(model: str) -> None:
    """Refuse what is meant as a path to a model (absolute, or with a dot first) and is none.

    Raises:
        ConfigError: nothing, or no model, lies there.
    """
    path = Path(model)
    if (path.is_absolute() or model.startswith(".") or path.is_dir()) and not (path / "config.json").is_file():
        raise ConfigError(
            f"no model at {model!r} (config.json is missing): correct --model, or make tiny-searcher with `slmsearch bootstrap`"
        )
