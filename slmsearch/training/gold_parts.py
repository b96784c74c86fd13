"""Gold demonstrations of the training questions in parts, which workers make and store; a start and its control find them.

<evals_dir>/.shards/<key>/gold-<number>-of-<parts>.json     demonstrations of that part, complete or absent
"""

from collections import Counter
from pathlib import Path

from pydantic import TypeAdapter

from slmsearch.artifacts.files import replace_text
from slmsearch.config import RunConfig
from slmsearch.environments.registry import environment_of
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.evaluate.shards import Shard, shards_dir, split_shards
from slmsearch.keys import content_key
from slmsearch.training.job import START_VERSION

Gold = tuple[list[Demonstration], Counter[str]]
"""Demonstrations, and the number of questions left out by reason."""
_STORED = TypeAdapter(Gold)


def gold_key(config: RunConfig, digest: str) -> str | None:
    """Name the gold demonstrations of a run by what decides them, as its start, its control and other seeds share them; None: no start."""
    parts = environment_of(config).teaching(config).start_parts(digest)
    return None if parts is None else content_key(version=START_VERSION, parts=parts)


def gold_shards(config: RunConfig) -> list[Shard]:
    """Return the parts of the training questions, as shards of one unit each."""
    return split_shards(config.evaluate.shards, 1, config.evaluate.shards)


def has_gold(config: RunConfig, key: str, shard: Shard) -> bool:
    """Return whether a part is stored."""
    return _place(config, key, shard).is_file()


def store_gold(config: RunConfig, digest: str, key: str, shard: Shard) -> None:
    """Demonstrate a part and store it.

    Raises:
        CorpusError, IndexUnusableError: the corpus or the index is missing or damaged.
    """
    found = environment_of(config).teaching(config, digest, (shard.number, shard.of)).examples("gold")
    path = _place(config, key, shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, _STORED.dump_json(found).decode())


def collect_gold(config: RunConfig, digest: str | None) -> Gold:
    """Return the gold demonstrations of a corpus, where `evaluate.shards` asks for workers from their parts; missing ones are made here."""
    key = gold_key(config, digest) if digest and config.evaluate.shards > 1 else None
    if digest is None or key is None:
        return environment_of(config).teaching(config, digest).examples("gold")
    found, left_out = list[Demonstration](), Counter[str]()
    for shard in gold_shards(config):
        path = _place(config, key, shard)
        try:
            shown, missed = _STORED.validate_json(path.read_bytes())
        except (OSError, ValueError):  # nobody has made it, or it is damaged
            store_gold(config, digest, key, shard)
            shown, missed = _STORED.validate_json(path.read_bytes())
        found += shown
        left_out += missed
    return found, left_out


def _place(config: RunConfig, key: str, shard: Shard) -> Path:
    return shards_dir(config.paths.evals, key) / f"gold-{shard.name}.json"
