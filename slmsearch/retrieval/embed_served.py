"""Embedding through an OpenAI-compatible `/v1/embeddings` endpoint (Ollama, llama.cpp, vLLM, or OpenAI's own).

No retries: they are the caller's business. Rankings are as reproducible as the server's answers.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from slmsearch.config import EmbedderConfig
from slmsearch.errors import EmbedderError
from slmsearch.foreign import without_credentials
from slmsearch.retrieval.embed import Embedder, Progress, Vectors, valid_text

TIMEOUT_S = 60.0
TEXTS_TOGETHER = 64
"""Texts of a request while an index is built; enough to keep a server busy, and few enough for its time limit."""


class ServedEmbedder(Embedder):
    """A model behind an endpoint."""

    def __init__(self, config: EmbedderConfig) -> None:
        super().__init__()
        self._config = config
        self._url = embeddings_url(config.base_url or "")
        self.id = f"openai:{config.model}"
        self.revision = "unversioned"

    @cached_property
    def dimension(self) -> int:
        """Length of a vector; asks the endpoint once."""
        return int(self._request(["dimension"]).shape[1])

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Encode passages, `TEXTS_TOGETHER` a request."""
        texts = [valid_text(text) for text in texts]
        parts: list[Vectors] = [np.zeros((0, self.dimension), dtype=np.float32)]
        for start in range(0, len(texts), TEXTS_TOGETHER):
            batch = texts[start : start + TEXTS_TOGETHER]
            parts.append(self._request(batch))
            if progress:
                progress(start + len(batch), len(texts))
        return np.concatenate(parts)

    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        # One request each: servers pad what comes together, and a query's vector must not depend on its neighbours.
        return np.concatenate([self._request([text]) for text in texts])

    def _request(self, texts: list[str]) -> Vectors:
        import httpx

        from slmsearch.http_client import make_client

        key = self._config.api_key.get_secret_value() if self._config.api_key else None
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = {"model": self._config.model, "input": texts, "encoding_format": "float"}
        try:
            with make_client(TIMEOUT_S) as client:
                response = client.post(self._url, json=body, headers=headers)
            response.raise_for_status()
            rows = response.json()["data"]
            vectors = _unit_vectors([row["embedding"] for row in sorted(rows, key=lambda row: row["index"])])
        except httpx.HTTPStatusError as error:
            detail = without_credentials(" ".join(error.response.text.split()), key)[:200]
            raise EmbedderError(f"embedder at {self._url} answered {error.response.status_code} ({detail}); check model and key") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EmbedderError(f"embedder at {self._url} cannot be reached ({error}); start the server or correct base_url") from error
        except (ValueError, KeyError, TypeError) as error:
            raise EmbedderError(f"embedder at {self._url} gave no embeddings ({error!r}); is it an OpenAI-compatible endpoint?") from error
        known = vars(self).get("dimension")  # None until the first answer
        if len(vectors) != len(texts) or known not in (None, vectors.shape[1]):
            shape = f"{vectors.shape[0]} vectors of {vectors.shape[1]} for {len(texts)} texts"
            raise EmbedderError(f"embedder at {self._url} gave {shape}; is {self._config.model!r} an embedding model?")
        return vectors


def embeddings_url(base_url: str) -> str:
    """Complete an endpoint's address: with or without `/v1`, with or without `/embeddings`."""
    base = base_url.rstrip("/")
    if base.endswith("/embeddings"):
        return base
    return f"{base}/embeddings" if base.endswith("/v1") else f"{base}/v1/embeddings"


def _unit_vectors(rows: list[Any]) -> Vectors:
    vectors: Vectors = np.asarray(rows, dtype=np.float32)
    if vectors.ndim != 2:
        raise ValueError("embeddings of unequal or no length")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths)) or not np.all(lengths > 0):
        raise ValueError("an embedding of zero or infinite length")
    return np.asarray(vectors / lengths, dtype=np.float32)
