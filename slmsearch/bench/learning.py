"""What reinforcement learning adds: GRPO over several seeds beside its controls, on one world and on a fresh one.

    start        the checkpoint GRPO starts from
    grpo         trained by GRPO, one run a seed
    sft          supervised training continued from the same checkpoint with the same reader's demonstrations, at least as long
    clean sft    a model trained from scratch on the expert reader's demonstrations, as long as checkpoint and GRPO together

All play the same test questions with the same index. Controls and evaluations are looked up if they are there; GRPO runs
are trained or looked up by their train key. The table in docs/results.md is what `slmsearch bench learning` prints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from slmsearch.bench.result import Say, render_table
from slmsearch.config import RunConfig
from slmsearch.environments.indexed_corpus import IndexedCorpus, open_indexed_corpus
from slmsearch.environments.rows import EpisodeRow
from slmsearch.environments.searcher import SearcherEnvironment
from slmsearch.evaluate.compare import compare
from slmsearch.evaluate.policies import PolicySpec, parse_policy
from slmsearch.evaluate.run import eval_key, eval_sources, evaluate_policy, select_questions
from slmsearch.evaluate.store import Evaluation, has_evaluation, load_evaluation, write_evaluation
from slmsearch.judge import make_judge
from slmsearch.learn.control import control_key, train_control
from slmsearch.learn.job import make_job
from slmsearch.learn.launch import train
from slmsearch.learn.models import model_hash, trained_policy

FRESH_WORLD = 1000
"""Added to the world's seed for the fresh world: other names, facts and wording."""


@dataclass(frozen=True, slots=True)
class Row:
    """One policy's figures on one world."""

    policy: str
    n: int
    exact_match: float
    two_hop: float
    tool_calls: float
    train_s: float | None
    """Seconds its training took, None for what was not trained here."""


def run_learning(config: RunConfig, seeds: Sequence[int], clean_model: str | None, say: Say) -> dict[str, Any]:
    """Train and evaluate everything; return rows, their spread and the paired differences that carry the claims.

    Args:
        config: the run; `train.seed` is replaced by each seed in turn.
        seeds: at least one seed of GRPO.
        clean_model: path of the model trained on the expert reader; None leaves that row out.
        say: told what is being done.
    """
    indexed = open_indexed_corpus(config)
    fresh = open_indexed_corpus(with_settings(config, {"corpus.world.seed": config.corpus.world.seed + FRESH_WORLD}))
    start = evaluate_on(indexed, parse_policy("untrained", config.policy), config, say)
    rows = [_row("start", start, None)]
    sft, sft_seconds = _control(indexed, config, say)
    clean = evaluate_on(indexed, parse_policy(clean_model, config.policy), config, say) if clean_model else None
    results = []
    for seed in seeds:
        seeded = with_settings(config, {"train.seed": seed})
        job = make_job(seeded, indexed.corpus_digest, indexed.index_key)
        say(f"GRPO with seed {seed}: {config.train.steps} steps")
        result = train(job, lambda report: say(f"  step {report.step}: exact match {report.metrics.get('answer/exact_match', 0):.2f}"))
        spec = PolicySpec(f"grpo-seed-{seed}", trained_policy(seeded.policy, str(result.adapter_dir)))
        after, elsewhere = evaluate_on(indexed, spec, seeded, say), evaluate_on(fresh, spec, seeded, say)
        rows += [_row(f"grpo, seed {seed}", after, result.seconds), _row(f"grpo, seed {seed}, fresh world", elsewhere, None)]
        results.append(
            {
                "seed": seed,
                "adapter_hash": result.adapter_hash,
                "over_start": difference_over(start, after, config),
                "over_sft": difference_over(sft, after, config),
                "over_clean_sft": difference_over(clean, after, config) if clean else None,
            }
        )
    rows.append(_row("sft continued", sft, sft_seconds))
    if clean:
        rows.append(_row("clean sft, equal compute", clean, None))
    scores = [row.exact_match for row in rows if row.policy in {f"grpo, seed {seed}" for seed in seeds}]
    return {"rows": [asdict(row) for row in rows], "grpo": spread(scores), "seeds": results}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return mean and standard deviation; 0 for that of one value."""
    return {"mean": mean(values), "stdev": stdev(values) if len(values) > 1 else 0.0}


def render_learning(result: dict[str, Any]) -> str:
    """Render the result as Markdown."""
    rows = [
        (row["policy"], str(row["n"]), f"{row['exact_match']:.1%}", f"{row['two_hop']:.1%}", f"{row['tool_calls']:.2f}",
         "" if row["train_s"] is None else f"{row['train_s'] / 60:.1f} min")
        for row in result["rows"]
    ]  # fmt: skip
    policies = render_table(("policy", "questions", "exact match", "two-hop", "tool calls", "training"), rows)
    gains = [
        (str(seed["seed"]), *(render_points(seed[f"over_{name}"]) for name in ("start", "sft", "clean_sft"))) for seed in result["seeds"]
    ]
    differences = render_table(("seed", "GRPO - start", "GRPO - SFT continued", "GRPO - clean SFT"), gains)
    whole = result["grpo"]
    return f"{policies}\n\n{differences}\n\nGRPO over the seeds: {whole['mean']:.1%}, standard deviation {whole['stdev'] * 100:.1f} points."


def render_points(difference: dict[str, float] | None) -> str:
    """Render a difference of shares with its interval, in percentage points."""
    if difference is None:
        return "not measured"
    return f"{difference['mean'] * 100:+.1f} [{difference['low'] * 100:+.1f}, {difference['high'] * 100:+.1f}]"


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Replace settings by their dotted names."""
    values = config.model_dump()
    for name, value in settings.items():
        section = values
        *path, leaf = name.split(".")
        for part in path:
            section = section[part]
        section[leaf] = value
    return RunConfig.model_validate(values)


