"""Decision whether a trained adapter becomes the champion."""

from flows.stages.approval import Approval, ask_to_approve
from flows.stages.artifacts import escape, show_comparison
from flows.stages.pipeline import Pipeline
from flows.stages.stages import compare_evaluations, evaluate_policy
from flows.stages.summary import render_evaluations
from slmsearch.errors import SlmSearchError
from slmsearch.evaluate.policies import PolicySpec
from tasks.corpus_data import Data
from tasks.evaluate import Compared, Evaluated
from tasks.promotion import Champion, find_champion, promote_task
from tasks.tracking import ADAPTER_HASH, CHAMPION
from tasks.train import Trained

MAX_TRIES = 3
"""Number of champions that one decision considers: each was promoted during the comparison with the one before."""

Decision = dict[str, str]
"""Pair of `decision` and `reason`."""


def promote_or_hold(run: Pipeline, data: Data, trained: Trained, before: Evaluated, after: Evaluated, comparison: Compared) -> Decision:
    """Promote the adapter if the comparison says so, trust in its answers has not fallen, and no champion on the base is better.

    Two runs that end together go one after the other: the later one finds another champion than it compared with and decides again. An
    undecidable case is `hold`.
    """
    decision = {"decision": comparison["decision"], "reason": comparison["reason"]}
    if decision["decision"] == "promote" and (lost := _find_lost(before, after)):
        decision = {"decision": "hold", "reason": lost}
    if decision["decision"] == "promote":
        decision = _promote(run, data, trained, before, after, decision["reason"])
    run.tracker.set_tags(run.run_id, {f"slmsearch.{name}": value for name, value in decision.items()})
    return decision


def _find_lost(before: Evaluated, after: Evaluated) -> str:
    """Return which share of twins or grounded answers fell, if both evaluations have it; empty if the intervals touch."""
    then, now = before.get("trust", {}), after.get("trust", {})
    for name in ("twins/both_right", "answer/grounded_frac"):
        if name in then and name in now and now[name]["all"]["high"] < then[name]["all"]["low"]:
            return f"More right answers, but {name} fell from {then[name]['all']['value']:.3f} to {now[name]['all']['value']:.3f}."
    return ""


def _promote(run: Pipeline, data: Data, trained: Trained, before: Evaluated, after: Evaluated, reason: str) -> Decision:
    answer: Approval | None = None
    for _ in range(MAX_TRIES):
        champion = find_champion(run.config.paths, run.config.tracking)
        is_rival = champion and champion.find_base(run.config.policy.model) and champion.tags.get(ADAPTER_HASH) != trained["hash"]
        if champion and is_rival and (objection := _find_objection(run, data, after, champion)):
            return {"decision": "hold", "reason": objection}
        paths, tracking = run.config.paths, run.config.tracking
        if tracking.approval_s and answer is None:
            answer = _ask(run, trained, before, after, reason)
            if not answer.approve:
                return {"decision": "hold", "reason": f"{reason} Not approved: {answer.reason}"}
            reason = f"{reason} Approved: {answer.reason}"
        known = champion.version if champion else None
        if promote_task(trained["version"], known, reason, after["key"], run.run_id, paths, tracking) == trained["version"]:
            return {"decision": "promote", "reason": reason}
    return {"decision": "hold", "reason": f"The champion changed {MAX_TRIES} times while this one was compared with it; compare again."}


def _ask(run: Pipeline, trained: Trained, before: Evaluated, after: Evaluated, reason: str) -> Approval:
    """Show the comparison and ask a person, recording the answer."""
    with run.stage("approve") as run_id:
        table = render_evaluations(run.config.paths, run.config.decision, before, after)
        show_comparison(table)
        asked = f"Shall version {trained['version']} of {run.config.tracking.registered_model} become the champion?"
        answer = ask_to_approve(f"{asked}\n\n{table}\n\n{escape(reason)}", run.config.tracking.approval_s)
        run.tracker.set_tags(run_id, {"slmsearch.approved": str(answer.approve).lower(), "slmsearch.reason": answer.reason})
    return answer


def _find_objection(run: Pipeline, data: Data, after: Evaluated, champion: Champion) -> str:
    """Return why the champion stays; empty if it is not significantly better."""
    try:
        best = evaluate_policy(run, data, PolicySpec(CHAMPION, champion.policy(run.config.policy)), "evaluate-champion")
        verdict = compare_evaluations(run, "compare-champion", best, after)
    except SlmSearchError as error:
        return f"Better than before; champion {champion.version} cannot be compared with: {error}"
    is_level = verdict["decision"] in ("promote", "hold") and not any(part["vetoes"] for part in verdict["slices"])
    return "" if is_level else f"Better than before, but not beside the champion: {verdict['reason']}"
