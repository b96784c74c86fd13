"""The data of a policy: a corpus, materialised and checked, and its index version."""

from dataclasses import dataclass

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.config import PathsConfig, RetrievalConfig, RunConfig
from slmsearch.corpus.data_report import DataFinding, DataReport
from slmsearch.corpus.documents.skipped import Skipped
from slmsearch.corpus.expectations import find_skipped
from slmsearch.corpus.store import add_questions
from slmsearch.environments.registry import environment_of
from tasks.caching import cached
from tasks.child import in_child
from tasks.progress import Progress


@dataclass(frozen=True)
class Data:
    """Corpus and index version of a policy."""

    digest: str
    """Directory of the corpus."""
    index_key: str = ""
    """Key of the index version; empty if the environment has none."""


@task(name="load-corpus", cache_policy=NO_CACHE)
def load_corpus_task(config: RunConfig, pages: str | None = None) -> tuple[str, tuple[DataFinding, ...]]:
    """Materialise or find questions, splits and pages; return the digest, and the skipped files of a folder as findings.

    `pages` is the digest of a corpus that gives the pages: their source, which may have changed since, is not read again.
    """
    skipped: list[Skipped] = []
    if pages is not None:
        return add_questions(config.corpus, config.paths.corpora, pages, skipped), tuple(find_skipped(skipped))
    with Progress("corpus", "files") as progress:
        digest = environment_of(config).data(config).build(config.paths.corpora, skipped, progress)
    return digest, tuple(find_skipped(skipped))


@task(name="validate", **cached("config"))
def validate_task(digest: str, data_dir: str, code: str, config: RunConfig) -> DataReport:
    """Check the data and return the findings; the key of the stored result has the paths of the data and the code that checks."""
    return environment_of(config).data(config).check(config.paths.corpora, digest)


@task(name="build-index", **cached("digest", "paths", "retrieval", "current"))
def build_index_task(
    key: str, data_dir: str, code: str, digest: str, paths: PathsConfig, retrieval: RetrievalConfig, current: bool = True
) -> dict[str, str | float]:
    """Build the index version of a key, or find it complete, and point `CURRENT` to it if it is to be current.

    The key of the stored result has the directory of the version and the code that builds it.
    """
    from slmsearch.retrieval.build import build_index
    from slmsearch.retrieval.versions import read_version

    with Progress("index", "passages") as progress:
        built = in_child(build_index, paths.corpora / digest, paths.index, retrieval, progress=progress, current=current)
    manifest = read_version(paths.index, built)
    return {"key": built, "pages": manifest.pages, "passages": manifest.passages, "recall": manifest.recall}
