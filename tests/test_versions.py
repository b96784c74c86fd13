"""Versions in content keys are raised with the code that they describe: `python -m tests.test_versions` records the code as it is.

A digest is of the syntax trees without docstrings: comments and formatting may change.
"""

import ast
import hashlib
import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORDED = Path(__file__).with_name("recorded_versions.json")
DESCRIBED = {
    "slmsearch.corpus.store:FORMAT_VERSION": ("corpus/store", "corpus/pages", "corpus/sections", "corpus/splits"),
    "slmsearch.evaluate.run:EVALUATION_VERSION": (
        "episodes/grade",
        "episodes/rows",
        "environments/searcher/baselines",
        "environments/searcher/failure_modes",
        "environments/searcher/reward",
        "environments/searcher/rollout",
        "environments/searcher/parsing",
        "environments/searcher/tools",
    ),
    "slmsearch.judge.exact:RULES_VERSION": ("judge/exact", "judge/typed", "judge/values"),
    "slmsearch.judge.llm:CACHE_VERSION": ("judge/prompt", "judge/reply"),
    "slmsearch.training.job:CONTROL_VERSION": ("environments/searcher/demonstrations", "training/teach", "training/own_episodes"),
    "slmsearch.training.job:TRAINING_VERSION": (
        "training/grpo",
        "training/grpo_settings",
        "training/rollout_bridge",
        "training/training_run",
    ),
    "slmsearch.training.job:START_VERSION": ("environments/searcher/demonstrations", "training/teach", "training/own_episodes"),
    "slmsearch.environments.planner.plan_prompt:PLAN_PROMPT_VERSION": ("environments/planner/plan_prompt",),
    "slmsearch.environments.planner.plan_reward:PLAN_RULES_VERSION": (
        "environments/planner/arithmetic",
        "environments/planner/numbers",
        "environments/planner/plan",
        "environments/planner/plan_reward",
        "environments/planner/planner_environment",
        "environments/planner/play",
        "environments/planner/worker",
    ),
    "slmsearch.environments.planner.problem_sources:PROBLEMS_VERSION": (
        "environments/planner/problems",
        "environments/planner/problem_sources",
    ),
    "slmsearch.retrieval.lexical:LEXICAL_VERSION": ("retrieval/lexical", "corpus/scripts"),
    "slmsearch.retrieval.passages:CHUNKER_VERSION": ("retrieval/passages",),
    "slmsearch.retrieval.ranking:RANKING_VERSION": ("retrieval/ranking", "retrieval/search"),
    "slmsearch.retrieval.versions:FORMAT_VERSION": ("retrieval/versions", "retrieval/vectors"),
    "slmsearch.extensions.sandbox.root:ROOT_VERSION": ("extensions/sandbox/root", "extensions/sandbox/runner"),
    "slmsearch.environments.searcher.prompt:PROMPT_VERSION": ("environments/searcher/prompt",),
}
"""Constant -> the modules whose change may change what is stored under it."""


def describe(name: str) -> dict[str, str | int]:
    """Return a version and the digest of the code that it describes."""
    module, _, constant = name.partition(":")
    digest = hashlib.sha256()
    for part in DESCRIBED[name]:
        tree = ast.parse((ROOT / "slmsearch" / f"{part}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [item for item in body if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))]  # type: ignore[attr-defined]
        digest.update(ast.dump(tree).encode())
    return {"version": getattr(importlib.import_module(module), constant), "code": digest.hexdigest()[:20]}


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_version_rises_with_the_code(name: str) -> None:
    was, now = json.loads(RECORDED.read_text(encoding="utf-8"))[name], describe(name)
    if was["version"] == now["version"]:
        assert was["code"] == now["code"], f"{', '.join(DESCRIBED[name])} changed: if results change, raise {name}; then record it"
    assert was == now, "a raised version is recorded: python -m tests.test_versions"


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({name: describe(name) for name in DESCRIBED}, indent=1) + "\n", encoding="utf-8")
