"""Gold demonstrations of a start in parts: workers make and store them, and the start collects them.

    <evals_dir>/.shards/<key>/gold-<number>-of-<parts>.json     demonstrations of that part, complete or absent

A part is a shard of the training questions. When the start is trained, its parts are removed.
"""

from collections import Counter
from dataclasses import dataclass
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
"""Unit of a part: a process would take far longer to begin than for fewer questions."""
_STORED = TypeAdapter(Gold)


@dataclass(frozen=True, slots=True)
class GoldParts:
    """The gold demonstrations of a run's start, in parts of its training questions."""

    config: RunConfig
    digest: str
    """Corpus, which is stored."""

    def key(self) -> str | None:
        """Name the demonstrations by what decides them; None: the run has no start."""
        environment = environment_of(self.config)
        parts = environment.teaching(self.config).start_parts(self.digest)
        return None if parts is None else content_key(versions=[START_VERSION, EVALUATION_VERSION], of=environment.name, parts=parts)

    def shards(self) -> list[Shard]:
        """Return the parts: `evaluate.shards`, or fewer for few questions."""
        train = self.config.train
        questions = load_questions(self.config.paths.corpora, self.digest).get(train.split, [])
        return split_shards(len(select_questions(questions, train.limit)), LEAST_QUESTIONS, self.config.evaluate.shards)

    def load(self) -> Gold | None:
        """Return the whole; None if a part is missing or damaged."""
        if (key := self.key()) is None:
            return None
        try:
            stored = [_place(self.config.paths.evals, key, shard).read_bytes() for shard in self.shards()]
            parts = [_STORED.validate_json(text) for text in stored]
        except (OSError, ValueError):
            return None
        return [one for shown, _ in parts for one in shown], sum((left_out for _, left_out in parts), Counter())


def collect_gold(config: RunConfig, digest: str | None) -> Gold:
    """Return the gold demonstrations of a corpus, from the parts that workers made or made here."""
    found = GoldParts(config, digest).load() if digest and config.evaluate.shards > 1 else None
    return environment_of(config).teaching(config, digest).examples("gold") if found is None else found


def store_gold(made: GoldParts, index_key: str, key: str, shard: Shard) -> None:
    """Demonstrate a part on a stored index version, and store it.

    Raises:
        CorpusError, IndexUnusableError: the corpus or the index is missing or damaged.
    """
    teaching = environment_of(made.config).teaching(made.config, made.digest, index_key, (shard.start, shard.stop))
    path = _place(made.config.paths.evals, key, shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, _STORED.dump_json(teaching.examples("gold")).decode())


def has_gold(evals_dir: Path, key: str, shard: Shard) -> bool:
    """Return whether a part is stored."""
    return _place(evals_dir, key, shard).is_file()


def _place(evals_dir: Path, key: str, shard: Shard) -> Path:
    return shards_dir(evals_dir, key) / f"gold-{shard.name}.json"
