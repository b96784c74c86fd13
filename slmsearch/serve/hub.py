"""Weights: a path, or a repository on the Hub, fetched on first use."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from slmsearch.errors import ConfigError, ServiceError
from slmsearch.serve.engine import Say

PREFERRED = ("q4_k_m", "q4_0", "q4", "q5_k_m", "q8_0", "f16", "bf16", "f32")
"""Quantisations in the order in which they are taken where none is named: small first, without much loss."""
_OTHER_WEIGHTS = ("*.gguf", "*.pth", "*.h5", "*.msgpack", "*.onnx", "original/*", "onnx/*")
"""The same weights once more, for other programs."""
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_REPOSITORY = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[\w./-]+\.gguf)|:(?P<quant>[\w.-]+))?")


def find_gguf(model: str, say: Say) -> Path:
    """Return the local path of a GGUF; of one in several parts, that of the first.

    Args:
        model: a path, `owner/repository`, `owner/repository:QUANTISATION` or `owner/repository/file.gguf`.
        say: is told of a download.

    Raises:
        ConfigError: it is none of these.
        ServiceError: it can neither be found nor fetched.
    """
    path = Path(os.path.expanduser(model))  # leaves a `~name` that is nobody as it is
    if path.is_file():
        return path
    match = _REPOSITORY.fullmatch(model)
    if match is None or path.is_absolute() or not _is_repository(match["repo"]):
        example = "Qwen/Qwen2.5-3B-Instruct-GGUF:q4_k_m"
        raise ConfigError(f"no GGUF at {model!r}: give --model FILE.gguf, or a repository of the Hub such as {example}")
    repo = match["repo"]
    files = [match["file"]] if match["file"] else choose_files(_list_files(repo), match["quant"], repo)
    paths = [_fetch(repo, file, say) for file in files]
    return paths[0]


def fetch_model(model: str, say: Say) -> None:
    """Fetch the weights of a Hub id into its cache, so that a server that is to answer in time finds them there; a path is left alone.

    Raises:
        ServiceError: they can neither be found nor fetched.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    if Path(model).exists():
        return
    if not _is_repository(model):
        raise ConfigError(f"no model at {model!r}, and it is no Hub id: correct --model")
    try:
        snapshot_download(model, local_files_only=True)
    except LocalEntryNotFoundError:
        say(f"fetching {model} from the Hub")
        try:
            snapshot_download(model, ignore_patterns=list(_OTHER_WEIGHTS))
        except RepositoryNotFoundError as error:
            raise _unknown(model) from error
        except (HTTPError, OSError) as error:
            raise _unreachable(model, error, "a path with --model") from error


def choose_files(files: Sequence[str], quant: str | None, repo: str) -> list[str]:
    """Choose the GGUF of a repository: all parts of one quantisation, the first first.

    Args:
        files: of the repository.
        quant: wanted, in any case; None takes the first of `PREFERRED` there is.
        repo: for the message.

    Raises:
        ConfigError: there is none.
    """
    names = sorted(file for file in files if file.lower().endswith(".gguf") and "mmproj" not in file.lower())
    for wanted in [quant.lower()] if quant else PREFERRED:
        found = [name for name in names if wanted in re.split(r"[-./]", _SPLIT.sub(".gguf", name).lower())]
        if found:
            stem = _SPLIT.sub("", found[0])
            return [name for name in found if _SPLIT.sub("", name) == stem] if _SPLIT.search(found[0]) else found[:1]
    if not quant and names:
        return names[:1]
    there = ", ".join(Path(name).name for name in names[:6]) or "no GGUF at all"
    raise ConfigError(f"{repo} has no GGUF {f'of quantisation {quant!r}' if quant else ''}: it has {there}; write {repo}:QUANTISATION")


def _is_repository(repo: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError:
        return False
    return True


def _list_files(repo: str) -> list[str]:
    """List a repository's files; where the Hub cannot be reached, those of it that lie in the cache."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        return HfApi().list_repo_files(repo)
    except RepositoryNotFoundError as error:
        raise _unknown(repo) from error
    except (HTTPError, OSError) as error:
        try:
            cached = Path(snapshot_download(repo, local_files_only=True))
        except (LocalEntryNotFoundError, OSError):
            raise _unreachable(repo, error) from error
        return [file.relative_to(cached).as_posix() for file in cached.rglob("*.gguf")]


def _fetch(repo: str, file: str, say: Say) -> Path:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HTTPError, LocalEntryNotFoundError

    cached = try_to_load_from_cache(repo, file)
    if isinstance(cached, str):
        return Path(cached)
    say(f"fetching {file} of {repo} from the Hub")
    try:
        return Path(hf_hub_download(repo, file))
    except LocalEntryNotFoundError as error:
        raise _unreachable(repo, error) from error
    except EntryNotFoundError as error:
        raise ServiceError(f"{repo} has no file {file}: correct --model") from error
    except (HTTPError, OSError) as error:
        raise _unreachable(repo, error) from error


def _unknown(repo: str) -> ServiceError:
    return ServiceError(f"no repository {repo!r} on the Hub, or it is private: correct --model, or log in with `hf auth login`")


def _unreachable(repo: str, error: Exception, instead: str = "--model FILE.gguf") -> ServiceError:
    cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
    return ServiceError(f"{repo} is not in the Hub's cache and cannot be fetched ({cause}): connect once, or give {instead}")
