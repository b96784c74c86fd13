"""Secrets of a configuration, separated from values that a process passes on or stores.

A setting is secret by its type: a `SecretStr`, and `user:password@` in an `Address`.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from slmsearch.config import RunConfig

MASK = "**********"
"""Text that replaces a secret in stored values; pydantic writes the same."""


def split_secrets(config: RunConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """Split a config into plain JSON values and secrets by dotted path; a plain key is None, a plain address has no password."""
    plain = config.model_dump(mode="json")
    return plain, _taken(config.model_dump(), plain, "")


def _taken(section: Mapping[str, Any], plain: dict[str, Any], path: str) -> dict[str, str]:
    secrets: dict[str, str] = {}
    for name, value in section.items():
        if isinstance(value, dict):
            secrets |= _taken(value, plain[name], f"{path}{name}.")
        elif isinstance(value, SecretStr):
            secrets[path + name], plain[name] = value.get_secret_value(), None
        elif isinstance(value, str) and value != plain[name]:
            secrets[path + name] = value
    return secrets


def join_secrets(plain: dict[str, Any], secrets: Mapping[str, str | None]) -> RunConfig:
    """Build a config from the two parts that `split_secrets` returns."""
    put_secrets(plain, secrets)
    return RunConfig.model_validate(plain)


def put_secrets(plain: dict[str, Any], secrets: Mapping[str, str | None]) -> None:
    """Insert secrets into nested values, by their dotted paths."""
    for name, value in secrets.items():
        *path, leaf = name.split(".")
        section = plain
        for part in path:
            section = section.setdefault(part, {})
        section[leaf] = value


def mask_secrets(config: RunConfig) -> dict[str, str]:
    """Return stars for each secret of a configuration by dotted path; in an address they replace user and password."""
    plain, secrets = split_secrets(config)
    masked = {}
    for name, secret in secrets.items():
        is_key = functools.reduce(dict.__getitem__, name.split("."), plain) is None
        masked[name] = MASK if is_key else re.sub(r"(?<=://)[^/\s]*@", f"{MASK}@", secret)
    return masked
