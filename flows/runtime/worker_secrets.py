"""Secrets on a worker: a flow run never stores them, so the process that runs it takes them from its own environment.

The stored settings hold stars in their place. A secret goes only to the address that this machine has configured for it: a person who may
submit a run must not be able to send it elsewhere.
"""

import functools
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.runtime.process_environment import prepare_process_environment
from flows.runtime.settings import ENV_PREFIX, load_config, read_environment, recordable, resolve_paths
from slmsearch.config import RunConfig
from slmsearch.config.secrets import MASK, join_secrets, mask_secrets, put_secrets, split_secrets
from slmsearch.environments.registry import environment_of
from slmsearch.errors import ConfigError

ADDRESSES = ("base_url", "chroma_url")
"""Settings, in the section of a key, of the address to which the key is sent."""
ALL_BUT_TRACKING = tuple(f"{section}." for section in RunConfig.model_fields if section != "tracking")
"""Settings that flows for upkeep do not read."""


def submitted(config: RunConfig) -> dict[str, object]:
    """Return a configuration as a flow run stores it: values that differ from the defaults, with stars for secrets."""
    stored = recordable(config, only_changed=True)
    put_secrets(stored, mask_secrets(config))
    return stored


def with_own_secrets(config: RunConfig, unused: tuple[str, ...] = ()) -> RunConfig:
    """Fill in the missing secrets of a configuration that this machine has for the same addresses; idle settings may lack theirs.

    Args:
        config: settings of a flow run.
        unused: prefixes of settings that the flow does not read.

    Raises:
        ConfigError: the flow reads a secret that is not stored with the run and that this machine does not have.
    """
    plain, given = split_secrets(config)
    own_plain, own = split_secrets(load_config())
    for name, secret in own.items():
        if MASK in given.get(name, MASK) and _is_for_the_same_place(name, plain, own_plain):
            given[name] = secret
    used = {"judge.": config.judge.kind != "exact", **environment_of(config).data(config).servers()}
    idle = [beginning for beginning, is_used in used.items() if not is_used]  # no flow reads them: their service is not chosen
    unfilled = [name for name, secret in given.items() if MASK in secret]
    for name in unfilled:
        if not name.startswith((*unused, *idle)):
            variable = ENV_PREFIX + name.upper().replace(".", "__")
            raise ConfigError(
                f"{name} is not stored with this flow run, as no secret is, and this machine has none for the same address: set {variable} "
                "(a key: and its address) where the worker is started"
            )
    without = {name: _value(name, plain) for name in unfilled}  # no key, and an address as it is
    filled = join_secrets(plain, {**given, **without})
    return config if filled == config else filled


def settle(config: RunConfig, unused: tuple[str, ...]) -> RunConfig:
    """Return the configuration of a flow run with the paths and secrets of this machine, and prepare the process for it.

    Raises:
        ConfigError: a secret is missing, see `with_own_secrets`.
    """
    config = with_own_secrets(resolve_paths(config, Path.cwd()), unused)
    prepare_process_environment(config, read_environment())
    return config


def _is_for_the_same_place(name: str, plain: Mapping[str, object], own: Mapping[str, object]) -> bool:
    """Return whether a secret of this machine would go to its configured address; both configurations are without secrets."""
    path, _, leaf = name.rpartition(".")
    there, here = (_value(path, values) for values in (plain, own))
    # Without an address of its own the policy's key goes to any that `evaluate.policy` names.
    has_place = name != "policy.api_key" or here["base_url"] is not None
    return has_place and all(there[setting] == here[setting] for setting in {leaf, *ADDRESSES} & here.keys())


def _value(name: str, values: Any) -> Any:
    return functools.reduce(operator.getitem, name.split("."), values)
