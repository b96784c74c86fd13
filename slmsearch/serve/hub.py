"""Models by name, and their weights: a path, or a repository on the Hub, fetched on first use.

A judge is called by its name in Ollama's library whatever serves it, so that `judge.model` and stored verdicts stay what they are
when the engine changes.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slmsearch.errors import ConfigError, ServiceError
from slmsearch.serve.engine import Say


@dataclass(frozen=True, slots=True)
class Names:
    """One model by its names elsewhere."""

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
DEFAULT_QUANTISATION = "q4_k_m"
"""Small, without much loss; what `llama-server` itself takes where none is named."""
_OTHER_WEIGHTS = ("*.gguf", "*.pth", "*.h5", "*.msgpack", "*.onnx", "original/*", "onnx/*")
"""The same weights once more, for other programs."""
_LIBRARY_NAME = re.compile(r"[\w.-]+:[\w.-]+")
_REPOSITORY = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[\w./-]+\.gguf)|:(?P<quant>[\w.-]+))?")


def hub_name(model: str) -> str:
    """Return where vLLM and transformers find a model: a path or Hub id.

    Raises:
        ConfigError: it is a name of Ollama's library that is not known here.
    """
    return _rename(model, {name: names.hub for name, names in KNOWN.items()}, "a path or Hub id with --model")


def gguf_name(model: str) -> str:
    """Return where llama.cpp finds a model, as `find_gguf` takes it.

    Raises:
        ConfigError: it is a name of Ollama's library that is not known here.
    """
    return _rename(model, {name: names.gguf for name, names in KNOWN.items()}, "--model FILE.gguf or a repository")


def _rename(model: str, known: dict[str, str], instead: str) -> str:
    is_library_name = _LIBRARY_NAME.fullmatch(model) and not model.endswith(".gguf") and not Path(model).exists()
    if model not in known and is_library_name:
        raise ConfigError(f"{model!r} is a name of Ollama's library: give {instead}, such as {known['qwen2.5:7b']}")
    return known.get(model, model)


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


def find_gguf(model: str, say: Say) -> Path:
    """Return the local path of a GGUF; of one in several parts, that of the first.

    Args:
        model: a path, `owner/repository`, `owner/repository:QUANTISATION` or `owner/repository/file.gguf`.
        say: is told of a download.

    Raises:
        ConfigError: it is none of these.
        ServiceError: it can neither be found nor fetched.
    """
    from huggingface_hub.utils import filter_repo_objects

    path = Path(os.path.expanduser(model))  # leaves a `~name` that is nobody as it is
    if path.is_file():
        return path
    match = _REPOSITORY.fullmatch(model)
    if match is None or path.is_absolute() or not _is_repository(match["repo"]):
        example = "Qwen/Qwen2.5-3B-Instruct-GGUF:q4_k_m"
        raise ConfigError(f"no GGUF at {model!r}: give --model FILE.gguf, or a repository of the Hub such as {example}")
    repo, quant = match["repo"], match["quant"] or DEFAULT_QUANTISATION
    wanted = [match["file"]] if match["file"] else [f"*[-./]{spelling}[-./]*gguf" for spelling in (quant.lower(), quant.upper())]
    folder = _snapshot(repo, say, "--model FILE.gguf", allow_patterns=wanted)
    names = (file.relative_to(folder).as_posix() for file in folder.rglob("*.gguf"))
    found = sorted(filter_repo_objects(names, allow_patterns=wanted))
    if not found:
        what = f"file {match['file']}" if match["file"] else f"GGUF of quantisation {quant!r}"
        raise ConfigError(f"{repo} has no {what}: see its files on the Hub, and write {repo}:QUANTISATION or {repo}/FILE.gguf")
    return folder / found[0]


def fetch_model(model: str, say: Say) -> None:
    """Fetch the weights of a Hub id into its cache, so that a server that is to answer in time finds them there; a path is left alone.

    Raises:
        ServiceError: they can neither be found nor fetched.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if Path(model).exists():
        return
    if not _is_repository(model):
        raise ConfigError(f"no model at {model!r}, and it is no Hub id: correct --model")
    try:
        snapshot_download(model, local_files_only=True)
    except LocalEntryNotFoundError:
        _snapshot(model, say, "a path with --model", ignore_patterns=list(_OTHER_WEIGHTS))


def _is_repository(repo: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError:
        return False
    return True


def _snapshot(repo: str, say: Say, instead: str, **patterns: Any) -> Path:
    """Fetch files of a repository; where the Hub cannot be reached, those in the cache must do."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError, RepositoryNotFoundError

    say(f"fetching {repo} from the Hub, as far as it is not in its cache")
    try:
        return Path(snapshot_download(repo, **patterns))
    except RepositoryNotFoundError as error:
        raise ServiceError(
            f"no repository {repo!r} on the Hub, or it is private: correct --model, or log in with `hf auth login`"
        ) from error
    except (HTTPError, OSError) as error:
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        message = f"{repo} is not in the Hub's cache and cannot be fetched ({cause}): connect once, or give {instead}"
        raise ServiceError(message) from error
