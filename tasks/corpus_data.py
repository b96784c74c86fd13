"""What a policy plays on: a corpus, materialised and checked, and the index version of it."""

from dataclasses import asdict, dataclass
from typing import TypedDict, cast

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.config import RunConfig
from slmsearch.corpus.documents.skipped import Skipped
from slmsearch.corpus.expectations import find_skipped
from slmsearch.environments.registry import environment_of
from slmsearch.errors import CorpusError
from tasks.caching import cached
from tasks.child import in_child
from tasks.progress import Progress


@dataclass(frozen=True)
class Data:
    """What a policy plays on."""

    digest: str
    """Of the corpus."""
    index_key: str = ""
    """Index version; empty where the environment has none."""


class FoundRow(TypedDict):
    """A `Finding` as a task's stored result has it."""

    expectation: str
    table: str
    column: str
    severity: str
    failed: int
    sample_ids: list[str]
    message: str


class Report(TypedDict, total=False):
    """What is known of data."""

    digest: str
    ok: bool
    findings: list[FoundRow]


class ValidationFailed(CorpusError):
    """The data have critical findings; what they are has been shown and recorded."""


@task(name="load-corpus", cache_policy=NO_CACHE)
def load_corpus_task(config: RunConfig) -> Report:
    """Materialise questions and splits, and pages, or find them; return the digest, and what was not taken of a folder, as findings."""
    skipped: list[Skipped] = []
    with Progress("corpus", "files") as progress:
        digest = environment_of(config).data.build(config, config.paths.corpora, skipped, progress)
    return {"digest": digest, "findings": [cast("FoundRow", asdict(finding)) for finding in find_skipped(skipped)]}


@task(name="validate", **cached("config"))
def validate_task(digest: str, data_dir: str, code: str, config: RunConfig) -> Report:
    """Check the data and return what was found; the key of the stored result holds where they lie and the code that checks."""
    return cast("Report", environment_of(config).data.check(config.paths.corpora, digest))


@task(name="build-index", **cached("digest", "config", "current"))
def build_index_task(key: str, data_dir: str, code: str, digest: str, config: RunConfig, current: bool = True) -> dict[str, str | float]:
    """Build the index version of a key, or find it complete, and point `CURRENT` to it where it is to be current.

    The key of the stored result holds where the version is put and the code that builds it.
    """
    from slmsearch.retrieval.build import build_index
    from slmsearch.retrieval.versions import read_version

    with Progress("index", "passages") as progress:
        folders = config.paths.corpora / digest, config.paths.index
        built = in_child(build_index, *folders, config.retrieval, progress=progress, current=current)
    manifest = read_version(config.paths.index, built)
    return {"key": built, "pages": manifest.pages, "passages": manifest.passages, "recall": manifest.recall}
