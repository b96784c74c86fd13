"""Hashes of models by their content: part of every evaluation and training key.

No model is loaded; files are only read.
"""

import functools
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from slmsearch.artifacts.directories import SEAL
from slmsearch.artifacts.files import known_hash, read_json
from slmsearch.config import PolicyConfig
from slmsearch.keys import content_key
from slmsearch.models.known import KNOWN, is_gguf, known_name, name_of, split_commit

_SUFFIXES = {".safetensors", ".bin", ".json", ".jinja", ".txt", ".model"}
"""Suffixes of weights, configuration, tokenizer and chat template; model cards and notes do not count."""
_PACKED = re.compile(r"(-unsloth)?-bnb-4bit$")
"""Suffix of names of the same model with packed weights, which trainers put into the settings of an adapter."""
_NOTES = {"bootstrap.json", "control.json", "manifest.json", "sft.json", "trainer_state.json", SEAL}
"""Files about how and how fast a model was made: the same model made again must have the same hash."""


def weights_file(directory: Path) -> Path:
    """Return the file with the weights of an adapter, or else of a model saved as one file."""
    adapter = directory / "adapter_model.safetensors"
    return adapter if adapter.is_file() else directory / "model.safetensors"


def trained_policy(policy: PolicyConfig, directory: str) -> PolicyConfig:
    """Return the policy of a trained directory: an adapter on its model, or a model in its place.

    An adapter whose run began with a supervised start of its own is put on that start, if it still exists. One whose settings give the name
    of a known model, or its id on the Hub, is put on that model.
    """
    here = {"base_url": None, "api_key": None}
    base = read_base(directory)
    if base is None:
        return policy.model_copy(update={"model": directory, "adapter": None, **here})
    known = base if base in (policy.model, split_commit(policy.model)[0]) else known_name(base)
    own = {"model": known, **here} if known in KNOWN or read_start(base) else {}
    return policy.model_copy(update={"adapter": directory, **own})


def read_base(directory: str | Path) -> str | None:
    """Return the model that the settings of an adapter name, empty if they name none; None for a directory without an adapter."""
    settings = Path(directory) / "adapter_config.json"
    return str(read_json(settings).get("base_model_name_or_path") or "") if settings.is_file() else None


def is_base(named: str, model: str) -> bool:
    """Return whether a model is the one that an adapter names: the same content, or the same name under any owner or folder."""
    if Path(named).is_dir() and Path(model).is_dir() and Path(named).resolve() != Path(model).resolve():
        return model_hash(named) == model_hash(model)
    first, second = (_PACKED.sub("", Path(known_name(split_commit(name_of(one))[0])).name.casefold()) for one in (named, model))
    return first == second


def read_start(model: str) -> str | None:
    """Return the model that a supervised start began with; None for a model that is no such start."""
    return read_json(Path(model) / "sft.json").get("start") if model else None


def model_hash(model: str) -> str:
    """Hash a model or adapter by its content: a directory file by file, a GGUF with the tokenizer beside it, a Hub id by id and commit.

    Without a commit, the commit is that of the local cache, or the newest, whose configuration is then fetched: the hash must be the same
    before and after the first download.
    """
    path = Path(model)
    if is_gguf(model) and path.is_file():
        beside = [path.with_name("tokenizer.json"), path.with_name("chat_template.jinja")]
        return content_key(files={file.name: known_hash(file) for file in (path, *beside) if file.is_file()})
    if not path.is_dir():
        name, commit = split_commit(model)
        return content_key(model=name, revision=commit or _find_commit(name))
    files = sorted(file for file in path.iterdir() if _counts(file))
    return content_key(files={file.name: known_hash(file) for file in files})


def hash_recorded(files: Mapping[str, str]) -> str:
    """Return the result of `model_hash` for a directory whose files had these sha256, by name."""
    return content_key(files={name: digest for name, digest in files.items() if "/" not in name and _counts(Path(name))})


def _counts(file: Path) -> bool:
    return file.suffix in _SUFFIXES and file.name not in _NOTES


def _find_commit(model: str) -> str | None:
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    try:
        names = ("config.json", "adapter_config.json")
        cached = next((path for name in names if isinstance(path := huggingface_hub.try_to_load_from_cache(model, name), str)), None)
    except HFValidationError:  # a missing path, not a Hub id: loading it will raise the error
        return None
    path = cached or _fetch_settings(model)
    return Path(path).parent.name if path else None


@functools.lru_cache(maxsize=256)
def _fetch_settings(model: str) -> str | None:
    """Fetch the configuration of a model or an adapter from the Hub; None on failure, which loading it will explain."""
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    for name in ("config.json", "adapter_config.json"):
        with suppress(OSError, ValueError, EntryNotFoundError):
            return str(huggingface_hub.hf_hub_download(model, name))
    return None
