"""Build an index version and make it the current one."""

from typing import Any

from prefect import task

from slmsearch.config import RunConfig
from tasks.caching import cached
from tasks.child import in_child
from tasks.paths import corpora_dir, index_dir
from tasks.progress import Progress


@task(name="build-index", **cached("digest", "config", "current"))
def build_index_task(key: str, data_dir: str, code: str, digest: str, config: RunConfig, current: bool = True) -> dict[str, Any]:
    """Build the index version of a key, or find it complete, and point `CURRENT` to it.

    Args:
        key: index version, as `Environment.index_key` gives it.
        data_dir: where it is put.
        code: digest of the code that builds it.
        digest: corpus.
        config: run.
        current: point `CURRENT` to it.

    Returns:
        Key, number of pages and passages, recall of Chroma's approximate search.
    """
    from slmsearch.retrieval.build import build_index
    from slmsearch.retrieval.versions import read_version

    with Progress("index", "passages") as progress:
        folders = corpora_dir(config) / digest, index_dir(config)
        built = in_child(build_index, *folders, config.retrieval, progress=progress, current=current)
    manifest = read_version(index_dir(config), built)
    return {"key": built, "pages": manifest.pages, "passages": manifest.passages, "recall": manifest.recall}
