"""Evaluate policies and compare evaluations."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from prefect import task

from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_key, select_questions
from slmsearch.evaluate.shards import play_evaluation
from slmsearch.evaluate.store import has_evaluation, load_evaluation, load_rows
from tasks.caching import cached
from tasks.child import in_child
from tasks.paths import corpora_dir, evals_dir
from tasks.progress import Progress


@task(name="evaluate", task_run_name="evaluate-{name}", **cached("name", "policy", "digest", "index_key", "config", "plans_of", "night"))
def evaluate_task(
    key: str,
    data_dir: str,
    code: str,
    name: str,
    policy: PolicyConfig | None,
    digest: str,
    index_key: str,
    config: RunConfig,
    plans_of: str = "",
    night: str = "",
) -> dict[str, Any]:
    """Evaluate a policy, or look its evaluation up; return key, number of questions and metrics.

    Args:
        key: content key of the evaluation, as `name_evaluation` gives it.
        data_dir: where it is put.
        code: digest of the code that plays and grades.
        name: the policy's name in tables.
        policy: its model and adapter; None for baselines without a model.
        digest: corpus.
        index_key: index version.
        config: run.
        plans_of: for the control whose plans are another evaluation's.
        night: night it is played in, if any.
    """
    if not has_evaluation(evals_dir(config), key):
        with Progress(f"evaluate {name}", "questions") as progress:
            in_child(play_evaluation, PolicySpec(name, policy, plans_of, night), digest, index_key, config, progress=progress)
    stored = load_evaluation(evals_dir(config), key)
    return {"key": key, "n": len(stored.rows), "metrics": stored.metrics, "slices": stored.slices, "seconds": stored.seconds}


@task(name="compare", task_run_name="compare-{name}", persist_result=True, result_serializer="json")
def compare_task(name: str, before: str, after: str, config: RunConfig) -> dict[str, Any]:
    """Compare two stored evaluations question by question and decide.

    Args:
        name: what is compared.
        before: key of the first evaluation.
        after: key of the second.
        config: run.
    """
    from slmsearch.evaluate.compare import compare

    rows = [load_rows(evals_dir(config) / key) for key in (before, after)]
    return {**compare(rows[0], rows[1], config.decision).to_dict(), "before_key": before, "after_key": after}


def name_evaluation(spec: PolicySpec, digest: str, index_key: str, config: RunConfig) -> str:
    """Name the evaluation of a policy by what it is made from."""
    return eval_key(questions_of(digest, config), index_key, spec, config)


def questions_of(digest: str, config: RunConfig) -> Sequence[Question]:
    """Return the questions that a run evaluates on."""
    return select_questions(_load_questions(corpora_dir(config), digest), config.evaluate)


@lru_cache(maxsize=2)
def _load_questions(corpora: Path, digest: str) -> dict[str, list[Question]]:
    from slmsearch.corpus.store import load_questions

    return load_questions(corpora, digest)
