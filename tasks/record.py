"""Write into MLflow the findings of a stage, and the results of judge qualifications and retrieval reports in runs of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.artifacts.files import known_hash
from slmsearch.config import EvaluateConfig, JudgeConfig, PathsConfig, TrackingConfig
from slmsearch.corpus.data_report import DataReport
from slmsearch.evaluate.metrics import FAULTS, sample_rows
from slmsearch.evaluate.retrieval import METRICS, SHOWN
from slmsearch.evaluate.store import load_evaluation
from slmsearch.judge.qualify import Qualification
from slmsearch.keys import content_key
from slmsearch.models.hashes import weights_file
from slmsearch.training.reports import StepReport
from tasks.traces import episode_span, trace_tags
from tasks.tracking import Tracker, open_tracker

JUDGE_STAGE, RETRIEVAL_STAGE = "judge-qualify", "retrieval-report"
TRACED_EPISODES = 24
"""Number of episodes recorded as traces, a stratified sample: a few of each kind and stop reason, few enough to read."""


@task(name="record-evaluation", task_run_name="record-{name}", cache_policy=NO_CACHE)
def record_evaluation_task(
    run_id: str, name: str, key: str, model: str | None, judge: JudgeConfig, paths: PathsConfig, tracking: TrackingConfig
) -> None:
    """Write a stored evaluation into a run: metrics, its rows as a table, slices, and a sample of its episodes as traces.

    If the adapter, or model, that played is registered, it gets the metrics, too, and becomes an input of the run.
    """
    tracker, stored = open_tracker(paths, tracking), load_evaluation(paths.evals, key)
    if not stored.rows:
        return
    weights = weights_file(Path(model)) if model else None
    registered = tracker.find_adapter(tracking.registered_model, known_hash(weights)) if weights and weights.is_file() else None
    tracker.record_metrics(run_id, stored.metrics, registered)
    measured = list(dict.fromkeys(name for row in stored.rows for name in row.measured))
    tracker.record_table(run_id, [_table_row(asdict(row), measured) for row in stored.rows], f"eval/{key}.json")
    tracker.record_json(run_id, {"policy": name, "key": key, "metrics": stored.metrics, "slices": stored.slices}, "evaluation.json")
    chosen = sample_rows(stored.rows, TRACED_EPISODES, EvaluateConfig.seed)
    chosen = list({stored.rows[i].question_id: i for i in chosen}.values())  # a question that was sampled several times has one trace
    traces = [(episode_span(stored.episodes[i], stored.rows[i], name_judge(judge)), trace_tags(stored.rows[i])) for i in chosen]
    if traces:
        tracker.record_traces(run_id, key, traces)


def name_judge(judge: JudgeConfig) -> str:
    """Return the model that judges; empty if there is none."""
    return "" if judge.kind == "exact" else judge.model


def record_rollouts(tracker: Tracker, run_id: str, train_key: str, report: StepReport, judge: str) -> None:
    """Write the episodes in a step's report into the run of its training as traces, tagged with the step and the reason of the choice.

    Call it before the step's metrics are recorded: a killed run reports the step again until they are, and an existing trace stays.
    """
    traces = [
        (episode_span(one.episode, one.row, judge), {**trace_tags(one.row), "step": str(report.step), "sample": one.kind.value})
        for one in report.samples
    ]
    if traces:
        tracker.record_traces(run_id, train_key, traces, "train_key")


def _table_row(row: Mapping[str, Any], measured: Sequence[str]) -> dict[str, object]:
    """Flatten a row: parts of the reward and further metrics have a column each, its faults share one."""
    parts = {f"reward/{name}": value for name, value in row["reward_parts"].items()}
    own = {name: row["measured"].get(name) for name in measured if not name.startswith(FAULTS)}
    if own:
        own["faults"] = ", ".join(sorted(name.removeprefix(FAULTS) for name in row["measured"] if name.startswith(FAULTS)))
    return {**{name: value for name, value in row.items() if name not in ("reward_parts", "measured")}, **parts, **own}


def record_report(tracker: Tracker, run_id: str, report: DataReport) -> None:
    """Write the findings of a validation into a run, with ids of failing rows."""
    tracker.record_json(run_id, {"ok": report.ok, **asdict(report)}, "validation.json")
    tracker.record_table(run_id, findings_table(report), f"validation/{report.digest}.json")


def findings_table(report: DataReport) -> list[dict[str, str]]:
    """Render findings as rows: the fault, its place, its number, and ids of failing rows."""
    return [
        {
            "severity": finding.severity,
            "table": finding.table,
            "message": finding.message,
            "failed": str(finding.failed),
            "failing_ids": ", ".join(finding.sample_ids),
            "expectation": f"{finding.expectation}({finding.column})",
        }
        for finding in report.findings
    ]


def record_qualification(tracker: Tracker, measured: Qualification, summary: Mapping[str, Any]) -> str:
    """Record figures, the summary that `summarise_qualification` gives, and every result; return the run's id."""
    whole = summary["kinds"][0]
    shares = {"judge/accuracy": "accuracy", "judge/false_accept_frac": "false_accepts", "judge/false_reject_frac": "false_rejects"}
    metrics = {
        **{name: whole[part]["count"] / max(1, whole[part]["n"]) for name, part in shares.items()},
        "judge/failed": whole["failed"],
        "judge/kappa_exact": summary["kappa_exact"],
        "judge/kappa_known": summary["kappa_known"],
        "time/judge_verdict_s": summary["verdict_s"],
    }
    words = {True: "right", False: "wrong", None: "none"}
    rows = [
        {**asdict(said), "known": words[said.known], "verdict": words[said.verdict], "exact": words[said.exact]}
        for said in measured.outcomes
    ]
    with tracker.run(JUDGE_STAGE, measured.key) as run_id:
        tracker.record_params(
            run_id, {"judge.model": measured.model, "judge.digest": measured.judge, "judge.prompt": measured.prompt_version}
        )
        tracker.record_metrics(run_id, metrics)
        tracker.record_json(run_id, summary, "judge.json")
        tracker.record_table(run_id, rows, f"judge/{measured.key}.json")
        tracker.set_tags(run_id, {"slmsearch.judge": measured.judge, "slmsearch.judge_passed": str(summary["passed"]).lower()})
    return run_id


def record_retrieval(tracker: Tracker, result: Mapping[str, Any], text: str) -> str:
    """Record metrics and tables of a retrieval report, by ranking and by form of the search, with the index key; return the run's id."""
    columns = {**result["retrievers"], **result["first_search"]["forms"]}
    metrics = {
        f"{name}/{metric}": of[metric] for name, of in columns.items() for metric in (*METRICS, "mrr", *SHOWN) if of.get(metric) is not None
    }
    key = content_key(stage=RETRIEVAL_STAGE, index=result["index_key"], questions=result["questions_key"])
    with tracker.run(RETRIEVAL_STAGE, key) as run_id:
        tracker.record_params(run_id, {"index": result["index_key"], "questions": result["n"], "split": result["split"]})
        tracker.record_metrics(run_id, metrics)
        tracker.record_json(run_id, result, "retrieval.json")
        tracker.record_text(run_id, text, "retrieval.txt")
        tracker.set_tags(run_id, {"slmsearch.index_key": result["index_key"]})
    return run_id
