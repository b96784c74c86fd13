"""The bench builds, compares and counts right, on a small scale and with vectors that need no model; how fast, no test says."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromadb.api.types import EmbeddingFunction

from slmsearch.bench import index as bench
from slmsearch.bench.index import choose_passages, render_index, run_index
from slmsearch.config import CorpusConfig, EmbedderConfig, RetrievalConfig, RunConfig, WorldConfig
from slmsearch.errors import CorpusError, EmbedderError

CONFIG = RunConfig(corpus=CorpusConfig(world=WorldConfig(pages=60)))


def vector(text: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    values = np.random.default_rng(seed).normal(size=16)
    return (values / np.linalg.norm(values)).astype(np.float32)


class FakeEmbedder:
    id, revision, dimension = "fake", "1+bfloat16", 16

    def encode(self, texts: Sequence[str], progress: Any = None) -> np.ndarray:
        return np.stack([vector(text) for text in texts])

    encode_queries = encode


class FakePeer(EmbeddingFunction[Any]):
    """The same vectors, not of unit length."""

    def __init__(self) -> None:
        pass

    def __call__(self, input: Sequence[str]) -> Any:
        return [3 * vector(text) for text in input]

    @staticmethod
    def name() -> str:
        return "fake"

    def get_config(self) -> dict[str, Any]:
        return {}


def test_both_sides_are_timed_and_compared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "load_embedder", lambda config: FakeEmbedder())
    monkeypatch.setattr(bench, "make_peer", lambda config: FakePeer())
    monkeypatch.setattr(bench, "PEER_BATCH", 70)
    said: list[str] = []
    result = run_index(CONFIG, 100, 2, said.append)
    assert result["sections"] == 100 and len(said) == 3
    assert all(result[side]["sections_per_s"]["low"] <= result[side]["sections_per_s"]["high"] for side in ("ours", "peer"))
    assert result["cosine"]["min"] == pytest.approx(1) and result["same_bits"]
    text = render_index(result)
    assert "100 sections" in text and "in bfloat16" in text and ">= 3" in text and "same bits: yes" in text


def test_sections_are_spread_over_the_corpus():
    everything, some = choose_passages(CONFIG, 10_000), choose_passages(CONFIG, 100)
    assert len(everything) > 200 and len(some) == 100
    assert len({passage.page_id for passage in some}) < len({passage.page_id for passage in everything}) / 2
    assert {passage.page_id for passage in some} - {passage.page_id for passage in everything[:200]}


def test_a_corpus_of_bare_titles_is_refused(tmp_path: Path):
    (tmp_path / "pages.jsonl").write_text('{"id": "a", "title": "A", "content": "# A"}\n')
    with pytest.raises(CorpusError, match="no sections"):
        choose_passages(CONFIG.model_copy(update={"corpus": CorpusConfig(pages=str(tmp_path / "pages.jsonl"))}), 10)


def test_an_endpoint_is_refused():
    served = EmbedderConfig(base_url="http://127.0.0.1:1")
    with pytest.raises(EmbedderError, match="compares local models"):
        run_index(RunConfig(retrieval=RetrievalConfig(embedder=served)), 100, 1, print)
