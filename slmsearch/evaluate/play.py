"""Play an evaluation, or a shard of it, on what is stored under the data directory, and store it there.

All of it goes by keys and paths, so that another process can do it: whoever wants the evaluation needs no model.
"""

from pathlib import Path

from slmsearch.config import RunConfig
from slmsearch.corpus.store import load_questions
from slmsearch.environments.registry import environment_of
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import Progress, eval_sources, evaluate_policy, select_questions
from slmsearch.evaluate.shards import Shard, write_shard
from slmsearch.evaluate.store import write_evaluation


def play_evaluation(
    key: str,
    spec: PolicySpec,
    digest: str,
    index_key: str,
    config: RunConfig,
    shard: Shard | None = None,
    progress: Progress | None = None,
) -> None:
    """Play and store an evaluation.

    Args:
        key: content key of the whole evaluation.
        spec: policy.
        digest: corpus.
        index_key: index version; empty where there is none.
        config: run.
        shard: the part of the questions to play; None plays all.
        progress: told after each batch.

    Raises:
        ModelError, EvaluationError: as for `evaluate_policy`.
        CorpusError, IndexUnusableError: what is played on is missing or damaged.
    """
    data_dir = Path(config.paths.data_dir)
    evals_dir, corpora_dir = data_dir / "evals", data_dir / "corpora"
    questions = select_questions(load_questions(corpora_dir, digest), config.evaluate)
    part, total = (questions, None) if shard is None else (shard.take(questions), len(questions))
    environment = environment_of(config).open(config, digest, index_key)
    played = evaluate_policy(part, environment, spec, progress, total)
    sources = eval_sources(questions, index_key, spec, config)
    if shard is None:
        write_evaluation(evals_dir, key, played, sources, digest)
    else:
        write_shard(evals_dir, key, shard, played, sources, digest)
