"""Secrets on a worker: they are never stored with a flow run, so the process that runs it takes them from its own environment.

A key goes only to the address that this machine has configured it for: whoever may submit a run must not be able to have it sent
elsewhere.
"""

from typing import Any, TypeVar

from pydantic import BaseModel

from flows.settings import load_config
from slmsearch.config import RunConfig

Section = TypeVar("Section", bound=BaseModel)


def with_own_keys(config: RunConfig) -> RunConfig:
    """Fill in the keys that a configuration lacks and this machine has, for the same addresses."""
    return _filled(config, load_config())


def _filled(section: Section, own: Section) -> Section:
    update: dict[str, Any] = {}
    for name in type(section).model_fields:
        value, here = getattr(section, name), getattr(own, name)
        if isinstance(value, BaseModel) and type(value) is type(here):
            filled = _filled(value, here)
            update |= {} if filled is value else {name: filled}
    key, own_key = getattr(section, "api_key", None), getattr(own, "api_key", None)
    if key is None and own_key is not None and getattr(section, "base_url", None) == getattr(own, "base_url", None):
        update["api_key"] = own_key
    return section.model_copy(update=update) if update else section
