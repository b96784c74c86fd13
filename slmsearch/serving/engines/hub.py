"""Names of models, and weights of the Hub for vLLM and transformers.

A judge has its name in Ollama's library with every engine but transformers, so that `judge.model` and stored verdicts stay valid when the
engine changes.
"""

import re
from pathlib import Path
from typing import NamedTuple

from slmsearch.errors import ConfigError, ModelError, ServiceError
from slmsearch.foreign import cause_of
from slmsearch.serving.engines.engine import Say


class HubNames(NamedTuple):
    """One model by its names elsewhere."""

    hub: str
    """Weights for vLLM and transformers."""
    gguf: str
    """Weights for llama.cpp: a repository and a quantisation."""


KNOWN = {
    "qwen2.5:7b": HubNames("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct-GGUF:q4_k_m"),
    "qwen2.5:3b": HubNames("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-3B-Instruct-GGUF:q4_k_m"),
    "phi3:mini": HubNames("microsoft/Phi-3-mini-4k-instruct", "microsoft/Phi-3-mini-4k-instruct-gguf:q4"),
}
"""Judges that the documentation names; the quantisations are those of Ollama's library."""
_OTHER_WEIGHTS = ["*.gguf", "*.pth", "*.h5", "*.msgpack", "*.onnx", "original/*", "onnx/*"]
"""File patterns of the same weights for other programs."""


def hub_name(model: str) -> str:
    """Return the name of a model for vLLM and transformers: a path or Hub id.

    Raises:
        ConfigError: it is an unknown name of Ollama's library.
    """
    if model in KNOWN:
        return KNOWN[model].hub
    if re.fullmatch(r"[\w.-]+:[\w.-]+", model) and not Path(model).exists():
        raise ConfigError(f"{model!r} is a name of Ollama's library: give a path or Hub id with --model, such as {KNOWN['qwen2.5:7b'].hub}")
    return model


def check_model(model: str) -> None:
    """Refuse a name that is neither a directory with a model nor the id of one on the Hub.

    Raises:
        ModelError: it is a path (absolute, or with a dot first) without a model, or no valid id.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    path = Path(model)
    if path.is_absolute() or model.startswith(".") or path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"no model at {model!r} (config.json is missing): correct --model; `slmsearch models list` shows what is here")
        return
    try:
        validate_repo_id(model)
    except HFValidationError as error:
        raise ModelError(f"no model at {model!r}, and it is no Hub id: correct --model") from error


def fetch_model(model: str, say: Say) -> None:
    """Fetch the weights of a Hub id into its cache, so that the server loads them within its time limit; leave a path alone.

    Raises:
        ServiceError: they can neither be found nor fetched.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    if Path(model).exists():
        return
    try:
        snapshot_download(model, local_files_only=True)
        return
    except LocalEntryNotFoundError:
        say(f"fetching {model} from the Hub")
    try:
        snapshot_download(model, ignore_patterns=_OTHER_WEIGHTS)
    except RepositoryNotFoundError as error:
        raise ServiceError(
            f"no repository {model!r} on the Hub, or it is private: correct --model, or log in with `hf auth login`"
        ) from error
    except (HTTPError, OSError) as error:
        raise ServiceError(
            f"{model} is not in the Hub's cache and cannot be fetched ({cause_of(error)}): connect once, or give a path with --model"
        ) from error
