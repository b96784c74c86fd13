"""What can be evaluated: the names of policies, how they are parsed, and what each is made of.

    untrained                     the configured model without an adapter
    trained                       the configured model with the configured adapter
    random, retrieve-then-answer  baselines without a model
    worker-alone, plan-is-question, plans-shuffled
                                  controls of the planner: everything left to the worker, the problem itself as the only part, and
                                  the plans of an evaluation dealt out to other problems
    openai:<model>@<base_url>     a served model
    a path or Hub id              another model, or a LoRA adapter of the configured one

`champion` is resolved by the flows, which know MLflow.
"""

from dataclasses import dataclass
from typing import Any

from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.errors import ConfigError
from slmsearch.evaluate.baselines import make_retrieve_then_answer
from slmsearch.foreign import without_credentials
from slmsearch.generate.sampler import Sampler
from slmsearch.learn.models import model_hash, trained_policy
from slmsearch.searcher.tools import Toolbox

RANDOM, RETRIEVE_THEN_ANSWER, TRAINED, UNTRAINED = "random", "retrieve-then-answer", "trained", "untrained"
WORKER_ALONE, PLAN_IS_QUESTION, PLANS_SHUFFLED = "worker-alone", "plan-is-question", "plans-shuffled"
PLAN_CONTROLS = (WORKER_ALONE, PLAN_IS_QUESTION, PLANS_SHUFFLED)
_OPENAI_PREFIX = "openai:"


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy to evaluate."""

    name: str
    """As it stands in tables."""
    policy: PolicyConfig | None
    """The model and its adapter; None for a baseline without a model, which `name` then names."""
    plans_of: str = ""
    """`plans-shuffled`: key of the evaluation whose plans are dealt out."""
    night: str = ""
    """Night it is played in; part of the key, so that what was stored in another is played again."""


def parse_policy(spec: str, config: PolicyConfig) -> PolicySpec:
    """Parse a policy's name as a user writes it.

    Args:
        spec: one of the forms in the module docstring.
        config: the configured policy; device and dtype are taken from it for other models too.

    Raises:
        ConfigError: the name is empty or malformed, or `trained` is asked for without an adapter.
    """
    if spec in (RANDOM, RETRIEVE_THEN_ANSWER, WORKER_ALONE, PLAN_IS_QUESTION):
        return PolicySpec(spec, None)
    if spec == UNTRAINED:
        return PolicySpec(spec, config.model_copy(update={"adapter": None}))
    if spec == TRAINED:
        if not config.adapter:
            raise ConfigError("policy 'trained' needs an adapter; set policy.adapter, or train first")
        return PolicySpec(spec, config)
    if spec.startswith(_OPENAI_PREFIX):
        return _parse_served(spec, config)
    if not spec.strip():
        raise ConfigError(f"policy name is empty; use {UNTRAINED}, {TRAINED}, {RANDOM}, {RETRIEVE_THEN_ANSWER}, a path or a Hub id")
    name = spec.rstrip("/").rpartition("/")[2]
    return PolicySpec(name, trained_policy(config, spec))


def describe_policy(spec: PolicySpec, config: RunConfig) -> dict[str, Any]:
    """Say what a policy is made of: content hashes for local files, names for what is served. Part of every evaluation key."""
    policy = spec.policy
    if policy is None and spec.plans_of:
        return {"baseline": spec.name, "plans_of": spec.plans_of, "seed": config.evaluate.seed}
    if policy is None:
        return {"baseline": spec.name, "seed": config.evaluate.seed if spec.name == RANDOM else None}
    template = {"chat_template_kwargs": policy.chat_template_kwargs} if policy.chat_template_kwargs else {}
    if policy.base_url:
        return {"served": policy.model, "base_url": without_credentials(policy.base_url), **template}
    adapter = model_hash(policy.adapter) if policy.adapter else None
    precision = "nf4" if policy.load_in_4bit else policy.dtype
    return {"model": model_hash(policy.model), "adapter": adapter, "dtype": precision, **template}


def make_policy_sampler(spec: PolicySpec, toolbox: Toolbox, config: RunConfig) -> Sampler:
    """Load the policy, or make the baseline, as the sampler that plays it.

    Raises:
        ModelError: the model or adapter cannot be loaded.
    """
    if spec.policy is not None:
        from slmsearch.generate.load import make_sampler

        return make_sampler(spec.policy, config.searcher.tool_role)
    if spec.name == RETRIEVE_THEN_ANSWER:
        return make_retrieve_then_answer(toolbox, config.searcher.max_turns)
    from slmsearch.generate.scripted import RandomSampler

    return RandomSampler(config.evaluate.seed)


def _parse_served(spec: str, config: PolicyConfig) -> PolicySpec:
    # The last `@`, because model names may hold one and addresses with a user name are refused below.
    model, separator, base_url = spec.removeprefix(_OPENAI_PREFIX).rpartition("@")
    if not separator or not model or not base_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"policy {spec!r} is malformed; write openai:<model>@<base_url>, such as openai:qwen2.5:7b@http://localhost:11434/v1"
        )
    # A key goes only to the address it was configured for.
    key = config.api_key if config.base_url in (None, base_url) else None
    served = {"model": model, "base_url": base_url, "api_key": key, "adapter": None}
    return PolicySpec(model, config.model_copy(update=served))
