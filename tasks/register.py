"""Register adapters, and find the promoted one."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.errors import ModelError
from slmsearch.learn.models import model_hash, trained_policy
from tasks.tracking import ADAPTER_HASH, BASE_MODEL, open_tracker


@task(name="register", cache_policy=NO_CACHE)
def register_task(run_id: str, adapter: str, adapter_hash: str, lineage: dict[str, str], config: RunConfig) -> str:
    """Register an adapter under its hash and return its version.

    Args:
        run_id: MLflow run that made it.
        adapter: its directory.
        adapter_hash: sha256 of its weights.
        lineage: keys of what it was made from; become tags of the version.
        config: run.
    """
    tags = {f"slmsearch.{name}": value for name, value in lineage.items()}
    tags |= {ADAPTER_HASH: adapter_hash, BASE_MODEL: config.policy.model, "slmsearch.base_hash": base_hash(config.policy)}
    return open_tracker(config).register_adapter(run_id, Path(adapter), config.tracking.registered_model, tags)


def base_hash(policy: PolicyConfig) -> str:
    """Hash the model under an adapter."""
    return model_hash(policy.model)


def find_champion(config: RunConfig) -> dict[str, str] | None:
    """Return version and tags of the promoted adapter, None if nothing was promoted yet."""
    return open_tracker(config).champion(config.tracking.registered_model)


def champion_policy(config: RunConfig) -> PolicyConfig:
    """Return the configured policy with the promoted adapter.

    Raises:
        ModelError: nothing was promoted yet, or it was trained on another base model.
    """
    champion = find_champion(config)
    name = config.tracking.registered_model
    if champion is None:
        raise ModelError(f"{name} has no champion yet; promote one with `slmsearch run train-and-eval`")
    if champion.get("slmsearch.base_hash", "") != base_hash(config.policy):
        raise ModelError(f"champion {champion['version']} of {name} was trained on {champion.get(BASE_MODEL)}; set policy.model to that")
    return trained_policy(config.policy, str(open_tracker(config).fetch_adapter(name, champion["version"])))
