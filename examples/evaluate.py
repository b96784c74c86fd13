"""Evaluate two policies without a model on the same questions and compare them: python examples/evaluate.py"""

from pathlib import Path

from slmsearch import PolicySpec, RunConfig, SearcherEnvironment, compare, evaluate_policy, open_environment
from slmsearch.corpus.store import load_questions

config = RunConfig().changed({"corpus.world.pages": 40, "paths.data_dir": str(Path("data").resolve())})
digest = SearcherEnvironment.data(config).build(config.paths.corpora)
questions = load_questions(config.paths.corpora, digest)["train"][:50]
environment = open_environment(config, digest)
rows = {name: evaluate_policy(questions, environment, PolicySpec(name, None)).rows for name in ("random", "retrieve-then-answer")}
found = compare(rows["random"], rows["retrieve-then-answer"], config.decision)
print(f"random {found.before:.2f}, one search {found.after:.2f}: {found.decision}, {found.reason}")
