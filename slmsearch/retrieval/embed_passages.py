"""Fast encoding of many passages with a sentence-transformers model; a passage has the same bits in any batch.

Tokens are counted first. Passages of about the same number of tokens are encoded together, in batches whose shape (rows, padded tokens)
depends on that number alone. The last batch of a length has fewer rows, but at least `LEAST_TOKENS` tokens, and is filled with repeats. So
a resumed build, or one with an additional page, ends with the same vectors. In bfloat16 a batch of 448 tokens or more gives each row the
same bits as a larger one (measured with all-MiniLM-L6-v2 for lengths of 8 to 224); one of 300 or fewer differs by 1e-3 in a component of
the bare vector.

A CPU encodes several batches at a time, each on its own thread: two threads that share one matrix product of a small model spend much of
their time waiting for each other. Measured with all-MiniLM-L6-v2 on two cores with AMX, passages of 24 / 64 / 128 tokens per second:
float32 243 / 88 / 48, bfloat16 with both threads in each product 480 / 188 / 105; OpenVINO in bfloat16 with two streams 612 / 243 / 114.
The bfloat16 rate of such a processor falls to a third while another virtual machine uses the same unit (1,000 against 350 GFLOP/s, measured
alternately); these figures are of the slower state.
"""

import copy
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from slmsearch.retrieval.embed import Precision, Progress, Vectors

TOKENS_TOGETHER = 2_048
"""Tokens per batch; some 7 % faster than 1,024."""
TEXTS_TOGETHER = 64
"""Number of texts per batch if the library forms the batches."""
LEAST_TOKENS = 512
"""Minimum number of tokens per batch."""
WORKERS = 4
"""Maximum number of batches encoded at a time on a CPU; with more, Python's own part of the work would be the bottleneck."""
QUERY_ROWS_GPU = 64
"""Rows per batch of queries on a GPU, where launches take the time, not products: a batch is filled up, and padded to a power of two, so
that 256 queries of 6 to 40 tokens take some six batches. Kernels change the order of summation with the shape and the number of threads: so
the shape follows from a query's own length, or gives the same bits as that one (`PassageEncoder._cost`)."""
QUERY_TOKENS = (32, 320, 512)
"""Tokens of batches of queries on a CPU, at most: kernels change between them. With all-MiniLM-L6-v2 in bfloat16 on a processor with AMX, a
query of up to 32 tokens has the same bits in a batch of 32 or 512 and takes an eighth of the time there; one of 40 or more in a batch of
320, in a third."""
OFTEN, PROBES = 32, 8
"""Number of queries of one length after which batches of it are tried, and of texts that tell whether they give the same bits."""
QUERY_TOKENS_GPU = 16
"""Minimum number of tokens of a query in a batch on a GPU."""
GPU_FACTOR = 32
"""Factor on the tokens per batch on a GPU."""
TOKENIZED_TOGETHER = 2_048
"""Number of texts tokenised at a time."""
MAX_CHUNK = 16_384
"""Number of texts sorted by length at a time; limits the memory for tokens, about 1 kB for a text of 256."""
LEAST_STEP = 4
STEPS_PER_OCTAVE = 8


TokenIds: TypeAlias = NDArray[np.int32]
Batch: TypeAlias = NDArray[np.int64]
RowBatch: TypeAlias = tuple[list[int], int, int]
"""Rows of the texts, number of rows of the batch, tokens per row."""


