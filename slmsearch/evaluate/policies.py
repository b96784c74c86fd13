"""Policies that can be evaluated: their names, a parser of them, and the inputs of each.

    untrained                     the configured model without an adapter
    trained                       the configured model with the configured adapter
    a baseline's name             a policy without a model, one of the environment's `controls`
    openai:<model>@<base_url>     a served model
    a name, path or Hub id        another model, or a LoRA adapter: of the known model that it names, else of the configured one

`champion` is resolved by the flows, which know MLflow.
"""

from collections.abc import Collection
from dataclasses import dataclass

from slmsearch.config import EvaluateConfig, PolicyConfig
from slmsearch.errors import ConfigError
from slmsearch.foreign import without_credentials
from slmsearch.models.hashes import model_hash, trained_policy
from slmsearch.models.known import path_of
from slmsearch.sampling.openai_sampler import WHOLE

TRAINED, UNTRAINED = "trained", "untrained"


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy to evaluate."""

    name: str
    """Name in tables."""
    policy: PolicyConfig | None
    """Model and adapter; None for a baseline without a model, which has its own `name`."""
    made_of: str = ""
    """Key of the evaluation from whose episodes a derived control is made; empty for all others."""
    night: str = ""
    """Night it is played in; part of the key, so that another night plays it again."""


def parse_policy(spec: str, config: PolicyConfig, baselines: Collection[str], data_dir: str) -> PolicySpec:
    """Parse a policy's name in one of the forms above; other models use the configured device and dtype, too.

    Models and adapters with names are looked for in `data_dir`, and among those that are shipped.

    Raises:
        ConfigError: the name is empty or malformed, or `trained` is asked for without an adapter.
    """
    if spec in baselines:
        return PolicySpec(spec, None)
    if spec == UNTRAINED:
        return PolicySpec(spec, config.model_copy(update={"adapter": None}))
    if spec == TRAINED:
        if not config.adapter:
            raise ConfigError("policy 'trained' needs an adapter; set policy.adapter, or train first")
        return PolicySpec(spec, config)
    if spec.startswith("openai:"):
        return _parse_served(spec, config)
    if not spec.strip():
        raise ConfigError(f"policy name is empty; use {', '.join((UNTRAINED, TRAINED, *baselines))}, a path or a Hub id")
    name = spec.rstrip("/").rpartition("/")[2]
    policy = trained_policy(config, path_of(spec, data_dir))
    return PolicySpec(name, policy.model_copy(update={"model": path_of(policy.model, data_dir)}))


def describe_policy(spec: PolicySpec, evaluate: EvaluateConfig) -> dict[str, object]:
    """Return the inputs of a policy: content hashes for local files, names for served models. Part of every evaluation key."""
    policy = spec.policy
    if policy is None:
        return {"baseline": spec.name, "made_of": spec.made_of, "seed": evaluate.seed}
    template = {"chat_template_kwargs": policy.chat_template_kwargs} if policy.chat_template_kwargs else {}
    if policy.base_url:
        return {"served": policy.model, "base_url": without_credentials(policy.base_url), "sampling": WHOLE, **template}
    adapter = model_hash(policy.adapter) if policy.adapter else None
    precision = "nf4" if policy.load_in_4bit else policy.dtype
    return {"model": model_hash(policy.model), "adapter": adapter, "dtype": precision, **template}


def _parse_served(spec: str, config: PolicyConfig) -> PolicySpec:
    # The last `@`, because model names may hold one and addresses with a user name are refused below.
    model, _, base_url = spec.removeprefix("openai:").rpartition("@")
    if not model or not base_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"policy {spec!r} is malformed; write openai:<model>@<base_url>, such as openai:qwen2.5:7b@http://localhost:11434/v1"
        )
    # A key goes only to the address it was configured for.
    key = config.api_key if config.base_url in (None, base_url) else None
    served = {"model": model, "base_url": base_url, "api_key": key, "adapter": None}
    return PolicySpec(model, config.model_copy(update=served))
