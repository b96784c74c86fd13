"""Whether a trained adapter becomes the champion."""

from typing import Any

from flows.pipeline import Pipeline
from flows.stages import Data, compared, evaluated
from slmsearch.evaluate.policies import PolicySpec
from tasks.register import base_hash, champion_policy, find_champion, promote_task
from tasks.tracking import ADAPTER_HASH


def promoted_or_held(
    run: Pipeline, data: Data, trained: dict[str, Any], after: dict[str, Any], comparison: dict[str, Any]
) -> dict[str, str]:
    """Promote the adapter if the comparison says so and no champion on the same base model is significantly better.

    Returns:
        `decision` and `reason`.
    """
    decision = {"decision": str(comparison["decision"]), "reason": str(comparison["reason"])}
    champion = find_champion(run.config)
    if decision["decision"] == "promote" and champion is not None and _is_rival(run, champion, trained):
        decision = _against_champion(run, data, after, decision)
    if decision["decision"] == "promote":
        promote_task(trained["version"], champion["version"] if champion else None, run.config)
    run.tracker.set_tags(run.run_id, {f"slmsearch.{name}": value for name, value in decision.items()})
    return decision


def _is_rival(run: Pipeline, champion: dict[str, str], trained: dict[str, Any]) -> bool:
    """Say whether the champion is another adapter of the same base model."""
    return champion.get("slmsearch.base_hash") == base_hash(run.config.policy) and champion.get(ADAPTER_HASH) != trained["hash"]


def _against_champion(run: Pipeline, data: Data, after: dict[str, Any], decision: dict[str, str]) -> dict[str, str]:
    champion = evaluated(run, data, PolicySpec("champion", champion_policy(run.config)), "evaluate-champion")
    verdict = compared(run, "compare-champion", champion, after)
    if verdict["decision"] in ("promote", "hold"):
        return decision
    return {"decision": "hold", "reason": f"Better than before, but not beside the champion: {verdict['reason']}"}
