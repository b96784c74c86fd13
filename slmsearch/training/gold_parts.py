"""Gold demonstrations of a start in parts: workers make and store them, and the start collects them.

    <evals_dir>/.shards/<key>/gold-<number>-of-<parts>.json     demonstrations of that part, complete or absent

A part is a shard of the training questions. When the start is trained, its parts are removed.
"""

from collections import Counter
from pathlib import Path

from pydantic import TypeAdapter

from slmsearch.artifacts.files import replace_text
from slmsearch.config import RunConfig
from slmsearch.corpus.store import load_questions
from slmsearch.environments.registry import environment_of
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.teaching import select_questions
from slmsearch.evaluate.run import EVALUATION_VERSION
from slmsearch.evaluate.shards import Shard, shards_dir, split_shards
from slmsearch.keys import content_key
from slmsearch.training.job import START_VERSION

Gold = tuple[list[Demonstration], Counter[str]]
"""Demonstrations, and the number of questions left out by reason."""
LEAST_QUESTIONS = 32
"""Unit of a part: to open corpus and index takes as long as to demonstrate some hundreds."""
_STORED = TypeAdapter(Gold)


def gold_key(config: RunConfig, digest: str) -> str | None:
    """Name the gold demonstrations of a start by what decides them; None: the run has no start."""
    environment = environment_of(config)
    parts = environment.teaching(config).start_parts(digest)
    return None if parts is None else content_key(versions=[START_VERSION, EVALUATION_VERSION], of=environment.name, parts=parts)


def gold_shards(config: RunConfig, digest: str) -> list[Shard]:
    """Return the parts of the training questions of a stored corpus: `evaluate.shards`, or fewer for few questions."""
    questions = load_questions(config.paths.corpora, digest).get(config.train.split, [])
    return split_shards(len(select_questions(questions, config.train.limit)), LEAST_QUESTIONS, config.evaluate.shards)


def has_gold(config: RunConfig, key: str, shard: Shard) -> bool:
    """Return whether a part is stored."""
    return _place(config, key, shard).is_file()


def store_gold(config: RunConfig, digest: str, index_key: str, key: str, shard: Shard) -> None:
    """Demonstrate a part on a stored corpus and index version, and store it.

    Raises:
        CorpusError, IndexUnusableError: the corpus or the index is missing or damaged.
    """
    found = environment_of(config).teaching(config, digest, index_key, (shard.start, shard.stop)).examples("gold")
    path = _place(config, key, shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, _STORED.dump_json(found).decode())


def collect_gold(config: RunConfig, digest: str | None) -> Gold:
    """Return the gold demonstrations of a corpus from their parts, or made here if a part is missing or damaged."""
    if digest and config.evaluate.shards > 1 and (key := gold_key(config, digest)):
        try:
            stored = [_place(config, key, shard).read_bytes() for shard in gold_shards(config, digest)]
            parts = [_STORED.validate_json(text) for text in stored]
        except (OSError, ValueError):
            parts = []
        if parts:
            return [one for shown, _ in parts for one in shown], sum((left_out for _, left_out in parts), Counter())
    return environment_of(config).teaching(config, digest).examples("gold")


def _place(config: RunConfig, key: str, shard: Shard) -> Path:
    return shards_dir(config.paths.evals, key) / f"gold-{shard.name}.json"
