"""Opening an index version for search."""

from pathlib import Path

from slmsearch.config import RetrievalConfig
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval import versions
from slmsearch.retrieval.build import chroma_place
from slmsearch.retrieval.embed import Embedder
from slmsearch.retrieval.embed_precision import same_space
from slmsearch.retrieval.embedders import load_embedder
from slmsearch.retrieval.search import SearchIndex


def open_index(index_dir: Path, key: str, config: RetrievalConfig, embedder: Embedder | None = None) -> SearchIndex:
    """Open a version for reading; it is not pruned while it is open.

    Args:
        key: as `build_index` returned it; `versions.current_key` gives the newest.
        embedder: takes the place of the configured one.

    Raises:
        IndexUnusableError: it is missing, damaged, or made by another embedder than the configured one.
        EmbedderError: the embedder is missing.
    """
    manifest = versions.read_version(index_dir, key)
    embedder = embedder or load_embedder(config.embedder)
    if manifest.embedder_id != embedder.id or not same_space(manifest.embedder_revision, embedder.revision):
        made, asked = f"{manifest.embedder_id}@{manifest.embedder_revision[:12]}", f"{embedder.id}@{embedder.revision[:12]}"
        raise IndexUnusableError(f"index version {key} was made by {made}, queries would be embedded by {asked}; {versions.REMEDY}")
    directory = index_dir / key
    if not versions.is_complete(directory):
        raise IndexUnusableError(f"index version {key} is damaged: its files do not match its manifest; delete it and {versions.REMEDY}")
    try:
        return SearchIndex(directory, manifest, embedder, chroma_place(directory, key, config), config.ranking)
    except OSError as error:
        raise IndexUnusableError(f"index version {key} cannot be read ({error}); {versions.REMEDY}") from error
