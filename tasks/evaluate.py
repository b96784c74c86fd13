"""Evaluate policies and compare evaluations."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from prefect import task

from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.evaluate.plan_policies import evaluate_plans
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_key, eval_sources, evaluate_policy, select_questions
from slmsearch.evaluate.store import has_evaluation, load_evaluation, load_rows, write_evaluation
from slmsearch.sandbox.client import make_programs
from slmsearch.searcher.tools import Toolbox
from tasks.caching import cached
from tasks.places import corpora_dir, evals_dir, index_dir
from tasks.progress import Progress


@task(name="evaluate", task_run_name="evaluate-{name}", **cached("name", "policy", "digest", "index_key", "config", "plans_of"))
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
    """
    spec, questions = PolicySpec(name, policy, plans_of), questions_of(digest, config)
    if not has_evaluation(evals_dir(config), key):
        with Progress(f"evaluate {name}", "questions") as progress:
            if config.system == "planner":
                evaluation = evaluate_plans(questions, spec, config, evals_dir(config), progress)
            else:
                evaluation = evaluate_policy(questions, open_toolbox(digest, index_key, config), spec, config, progress)
        write_evaluation(evals_dir(config), key, evaluation, eval_sources(questions, index_key, spec, config), digest)
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
    return select_questions(_open_corpus(str(corpora_dir(config)), digest).questions, config.evaluate)


@lru_cache(maxsize=2)
def _open_corpus(corpora: str, digest: str) -> Any:
    from pathlib import Path

    from slmsearch.corpus.store import load_corpus

    return load_corpus(Path(corpora), digest)


@lru_cache(maxsize=1)
def open_toolbox(digest: str, index_key: str, config: RunConfig) -> Toolbox:
    """Open corpus and index for playing; kept, because a run plays many policies over the same."""
    from slmsearch.retrieval.open import open_index

    library = _open_corpus(str(corpora_dir(config)), digest).library
    index = open_index(index_dir(config), index_key, config.retrieval)
    programs = make_programs(config, digest, index_key)
    return Toolbox(library, index, config.retrieval.top_k, config.searcher.max_section_chars, programs, config.searcher.section_hints)
