"""Whether a trained adapter becomes the champion."""

from typing import Any

from flows.stages.pipeline import Pipeline
from flows.stages.stages import Data, compared, evaluated
from slmsearch.errors import SlmSearchError
from slmsearch.evaluate.policies import PolicySpec
from tasks.promotion import promote_task
from tasks.register import base_hash, champion_policy, find_champion
from tasks.tracking import ADAPTER_HASH

MAX_TRIES = 3
"""Champions that one decision is taken beside: each was promoted while the one before was compared with."""

Decision = dict[str, str]
"""`decision` and `reason`."""


def promoted_or_held(run: Pipeline, data: Data, trained: dict[str, Any], after: dict[str, Any], comparison: dict[str, Any]) -> Decision:
    """Promote the adapter if the comparison says so and no champion on the same base model is significantly better.

    Two runs that end together are one after the other: the later one finds another champion than it decided about and decides again.
    What cannot be decided is held.

    Returns:
        `decision` and `reason`.
    """
    wanted = {"decision": str(comparison["decision"]), "reason": str(comparison["reason"])}
    decision = wanted if wanted["decision"] != "promote" else _promoted(run, data, trained, after, wanted)
    run.tracker.set_tags(run.run_id, {f"slmsearch.{name}": value for name, value in decision.items()})
    return decision


def _promoted(run: Pipeline, data: Data, trained: dict[str, Any], after: dict[str, Any], wanted: Decision) -> Decision:
    for _ in range(MAX_TRIES):
        champion = find_champion(run.config)
        decision = _beside_champion(run, data, trained, after, wanted, champion)
        if decision["decision"] != "promote":
            return decision
        before = champion["version"] if champion else None
        now = promote_task(trained["version"], before, decision["reason"], after["key"], run.run_id, run.config)
        if now == trained["version"]:
            return decision
    return {"decision": "hold", "reason": f"The champion changed {MAX_TRIES} times while this one was compared with it; compare again."}


def _beside_champion(
    run: Pipeline, data: Data, trained: dict[str, Any], after: dict[str, Any], wanted: Decision, champion: dict[str, str] | None
) -> Decision:
    if champion is None or not _is_rival(run, champion, trained):
        return wanted
    try:
        return _against_champion(run, data, after, wanted)
    except SlmSearchError as error:
        why = " ".join(str(error).split())
        return {"decision": "hold", "reason": f"Better than before; champion {champion['version']} cannot be compared with: {why}"}


def _is_rival(run: Pipeline, champion: dict[str, str], trained: dict[str, Any]) -> bool:
    """Say whether the champion is another adapter of the same base model."""
    return champion.get("slmsearch.base_hash") == base_hash(run.config.policy) and champion.get(ADAPTER_HASH) != trained["hash"]


def _against_champion(run: Pipeline, data: Data, after: dict[str, Any], decision: Decision) -> Decision:
    champion = evaluated(run, data, PolicySpec("champion", champion_policy(run.config)), "evaluate-champion")
    verdict = compared(run, "compare-champion", champion, after)
    if verdict["decision"] in ("promote", "hold"):
        return decision
    return {"decision": "hold", "reason": f"Better than before, but not beside the champion: {verdict['reason']}"}
