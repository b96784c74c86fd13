"""Encoding many passages with a sentence-transformers model, fast and to the same bits in any company.

Tokens are counted first. Passages of about the same number of tokens are encoded together, in batches whose shape depends on
that number alone: so many rows, padded to so many tokens, the last batch of a length filled up with repeats. Nothing else
decides a vector's bits, so a build that was killed and goes on, or one that adds a page to many, ends with the same vectors.

Measured with all-MiniLM-L6-v2 on one thread of a processor with AMX, busy with other work (best of several passes): in bfloat16 the
matrix products of plain torch reach 800 to 1,000 GFLOP/s where float32 reaches 100, and the whole model is three to five times
faster. Weights packed in advance or transposed gained nothing steady, nor did batches of more than 1,024 tokens. Filling up is no
luxury: in bfloat16 a batch of fewer than some 300 tokens differs from a larger one by 1e-3 in a component of the bare vector.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from slmsearch.retrieval.embed import Progress, Vectors
from slmsearch.retrieval.embed_precision import Precision

TOKENS_PER_TEXT = 16
"""Tokens encoded together for each text of `batch_size`; 1,024 at its default, which keeps activations in the cache."""
GPU_FACTOR = 32
"""A GPU takes so many times more tokens together."""
TOKENIZED_TOGETHER = 2_048
"""Texts tokenised at a time."""
MAX_CHUNK = 16_384
"""Texts sorted by length at a time; bounds the memory for tokens, about 1 kB a text of 256."""
LEAST_STEP = 4
STEPS_PER_OCTAVE = 8


TokenIds: TypeAlias = NDArray[np.int32]
Batch: TypeAlias = NDArray[np.int64]


class PassageEncoder:
    """Encodes passages with a loaded model, in a precision."""

    def __init__(self, model: Any, precision: Precision, batch_size: int) -> None:
        """Copy the model if its precision must change; the given one stays as it is.

        Args:
            model: a `SentenceTransformer`.
            precision: of weights and activations; vectors come out as float32.
            batch_size: tokens encoded together, in units of `TOKENS_PER_TEXT`.
        """
        self._model = copy.deepcopy(model).to(torch.bfloat16) if precision == "bfloat16" else model
        self._batch_size = batch_size
        on_cpu = model.device.type == "cpu"
        self._tokens_together = batch_size * TOKENS_PER_TEXT * (1 if on_cpu else GPU_FACTOR)
        # Prompts, chat templates, images and tokenisers of their own are left to the library.
        self._plain = not any(model.prompts.values()) and getattr(model.tokenizer, "is_fast", False)

    def encode(self, texts: Sequence[str], out: Vectors, progress: Progress | None = None) -> None:
        """Encode texts into the rows of an array.

        Args:
            texts: any number of valid texts; memory does not grow with it.
            out: float32 `[n, dimension]`; may be a memory map.
            progress: called after each batch.
        """
        done = 0
        for start in range(0, len(texts), MAX_CHUNK):
            chunk = texts[start : start + MAX_CHUNK]
            for rows, vectors in self._batches(chunk):
                out[[start + row for row in rows]] = vectors
                done += len(rows)
                if progress:
                    progress(done, len(texts))

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Vectors]]:
        """Yield rows and their vectors, the longest texts first."""
        if not self._plain:
            yield from self._library_batches(texts)
            return
        token_ids = self._tokenize(texts)
        by_length: dict[int, list[int]] = {}
        for row, ids in enumerate(token_ids):
            by_length.setdefault(padded_length(len(ids)), []).append(row)
        for length in sorted(by_length, reverse=True):
            together = max(1, self._tokens_together // length)
            same = by_length[length]
            for start in range(0, len(same), together):
                rows = same[start : start + together]
                yield rows, self._forward([token_ids[row] for row in rows], together, length)

    def _library_batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Vectors]]:
        order = sorted(range(len(texts)), key=lambda row: (-len(texts[row]), row))
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            chosen = [texts[row] for row in rows]
            yield rows, self._model.encode_document(chosen, batch_size=len(rows), normalize_embeddings=True, show_progress_bar=False)

    def _tokenize(self, texts: Sequence[str]) -> list[TokenIds]:
        tokenizer, limit = self._model.tokenizer, self._model.max_seq_length
        found: list[TokenIds] = []
        for start in range(0, len(texts), TOKENIZED_TOGETHER):
            encoded = tokenizer(
                list(texts[start : start + TOKENIZED_TOGETHER]),
                truncation=True,
                max_length=limit,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            found += [np.asarray(ids, dtype=np.int32) for ids in encoded["input_ids"]]
        return found

    def _forward(self, token_ids: Sequence[TokenIds], rows: int, length: int) -> Vectors:
        """Encode one batch, filled up to `rows` and padded to `length`."""
        tokenizer, device = self._model.tokenizer, self._model.device
        ids, mask = fill_batch(token_ids, rows, length, tokenizer.pad_token_id or 0, left=tokenizer.padding_side == "left")
        features = {"input_ids": torch.from_numpy(ids).to(device), "attention_mask": torch.from_numpy(mask).to(device)}
        if "token_type_ids" in tokenizer.model_input_names:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        with torch.inference_mode():
            vectors = self._model(features)["sentence_embedding"][: len(token_ids)]
            vectors = torch.nn.functional.normalize(vectors.float(), dim=1)
        return np.asarray(vectors.cpu().numpy(), dtype=np.float32)


def padded_length(tokens: int) -> int:
    """Return the length to which a text is padded: the next of eight steps an octave, so that at most an eighth is padding."""
    step = max(LEAST_STEP, (1 << max(0, tokens - 1).bit_length()) // (2 * STEPS_PER_OCTAVE))
    return max(1, -(-tokens // step)) * step


def fill_batch(token_ids: Sequence[TokenIds], rows: int, length: int, pad_id: int, left: bool) -> tuple[Batch, Batch]:
    """Return token ids and attention mask, `[rows, length]`: padded, and the last text repeated in rows that are left over."""
    ids = np.full((rows, length), pad_id, dtype=np.int64)
    mask = np.zeros((rows, length), dtype=np.int64)
    for row in range(rows):
        known = token_ids[min(row, len(token_ids) - 1)]
        place = slice(length - len(known), length) if left else slice(0, len(known))
        ids[row, place] = known
        mask[row, place] = 1
    return ids, mask
