"""Write the qualification of a judge into an MLflow run of its own."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from slmsearch.config import RunConfig
from slmsearch.judge.qualify import Qualification
from tasks.tracking import open_tracker

STAGE = "judge-qualify"


def record_qualification(measured: Qualification, summary: Mapping[str, Any], config: RunConfig) -> str:
    """Record figures, the summary and every outcome; return the run's id.

    Args:
        measured: the outcomes.
        summary: as `summarise_qualification` gives it.
        config: the run.
    """
    tracker, whole = open_tracker(config), summary["kinds"][0]
    shares = {name: whole[part]["count"] / max(1, whole[part]["n"]) for name, part in _SHARES.items()}
    metrics = {
        **shares,
        "judge/failed": whole["failed"],
        "judge/kappa_exact": summary["kappa_exact"],
        "judge/kappa_known": summary["kappa_known"],
        "time/judge_verdict_s": summary["verdict_s"],
    }
    with tracker.run(STAGE, measured.key) as run_id:
        tracker.record_params(
            run_id, {"judge.model": measured.model, "judge.digest": measured.judge, "judge.prompt": measured.prompt_version}
        )
        tracker.record_metrics(run_id, metrics)
        tracker.record_json(run_id, summary, "judge.json")
        tracker.record_table(run_id, [_row(asdict(outcome)) for outcome in measured.outcomes], f"judge/{measured.key}.json")
        tracker.set_tags(run_id, {"slmsearch.judge": measured.judge, "slmsearch.judge_passed": str(summary["passed"]).lower()})
    return run_id


_SHARES = {"judge/accuracy": "accuracy", "judge/false_accept_frac": "false_accepts", "judge/false_reject_frac": "false_rejects"}


def _row(outcome: dict[str, Any]) -> dict[str, Any]:
    words = {True: "right", False: "wrong", None: "none"}
    return {**outcome, **{name: words[outcome[name]] for name in ("known", "verdict", "exact")}}
