"""Materialise and check what an environment is played on."""

from dataclasses import asdict
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.config import RunConfig
from slmsearch.corpus.documents.skipped import Skipped
from slmsearch.corpus.expectations import find_skipped
from slmsearch.corpus.store import read_manifest
from slmsearch.environments.registry import environment_of
from slmsearch.errors import CorpusError
from tasks.caching import cached
from tasks.paths import corpora_dir


class ValidationFailed(CorpusError):
    """The data have critical findings; what they are has been shown and recorded."""


@task(name="load-corpus", cache_policy=NO_CACHE)
def load_corpus_task(config: RunConfig) -> dict[str, Any]:
    """Materialise questions and splits, and pages, or find them; return digest, counts, and what was not taken of a folder, as findings."""
    skipped: list[Skipped] = []
    digest = environment_of(config).build_data(config, corpora_dir(config), skipped.append)
    manifest = read_manifest(corpora_dir(config) / digest)
    findings = [asdict(finding) for finding in find_skipped(skipped)]
    return {"digest": digest, "pages": manifest.pages, "questions": manifest.questions, "findings": findings}


@task(name="validate", **cached("config"))
def validate_task(digest: str, data_dir: str, code: str, config: RunConfig) -> dict[str, Any]:
    """Check the data and return what was found.

    Args:
        digest: data.
        data_dir: where they lie.
        code: digest of the code that checks.
        config: run.
    """
    return environment_of(config).check_data(corpora_dir(config), digest)
