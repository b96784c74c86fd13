"""Evaluate policies and compare evaluations."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from prefect import task

from slmsearch.config import DecisionConfig, EvaluateConfig, PathsConfig, RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import select_questions
from slmsearch.evaluate.shards import EvaluationTarget, play_evaluation
from slmsearch.evaluate.store import has_evaluation, load_evaluation, load_rows
from tasks.caching import cached
from tasks.child import in_child
from tasks.corpus_data import Data
from tasks.progress import Progress


class Evaluated(TypedDict):
    """A stored evaluation."""

    key: str
    n: int
    metrics: dict[str, float]
    slices: dict[str, dict[str, float]]
    seconds: float
    trust: NotRequired[dict[str, dict[str, dict[str, float]]]]
    """Trust measures as measure -> slice -> share, see `measure_trust`."""


class Compared(TypedDict):
    """Fields of a `Comparison` that flows read; the dict holds all of its fields."""

    n: int
    metric: str
    before: float
    after: float
    difference: dict[str, float]
    decision: str
    reason: str
    slices: list[dict[str, object]]


@task(name="evaluate", task_run_name="evaluate-{spec.name}", **cached("spec", "data", "config"))
def evaluate_task(key: str, data_dir: str, code: str, spec: PolicySpec, data: Data, config: RunConfig) -> Evaluated:
    """Evaluate a policy, or look its evaluation up by its content key (`eval_key`).

    The key of the stored result has the directory of the evaluation and the code that plays and grades.
    """
    if not has_evaluation(config.paths.evals, key):
        with Progress(f"evaluate {spec.name}", "questions") as progress:
            in_child(play_evaluation, EvaluationTarget(key), spec, data.digest, data.index_key, config, progress=progress)
    stored = load_evaluation(config.paths.evals, key)
    return {"key": key, "n": len(stored.rows), "metrics": stored.metrics, "slices": stored.slices, "seconds": stored.seconds}


@task(name="compare", task_run_name="compare-{name}", persist_result=True, result_serializer="json")
def compare_task(name: str, before: str, after: str, evals: Path, decision: DecisionConfig, shared: bool = False) -> Compared:
    """Compare two evaluations, by their keys, question by question and decide; the name is that of the task run.

    `shared` limits the comparison to the questions that both have.
    """
    from slmsearch.evaluate.compare import compare, shared_rows

    rows = load_rows(evals / before), load_rows(evals / after)
    if shared:
        rows = shared_rows(*rows)
    return cast("Compared", {**compare(rows[0], rows[1], decision).to_dict(), "before_key": before, "after_key": after})


@task(name="trust", task_run_name="trust-{name}", persist_result=True, result_serializer="json")
def trust_task(
    name: str, whole: str, others: dict[str, str], evals: Path, decision: DecisionConfig
) -> dict[str, dict[str, dict[str, float]]]:
    """Measure the trust of a policy from evaluations on twins and of repeated episodes; the name is that of the task run."""
    from slmsearch.evaluate.trust import measure_trust

    rows = {play: load_rows(evals / key) for play, key in others.items()}
    found = measure_trust(load_rows(evals / whole), rows, decision)
    return {measure: {part: asdict(share) for part, share in slices.items()} for measure, slices in found.items()}


def questions_of(digest: str, paths: PathsConfig, evaluate: EvaluateConfig) -> Sequence[Question]:
    """Return the questions that a run evaluates."""
    return select_questions(_load_questions(paths.corpora, digest), evaluate)


@lru_cache(maxsize=2)
def _load_questions(corpora: Path, digest: str) -> dict[str, list[Question]]:
    from slmsearch.corpus.store import load_questions

    return load_questions(corpora, digest)
