"""`slmsearch bench algorithms`: GRPO, RLOO and REINFORCE beside two controls, over several seeds on one world.

The controls are GRPO with a reward that knows nothing of the answer: `random`, and `format_only`, which pays every well-formed answer.
What they gain was not learnt from being right. Runs and evaluations are looked up where they are there.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from slmsearch.bench.learning import difference_over, evaluate_on, render_points, spread, with_settings
from slmsearch.bench.result import Say, render_table
from slmsearch.config import RunConfig
from slmsearch.environments.indexed_corpus import IndexedCorpus, open_indexed_corpus
from slmsearch.evaluate.policies import PolicySpec, parse_policy
from slmsearch.evaluate.store import Evaluation
from slmsearch.learn.job import make_job
from slmsearch.learn.launch import train
from slmsearch.learn.models import trained_policy

CONTROL = {"train.preflight": "record", "train.monitor.held_out": 0}
"""A control may have nothing to learn from, and must not be saved by a held-out reward that knows the answers."""
VARIANTS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "rloo": {"train.algorithm": "rloo"},
    "reinforce, baseline 0.5": {"train.algorithm": "reinforce"},
    "control: random reward": {"reward.kind": "random", **CONTROL},
    "control: format only": {"reward.kind": "format_only", **CONTROL},
}
"""Name -> settings that make it."""


def run_algorithms(config: RunConfig, seeds: Sequence[int], steps: int, say: Say) -> dict[str, Any]:
    """Train and evaluate every variant with every seed.

    Args:
        config: the run; algorithm, reward, seed and steps are replaced.
        seeds: at least one.
        steps: optimiser steps of each run.
        say: told what is being done.
    """
    indexed = open_indexed_corpus(config)
    start = evaluate_on(indexed, parse_policy("untrained", config.policy), config, say)
    rows = []
    for name, settings in VARIANTS.items():
        outcomes = []
        for seed in seeds:
            say(f"{name}, seed {seed}")
            varied = with_settings(config, {**settings, "train.seed": seed, "train.steps": steps})
            outcomes.append(_train_and_evaluate(varied, indexed, start, say))
        rows.append({"name": name, "seeds": outcomes, **spread([outcome["exact_match"] for outcome in outcomes])})
    return {"n": len(start.rows), "steps": steps, "start": start.metrics["answer/exact_match"], "variants": rows}


def _train_and_evaluate(config: RunConfig, indexed: IndexedCorpus, start: Evaluation, say: Say) -> dict[str, Any]:
    result = train(make_job(config, indexed.corpus_digest, indexed.index_key), lambda report: None)
    policy = trained_policy(config.policy, str(result.adapter_dir))
    # Evaluated by one reward, whatever was trained on: rows are compared by exact match alone.
    judged = config.model_copy(update={"reward": type(config.reward)()})
    after = evaluate_on(indexed, PolicySpec(Path(result.adapter_dir).parent.name, policy), judged, say)
    return {
        "seed": config.train.seed,
        "exact_match": after.metrics["answer/exact_match"],
        "tool_calls": after.metrics["episode/tool_calls"],
        "over_start": difference_over(start, after, config),
        "train_s": result.seconds,
    }


def render_algorithms(result: dict[str, Any]) -> str:
    """Render the result as Markdown."""
    rows = []
    for row in result["variants"]:
        each = "; ".join(render_points(outcome["over_start"]) for outcome in row["seeds"])
        calls = mean(outcome["tool_calls"] for outcome in row["seeds"])
        rows.append((row["name"], f"{row['mean']:.1%}", f"{row['stdev'] * 100:.1f}", each, f"{calls:.1f}"))
    headers = ("algorithm", "exact match, mean", "sd", "each seed: gain over the start [95 %]", "tool calls")
    return f"start: {result['start']:.1%} of {result['n']} questions; {result['steps']} steps each\n\n{render_table(headers, rows)}"
