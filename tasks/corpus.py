"""Materialise and check a corpus."""

from dataclasses import asdict
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.config import CorpusConfig, RunConfig
from slmsearch.corpus.documents.skipped import Skipped
from slmsearch.corpus.expectations import find_skipped
from slmsearch.corpus.store import build_corpus, read_manifest
from slmsearch.errors import CorpusError
from tasks.caching import cached
from tasks.paths import corpora_dir


class ValidationFailed(CorpusError):
    """The data have critical findings; what they are has been shown and recorded."""


@task(name="load-corpus", cache_policy=NO_CACHE)
def load_corpus_task(config: RunConfig) -> dict[str, Any]:
    """Materialise pages, questions and splits, or find them; return digest, counts, and what was not taken of a folder, as findings."""
    skipped: list[Skipped] = []
    digest = build_corpus(config.corpus, corpora_dir(config), skipped.append)
    manifest = read_manifest(corpora_dir(config) / digest)
    findings = [asdict(finding) for finding in find_skipped(skipped)]
    return {"digest": digest, "pages": manifest.pages, "questions": manifest.questions, "findings": findings}


@task(name="validate", **cached("config"))
def validate_task(digest: str, data_dir: str, code: str, config: RunConfig) -> dict[str, Any]:
    """Check a corpus with Great Expectations and return what was found.

    Args:
        digest: corpus.
        data_dir: where the corpus lies.
        code: digest of the code that checks.
        config: run.
    """
    from slmsearch.corpus.expectations import validate_corpus

    report = validate_corpus(corpora_dir(config) / digest)
    return asdict(report)


def is_remote(config: CorpusConfig) -> bool:
    """Say whether pages or questions come from the Hub."""
    return any(source is not None and source.startswith("hub:") for source in (config.pages, config.questions))