def evaluate_on(indexed: IndexedCorpus, spec: PolicySpec, config: RunConfig, say: Say) -> Evaluation:
    """Evaluate a policy, or look its evaluation up."""
    evals_dir = Path(config.paths.data_dir) / "evals"
    questions = select_questions(indexed.questions, config.evaluate)
    key = eval_key(questions, indexed.index_key, spec, config)
    if not has_evaluation(evals_dir, key):
        say(f"evaluating {spec.name} on {len(questions)} questions")
        environment = SearcherEnvironment(indexed.toolbox, make_judge(config.judge, config.paths.data_dir), config)
        evaluation = evaluate_policy(questions, environment, spec)
        write_evaluation(evals_dir, key, evaluation, eval_sources(questions, indexed.index_key, spec, config))
    return load_evaluation(evals_dir, key)


def _control(indexed: IndexedCorpus, config: RunConfig, say: Say) -> tuple[Evaluation, float]:
    out = Path(config.paths.data_dir) / "training" / f"control-{control_key(config, model_hash(config.policy.model))}"
    say(f"continuing SFT for {config.control.steps} steps")
    facts = train_control(config, out)
    spec = PolicySpec("sft", config.policy.model_copy(update={"model": str(out), "adapter": None}))
    return evaluate_on(indexed, spec, config, say), float(facts["seconds"])


def _row(policy: str, evaluation: Evaluation, seconds: float | None) -> Row:
    metrics = evaluation.metrics
    two_hop = evaluation.slices.get("kind=two_hop", {}).get("answer/exact_match", float("nan"))
    return Row(policy, len(evaluation.rows), metrics["answer/exact_match"], two_hop, metrics["episode/tool_calls"], seconds)


def difference_over(before: Evaluation, after: Evaluation, config: RunConfig) -> dict[str, float]:
    """Compare two evaluations question by question: mean difference, interval, p."""
    pair: tuple[Sequence[EpisodeRow], Sequence[EpisodeRow]] = (before.rows, after.rows)
    return asdict(compare(*pair, config.decision).difference)
