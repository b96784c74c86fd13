"""Secrets of a configuration apart from the rest: what a process hands to another, and what is stored.

A setting is secret by its type: a `SecretStr`, and `user:password@` in an `Address`.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from slmsearch.config import RunConfig

MASK = "**********"
"""What stands in the place of a secret that is not stored; pydantic writes it, too."""


def split_secrets(config: RunConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """Split a config into plain JSON values, with None for each key and addresses without passwords, and the secrets by dotted path."""
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
    """Make a config from what `split_secrets` split."""
    put_secrets(plain, secrets)
    return RunConfig.model_validate(plain)


def put_secrets(plain: dict[str, Any], secrets: Mapping[str, str | None]) -> None:
    """Put secrets into nested values, by their dotted paths."""
    for name, value in secrets.items():
        *path, leaf = name.split(".")
        section = plain
        for part in path:
            section = section.setdefault(part, {})
        section[leaf] = value


def mask_secrets(config: RunConfig) -> dict[str, str]:
    """Return stars for each secret of a configuration by dotted path; of an address they stand for its user and password."""
    plain, secrets = split_secrets(config)
    masked = {}
    for name, secret in secrets.items():
        is_key = functools.reduce(dict.__getitem__, name.split("."), plain) is None
        masked[name] = MASK if is_key else re.sub(r"(?<=://)[^/\s]*@", f"{MASK}@", secret)
    return masked