class PassageEncoder:
    """Encoder of passages with a loaded model, in one precision."""

    def __init__(self, model: Any, precision: Precision, on_cpu: bool | None = None) -> None:
        """Store a `SentenceTransformer`, or a copy in another precision of weights and activations; vectors are float32.

        Batches have the shapes for the model's device, unless `on_cpu` is set.
        """
        self._model = copy.deepcopy(model).to(torch.bfloat16) if precision == "bfloat16" else model
        self._on_cpu = model.device.type == "cpu" if on_cpu is None else on_cpu
        self._workers = min(WORKERS, os.cpu_count() or 1) if self._on_cpu else 1
        self._costs: dict[tuple[int, int], float] = {}
        self._asked: Counter[int] = Counter()
        self._tokens_together = TOKENS_TOGETHER * (1 if self._on_cpu else GPU_FACTOR)
        # The library handles models with prompts, chat templates, images or special tokenisers.
        self._plain = not any(model.prompts.values()) and getattr(model.tokenizer, "is_fast", False)

    def encode(self, texts: Sequence[str], out: Vectors, progress: Progress | None = None) -> None:
        """Encode texts into the rows of an array.

        Args:
            texts: any number of valid texts; memory does not grow with it.
            out: float32 `(n, dimension)`; may be a memory map.
            progress: called after each batch.
        """
        done = 0
        for start in range(0, len(texts), MAX_CHUNK):
            chunk = texts[start : start + MAX_CHUNK]
            for rows, vectors in self._batches(chunk) if self._plain else self._library_batches(chunk):
                out[[start + row for row in rows]] = vectors
                done += len(rows)
                if progress:
                    progress(done, len(texts))

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode short texts, grouped by length; a text's bits do not depend on the others."""
        token_ids = self._tokenize(texts)
        lengths = [max(1, len(ids)) for ids in token_ids]
        self._asked.update(lengths)
        parts = group_queries_on_cpu(lengths, self._cost) if self._on_cpu else group_queries(lengths, self._model.max_seq_length)
        vectors = np.empty((len(texts), self._model.get_embedding_dimension()), dtype=np.float32)
        for rows, found in self._encoded(token_ids, parts, threads=1):
            vectors[rows] = found
        return vectors

    def _cost(self, height: int, length: int) -> float:
        """Measure the time of a batch of queries in that of one by itself; infinite if they have other bits in it than by themselves.

        Random texts tell for all, since the shapes decide which kernels run. That takes some ten passes, once for each shape of a length
        that was asked `OFTEN`; before, it is infinite, too.
        """
        if (height, length) not in self._costs and self._asked[length] < OFTEN:
            return math.inf
        if (height, length) not in self._costs:
            token_ids = np.random.default_rng(length).integers(self._model.tokenizer.vocab_size, size=(height, length), dtype=np.int32)

            def encode(rows: list[int], height: int) -> tuple[Vectors, float]:
                began = time.perf_counter()
                _, vectors = next(self._encoded(list(token_ids), [(rows, height, length)], threads=1))
                return vectors, time.perf_counter() - began

            together, _ = encode([*range(height)], height)
            probed = np.unique(np.linspace(0, height - 1, PROBES, dtype=int)).tolist()  # kernels treat the last rows in their own way
            alone = ((row, *encode([row], 1)) for row in probed)
            took = [seconds for *_, seconds in takewhile(lambda found: np.array_equal(found[1][0], together[found[0]]), alone)]
            whole = len(took) == len(probed)
            self._costs[height, length] = encode([*range(height)], height)[1] / min(took) if whole else math.inf
        return self._costs[height, length]

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Vectors]]:
        """Yield rows and their vectors, the longest texts first."""
        token_ids = self._tokenize(texts)
        batches = group_rows([len(ids) for ids in token_ids], self._tokens_together)
        return self._encoded(token_ids, batches, max(1, torch.get_num_threads() // self._workers))

    def _encoded(self, token_ids: Sequence[TokenIds], batches: Sequence[RowBatch], threads: int) -> Iterator[tuple[list[int], Vectors]]:
        """Encode batches on several workers with `threads` threads each; a single batch is encoded directly, which saves 0.6 ms."""

        def encode(batch: RowBatch) -> tuple[list[int], Vectors]:
            rows, height, length = batch
            return rows, self._forward([token_ids[row] for row in rows], height, length)

        # torch's number of threads is per calling thread; new threads inherit the last value.
        before = torch.get_num_threads()
        try:
            if len(batches) == 1:
                torch.set_num_threads(threads)
                yield encode(batches[0])
                return
            with ThreadPoolExecutor(self._workers, "encode", torch.set_num_threads, (threads,)) as pool:
                try:
                    yield from pool.map(encode, batches)
                finally:
                    pool.shutdown(cancel_futures=True)
        finally:
            torch.set_num_threads(before)

    def _library_batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Vectors]]:
        order = sorted(range(len(texts)), key=lambda row: (-len(texts[row]), row))
        for start in range(0, len(order), TEXTS_TOGETHER):
            rows = order[start : start + TEXTS_TOGETHER]
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
    """Return the padded length of a text: the next of eight steps per octave, so that at most an eighth is padding."""
    step = max(LEAST_STEP, (1 << max(0, tokens - 1).bit_length()) // (2 * STEPS_PER_OCTAVE))
    return max(1, -(-tokens // step)) * step


def group_rows(lengths: Sequence[int], tokens_together: int) -> list[RowBatch]:
    """Group texts by padded length, the longest first, and cut each group into batches.

    Args:
        lengths: number of tokens of each text.
        tokens_together: tokens of a full batch, padding included; a longer text has a batch of its own.
    """
    batches: list[RowBatch] = []
    for length, same in sorted(_rows_by([padded_length(tokens) for tokens in lengths]), reverse=True):
        full = max(1, tokens_together // length)
        least = min(full, -(-LEAST_TOKENS // length))
        for start in range(0, len(same), full):
            rows = same[start : start + full]
            batches.append((rows, max(least, len(rows)), length))
    return batches


def group_queries(lengths: Sequence[int], limit: int | None) -> list[RowBatch]:
    """Group queries for a GPU by padded length, and cut each group into batches of `QUERY_ROWS_GPU` rows.

    Args:
        lengths: number of tokens of each query, at most `limit`.
        limit: maximum number of tokens of the model.
    """
    padded = [min(max(QUERY_TOKENS_GPU, 1 << (tokens - 1).bit_length()), limit or sys.maxsize) for tokens in lengths]
    return [batch for length, same in _rows_by(padded) for batch in _cut(same, QUERY_ROWS_GPU, length)]


def group_queries_on_cpu(lengths: Sequence[int], cost: Callable[[int, int], float]) -> list[RowBatch]:
    """Group queries for a CPU by length, without padding, into large batches, and small ones of what is left, where these are quicker.

    Args:
        lengths: number of tokens of each query.
        cost: rows and length of a batch -> its time in that of one query by itself; infinite: it may not be used.
    """
    batches: list[RowBatch] = []
    for length, same in _rows_by(lengths):
        rest = same
        for height in sorted({tokens // length for tokens in QUERY_TOKENS if tokens >= 2 * length}, reverse=True):
            taken = _fill(len(rest), height, cost(height, length)) if len(rest) > 1 else 0
            batches += _cut(rest[:taken], height, length)
            rest = rest[taken:]
        batches += _cut(rest, 1, length)
    return batches


def _fill(count: int, height: int, cost: float) -> int:
    """Return how many of some queries go into batches of a height; the last batch is filled up if the others alone would take longer."""
    left = count % height
    return 0 if cost >= height else count - (left if left < cost else 0)


def _rows_by(lengths: Sequence[int]) -> Iterable[tuple[int, list[int]]]:
    found: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        found.setdefault(length, []).append(row)
    return found.items()


def _cut(rows: Sequence[int], height: int, length: int) -> list[RowBatch]:
    return [([*rows[start : start + height]], height, length) for start in range(0, len(rows), height)]


def fill_batch(token_ids: Sequence[TokenIds], rows: int, length: int, pad_id: int, left: bool) -> tuple[Batch, Batch]:
    """Return token ids and attention mask, `(rows, length)`: padded, with the last text repeated in spare rows."""
    ids = np.full((rows, length), pad_id, dtype=np.int64)
    mask = np.zeros((rows, length), dtype=np.int64)
    for row in range(rows):
        known = token_ids[min(row, len(token_ids) - 1)]
        place = slice(length - len(known), length) if left else slice(0, len(known))
        ids[row, place] = known
        mask[row, place] = 1
    return ids, mask
