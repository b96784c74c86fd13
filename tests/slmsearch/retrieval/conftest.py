"""A small corpus and an embedder that needs no model."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from slmsearch.artifacts.directories import remove_abandoned
from slmsearch.config import CorpusConfig, EmbedderConfig, RetrievalConfig
from slmsearch.corpus.store import build_corpus
from slmsearch.retrieval.embed import Embedder, Progress, Vectors
from slmsearch.retrieval.upkeep import remove_partial, remove_version
from slmsearch.retrieval.vectors import PARTIAL_PREFIX
from slmsearch.retrieval.versions import current_key


class HashEmbedder(Embedder):
    """Bag of words: each word is a fixed random direction."""

    def __init__(self, dimension: int = 32, name: str = "hash") -> None:
        super().__init__()
        self.id = name
        self.revision = f"d{dimension}"
        self.dimension = dimension
        self.texts_encoded = 0

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        self.texts_encoded += len(texts)
        if progress:
            progress(len(texts), len(texts))
        return np.stack([self._vector(text) for text in texts]).astype(np.float32)

    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        return self.encode(texts)

    def _vector(self, text: str) -> np.ndarray:
        total = np.full(self.dimension, 1e-3)
        for word in re.findall(r"\w+", text.lower()):
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
            total += np.random.default_rng(seed).normal(size=self.dimension)
        return total / np.linalg.norm(total)


def remove_others(index_dir: Path) -> None:
    """Remove every version but the current one, and what killed builds left."""
    remove_abandoned(index_dir)
    for path in sorted(index_dir.iterdir()):
        if path.is_dir() and path.name.startswith(PARTIAL_PREFIX):
            remove_partial(path)
        elif path.is_dir() and path.name != current_key(index_dir):
            remove_version(path, RetrievalConfig())


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture
def config() -> RetrievalConfig:
    # No test may reach for the real model by accident.
    return RetrievalConfig(embedder=EmbedderConfig(model="no/such-model"))


def page(name: str, *sections: tuple[str, str]) -> dict[str, str]:
    body = "".join(f"\n## {heading}\n\n{text}\n" for heading, text in sections)
    return {"id": name.lower().replace(" ", "_"), "title": name, "content": f"# {name}\n{body}"}


PAGES = [
    page("Lisbon", ("Rivers", "The Tagus meets the ocean."), ("Food", "Custard tarts with cinnamon.")),
    page("Porto", ("Rivers", "The Douro flows by."), ("Food", "Tripe and port wine.")),
    page("New Porto", ("History", "Settlers named it after home.")),
    page("Empty Page"),
]


@pytest.fixture
def corpora_dir(tmp_path: Path) -> Path:
    return tmp_path / "corpora"


@pytest.fixture
def corpus_dir(tmp_path: Path, corpora_dir: Path) -> Path:
    source = tmp_path / "pages.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in PAGES))
    return corpora_dir / build_corpus(CorpusConfig(pages=str(source)), corpora_dir)


@pytest.fixture
def index_dir(tmp_path: Path) -> Path:
    return tmp_path / "index"
