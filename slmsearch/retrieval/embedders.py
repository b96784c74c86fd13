"""The embedder that the settings name; its libraries are imported when it is made."""

from slmsearch.config import EmbedderConfig
from slmsearch.retrieval.embed import Embedder


def load_embedder(config: EmbedderConfig) -> Embedder:
    """Find the configured embedder.

    Raises:
        EmbedderError: the model is neither on disk nor to be had.
    """
    if config.base_url:
        from slmsearch.retrieval.embed_served import ServedEmbedder

        return ServedEmbedder(config)
    from slmsearch.retrieval.embed_local import LocalEmbedder

    return LocalEmbedder(config)
