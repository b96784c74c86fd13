"""Registered adapters and the champion: register, promote by a flow's decision or by hand, roll back."""

import getpass
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.errors import ConfigError, ModelError, PromotionError
from slmsearch.models.hashes import model_hash, read_start, trained_policy
from tasks.tracking import ADAPTER_HASH, BASE_MODEL, PREFIX, PromotionEvent, move_champion, open_tracker, roll_back

EVALUATED_AFTER = f"{PREFIX}eval_key_after"
"""Tag of a flow's run with the evaluation of the trained policy."""


@task(name="register", cache_policy=NO_CACHE)
def register_task(run_id: str, adapter: str, adapter_hash: str, lineage: dict[str, str], config: RunConfig) -> str:
    """Register an adapter's directory under its hash and return its version; the keys of its inputs become tags of the version."""
    tags = {f"slmsearch.{name}": value for name, value in lineage.items()}
    tags |= {ADAPTER_HASH: adapter_hash, BASE_MODEL: config.policy.model, "slmsearch.base_hash": model_hash(config.policy.model)}
    return open_tracker(config).register_adapter(run_id, Path(adapter), config.tracking.registered_model, tags)


def find_champion(config: RunConfig) -> dict[str, str] | None:
    """Return version and tags of the champion, None before the first promotion."""
    return open_tracker(config).champion(config.tracking.registered_model)


def champion_policy(config: RunConfig, champion: Mapping[str, str] | None = None) -> PolicyConfig:
    """Return the configured policy with the champion's adapter, on the supervised start of its run if that began with the policy's model.

    `champion` is the result of `find_champion`, if it is known already.

    Raises:
        ModelError: no version was promoted yet, or the champion was trained on another base model.
    """
    champion = champion or find_champion(config)
    name = config.tracking.registered_model
    if champion is None:
        raise ModelError(f"{name} has no champion yet; promote one with `slmsearch run train-and-eval`")
    model = base_of(champion, config)
    if model is None:
        raise ModelError(
            f"champion {champion['version']} of {name} was trained on {champion.get(BASE_MODEL, '')}; set policy.model to that"
        )
    policy = config.policy.model_copy(update={"model": model})
    return trained_policy(policy, str(open_tracker(config).fetch_adapter(name, champion["version"])))


def base_of(champion: Mapping[str, str], config: RunConfig) -> str | None:
    """Return the base of a champion's adapter: the configured model, or the supervised start of its run that began with that; None if it
    was trained on another model.
    """
    base, model = champion.get(BASE_MODEL, ""), config.policy.model
    if read_start(base) == model:
        model = base
    return model if champion.get("slmsearch.base_hash", "") == model_hash(model) else None


@task(name="promote", cache_policy=NO_CACHE)
def promote_task(version: str, expected: str | None, why: str, eval_key: str, run_id: str, config: RunConfig) -> str | None:
    """Move the alias `champion` to a version, if it has not moved since the decision; return its version afterwards.

    Args:
        version: new champion.
        expected: champion at the time of the decision, None if there was none.
        why: the decision's reason.
        eval_key: evaluation that it rests on.
        run_id: MLflow run that decided.
        config: settings of the run.

    Raises:
        PromotionError: the run that decided has ended.
    """
    tracker, model = open_tracker(config), config.tracking.registered_model
    event = PromotionEvent(model, version, "promote", why, who(), eval_key=eval_key)
    try:
        move_champion(tracker, event, expected, run_id)
    except PromotionError:
        champion = find_champion(config)
        if champion is None or champion["version"] in (expected, version):  # no other promotion came first
            raise
        return champion["version"]
    return version


def promote_by_hand(config: RunConfig, version: str, reason: str) -> PromotionEvent:
    """Promote a version, given as its number or name/number, against any comparison; the reason is recorded.

    Raises:
        ConfigError: the version or the reason is empty.
        ModelError: there is no such version.
        PromotionError: another process promoted at the same time.
    """
    model, number = _parse_version(version, config.tracking.registered_model)
    tracker, reason = open_tracker(config), require_reason(reason)
    current = (tracker.champion(model) or {}).get("version")
    return move_champion(
        tracker, PromotionEvent(model, number, "promote", reason, who(), eval_key=promotion_evaluation(config, model, number)), current
    )


def roll_back_by_hand(config: RunConfig, reason: str) -> PromotionEvent:
    """Make the previous champion the champion again.

    Raises:
        ConfigError: the reason is empty.
        PromotionError: there is none.
    """
    return roll_back(open_tracker(config), config.tracking.registered_model, require_reason(reason), who())


def promotion_evaluation(config: RunConfig, model: str, number: str) -> str:
    """Return the evaluation of a version by the run that made it; empty if there is none."""
    tracker = open_tracker(config)
    run = tracker.maker_run(model, number)
    return (run and tracker.find_tag(run, EVALUATED_AFTER)) or ""


def _parse_version(text: str, model: str) -> tuple[str, str]:
    name, slash, number = text.strip().rpartition("/")
    if not re.fullmatch(r"[1-9]\d*", number) or (slash and not name):
        raise ConfigError(f"{text!r} is no version; give its number, or name/number such as {model}/3")
    return name or model, number


def require_reason(reason: str) -> str:
    """Return a reason in one line.

    Raises:
        ConfigError: it is empty.
    """
    if not reason.strip():
        raise ConfigError("--reason is empty; say in a few words why, it is recorded with the version")
    return " ".join(reason.split())


def who() -> str:
    """Name the person at this machine, and the flow run that acts for them."""
    person = f"{getpass.getuser()}@{socket.gethostname()}"
    return f"{person}, flow run {flow_run.name}" if flow_run.id else person
