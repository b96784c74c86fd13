"""A corpus and its index, opened to be played on."""

from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from slmsearch.config import PathsConfig, RetrievalConfig, RunConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import build_corpus, load_questions, read_manifest, read_pages
from slmsearch.environments.searcher.tools import ProgramRunner, Toolbox
from slmsearch.errors import ConfigError
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.build import index_key as make_index_key
from slmsearch.retrieval.embed import Progress
from slmsearch.retrieval.search import open_index
from slmsearch.retrieval.versions import is_complete

PROGRAM_RUNNERS = "slmsearch.program_runners"
"""Entry points of functions `(config, corpus digest, index key) -> ProgramRunner`; the first one is taken."""


@dataclass(frozen=True, slots=True)
class IndexedCorpus:
    """A corpus with its index and tools, on which episodes are played."""

    corpus_digest: str
    index_key: str
    toolbox: Toolbox
    questions: dict[str, list[Question]]
    """Questions by split."""


def open_indexed_corpus(
    config: RunConfig, digest: str | None = None, index_key: str | None = None, progress: Progress | None = None, current: bool = True
) -> IndexedCorpus:
    """Open a corpus and its index; None builds or looks up the configured corpus, or its index version.

    `progress` receives the number of passages embedded and their total; `current` is that of `build_index`.
    """
    corpora_dir, index_dir = (Path(config.paths.data_dir) / name for name in ("corpora", "index"))
    digest = digest or build_corpus(config.corpus, corpora_dir)
    key = index_key or name_index(digest, config.paths, config.retrieval)
    if index_key is None and not is_complete(index_dir / key):
        build_index(corpora_dir / digest, index_dir, config.retrieval, progress, current=current)
    questions = load_questions(corpora_dir, digest)
    index = open_index(index_dir, key, config.retrieval)
    programs, limits = _open_programs(config, digest, key), config.searcher
    library = Library(read_pages(corpora_dir / digest))
    toolbox = Toolbox(library, index, config.retrieval.top_k, limits.max_section_chars, programs, limits.shows, limits.missing_names)
    return IndexedCorpus(digest, key, toolbox, questions)


def _open_programs(config: RunConfig, digest: str, key: str) -> ProgramRunner | None:
    """Return the runner of the policy's programs, from the entry points of `PROGRAM_RUNNERS`; None where the searcher writes none.

    Raises:
        ConfigError: no installed package provides one.
    """
    if not config.searcher.programs:
        return None
    for entry in entry_points(group=PROGRAM_RUNNERS):
        runner: ProgramRunner = entry.load()(config, digest, key)
        return runner
    raise ConfigError(
        f"searcher.programs needs a sandbox, and no installed package has the entry point {PROGRAM_RUNNERS}; reinstall slmsearch"
    )


def name_index(digest: str, paths: PathsConfig, retrieval: RetrievalConfig) -> str:
    """Name the index version of a corpus; loads no model."""
    return make_index_key(read_manifest(paths.corpora / digest).pages_digest, retrieval)
