"""A corpus and its index, opened to be played on."""

from dataclasses import dataclass
from pathlib import Path

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import build_corpus, load_corpus
from slmsearch.evaluate.environments import Environment, SearcherEnvironment, make_planner
from slmsearch.judge import make_judge
from slmsearch.planner.sources import build_problems
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.open import open_index
from slmsearch.sandbox.client import make_programs
from slmsearch.searcher.tools import Toolbox


@dataclass(frozen=True, slots=True)
class IndexedCorpus:
    """What an episode is played on."""

    corpus_digest: str
    index_key: str
    toolbox: Toolbox
    questions: dict[str, list[Question]]
    """By split."""


def build_indexed_corpus(config: RunConfig) -> IndexedCorpus:
    """Build, or look up, the configured corpus and its index, and open them."""
    data_dir = Path(config.paths.data_dir)
    digest = build_corpus(config.corpus, data_dir / "corpora")
    key = build_index(data_dir / "corpora" / digest, data_dir / "index", config.retrieval)
    return open_indexed_corpus(data_dir / "corpora", digest, data_dir / "index", key, config)


def open_indexed_corpus(corpora_dir: Path, digest: str, index_dir: Path, index_key: str, config: RunConfig) -> IndexedCorpus:
    """Open a corpus and an index version that are there.

    Args:
        corpora_dir: directory of corpora.
        digest: corpus.
        index_dir: directory of index versions.
        index_key: version.
        config: retrieval and the length of what is shown.
    """
    corpus = load_corpus(corpora_dir, digest)
    index = open_index(index_dir, index_key, config.retrieval)
    programs, limits = make_programs(config, digest, index_key), config.searcher
    toolbox = Toolbox(corpus.library, index, config.retrieval.top_k, limits.max_section_chars, programs, limits.section_hints)
    return IndexedCorpus(digest, index_key, toolbox, corpus.questions)


Questions = dict[str, list[Question]]
"""By split."""


def make_environment(config: RunConfig) -> tuple[Environment, Questions]:
    """Build, or look up, what the configured environment plays on, and open it."""
    if config.environment == "planner":
        corpora_dir = Path(config.paths.data_dir) / "corpora"
        return make_planner(config), load_corpus(corpora_dir, build_problems(config.planner, corpora_dir)).questions
    indexed = build_indexed_corpus(config)
    return SearcherEnvironment(indexed.toolbox, make_judge(config.judge, config.paths.data_dir), config), indexed.questions


def open_environment(corpora_dir: Path, digest: str, index_dir: Path, index_key: str, config: RunConfig) -> tuple[Environment, Questions]:
    """Open what the configured environment plays on; see `open_indexed_corpus`. A planner's problems have no index."""
    if config.environment == "planner":
        return make_planner(config), load_corpus(corpora_dir, digest).questions
    indexed = open_indexed_corpus(corpora_dir, digest, index_dir, index_key, config)
    return SearcherEnvironment(indexed.toolbox, make_judge(config.judge, config.paths.data_dir), config), indexed.questions
