"""Encoding many passages with a sentence-transformers model, fast and to the same bits in any company.

Tokens are counted first. Passages of about the same number of tokens are encoded together, in batches whose shape depends on
that number: so many rows, padded to so many tokens; the last batch of a length has fewer rows, but never fewer than `LEAST_TOKENS` tokens,
and is filled up with repeats. Nothing else decides a vector's bits, so a build that was killed and goes on, or one that adds a page
to many, ends with the same vectors. In bfloat16 a batch of 448 tokens or more gives each row the same bits as a larger one
(measured with all-MiniLM-L6-v2 for lengths of 8 to 224); one of 300 or fewer differs by 1e-3 in a component of the bare vector.

On the CPU several batches are encoded at a time, each on its own thread: two threads that share one matrix product of a small model spend
much of their time waiting for each other. Measured with all-MiniLM-L6-v2 on two cores with AMX, passages of 24 / 64 / 128 tokens a second:
float32 243 / 88 / 48, bfloat16 with both threads in each product 480 / 188 / 105, two batches at a time and layers fused
(`fuse_layers`) 606 / 247 / 131; OpenVINO in bfloat16 with two streams 612 / 243 / 114. Such a processor's bfloat16 rate falls to a third
while a neighbour of the virtual machine uses the same unit (1,000 against 350 GFLOP/s, seen in turns); these figures are of that state.
"""

import copy
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from slmsearch.retrieval.embed import Precision, Progress, Vectors

TOKENS_TOGETHER = 2_048
"""Tokens encoded together; some 7 % faster than 1,024."""
TEXTS_TOGETHER = 64
"""Texts that the library encodes together, where it batches."""
LEAST_TOKENS = 512
"""Tokens of the smallest batch."""
WORKERS = 4
"""Batches encoded at a time on a CPU, at most; with more, Python's own part of the work would hold them up."""
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
RowBatch: TypeAlias = tuple[list[int], int, int]
"""Rows of texts, rows of the batch, tokens of each."""


class PassageEncoder:
    """Encodes passages with a loaded model, in a precision."""

    def __init__(self, model: Any, precision: Precision) -> None:
        """Copy the model if its precision must change; the given one stays as it is.

        Args:
            model: a `SentenceTransformer`.
            precision: of weights and activations; vectors come out as float32.
        """
        self._model = copy.deepcopy(model).to(torch.bfloat16) if precision == "bfloat16" else model
        on_cpu = model.device.type == "cpu"
        if on_cpu and precision == "bfloat16":
            fuse_layers(self._model)
        self._workers = min(WORKERS, os.cpu_count() or 1) if on_cpu else 1
        self._tokens_together = TOKENS_TOGETHER * (1 if on_cpu else GPU_FACTOR)
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
            for rows, vectors in self._batches(chunk) if self._plain else self._library_batches(chunk):
                out[[start + row for row in rows]] = vectors
                done += len(rows)
                if progress:
                    progress(done, len(texts))

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Vectors]]:
        """Yield rows and their vectors, the longest texts first."""
        token_ids = self._tokenize(texts)
        batches = group_rows([len(ids) for ids in token_ids], self._tokens_together)

        def encode(batch: RowBatch) -> tuple[list[int], Vectors]:
            rows, height, length = batch
            return rows, self._forward([token_ids[row] for row in rows], height, length)

        threads = torch.get_num_threads()
        # torch counts its threads for each thread that calls it; those that start later take over the number set last.
        share = max(1, threads // self._workers)
        with ThreadPoolExecutor(self._workers, "encode", torch.set_num_threads, (share,)) as pool:
            try:
                yield from pool.map(encode, batches)
            finally:
                pool.shutdown(cancel_futures=True)
                torch.set_num_threads(threads)

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
    """Return the length to which a text is padded: the next of eight steps an octave, so that at most an eighth is padding."""
    step = max(LEAST_STEP, (1 << max(0, tokens - 1).bit_length()) // (2 * STEPS_PER_OCTAVE))
    return max(1, -(-tokens // step)) * step


def group_rows(lengths: Sequence[int], tokens_together: int) -> list[RowBatch]:
    """Group texts by padded length, the longest first, and cut each group into batches.

    Args:
        lengths: tokens of each text.
        tokens_together: of a full batch, padding included; a text longer than that has a batch of its own.
    """
    by_length: dict[int, list[int]] = {}
    for row, tokens in enumerate(lengths):
        by_length.setdefault(padded_length(tokens), []).append(row)
    batches: list[RowBatch] = []
    for length in sorted(by_length, reverse=True):
        full = max(1, tokens_together // length)
        least = min(full, -(-LEAST_TOKENS // length))
        same = by_length[length]
        for start in range(0, len(same), full):
            rows = same[start : start + full]
            batches.append((rows, max(least, len(rows)), length))
    return batches


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


def fuse_layers(model: nn.Module) -> int:
    """Take the operations around each matrix product of a BERT-like encoder on the CPU in bfloat16 into it; the model is changed in place.

    Plain torch adds a bias by copying it into every row of the result before the product, reads the result again for the activation, and
    again for the residual sum: in bfloat16, where the products themselves are quick, these passes over memory take two fifths of the
    time. oneDNN can do them while a tile of the result is still in the processor's registers. torch has the operators (its compiler
    emits them for the same reason) without a public name, so they are looked for, and where they are missing, or the processor lacks what
    oneDNN needs for bfloat16 (on x86 AVX-512), the layers stay as they are.

    Beside plain bfloat16 layers, one thread each, all-MiniLM-L6-v2, passages of 24 to 192 tokens: 1.15 to 1.2 times as many a second, and
    a least cosine to float32 of 0.99991 instead of 0.99989, because sums are rounded once less.

    Returns:
        How many layers were replaced; 0 where torch or the processor cannot do it.
    """
    if not can_fuse():
        return 0
    replaced = 0
    for module in list(model.modules()):
        if _is_intermediate(module):
            _fuse_activation(module)
            replaced += 1
        if _is_residual(module):  # its parent has another in its place already
            continue
        for name, child in list(module.named_children()):
            if _is_residual(child):
                setattr(module, name, FusedResidual(child))
            elif isinstance(child, nn.Linear):
                setattr(module, name, FusedLinear(child, "none"))
            else:
                continue
            replaced += 1
    return replaced


class FusedLinear(nn.Module):
    """A linear layer and, it may be, a GELU after it."""

    def __init__(self, linear: nn.Linear, activation: str) -> None:
        """Pack a layer's weights.

        Args:
            linear: a bfloat16 layer.
            activation: `none` or `gelu`, the exact one.
        """
        super().__init__()
        self._packed, self._bias = _pack(linear), linear.bias
        self._activation, self._variant = activation, "none" if activation == "gelu" else ""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Map `[..., inputs]` to `[..., outputs]`."""
        fused: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, self._packed, self._bias, self._activation, [], self._variant)
        return fused


class FusedResidual(nn.Module):
    """What closes half a BERT layer: linear, residual sum, layer norm; its dropout does nothing outside training."""

    def __init__(self, module: Any) -> None:
        """Take over the linear layer and the norm of a module of that form."""
        super().__init__()
        self._packed, self._bias, self._norm = _pack(module.dense), module.dense.bias, module.LayerNorm

    def forward(self, states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Map `[..., inputs]` and the `[..., outputs]` of before to `[..., outputs]`."""
        summed = torch.ops.mkldnn._linear_pointwise.binary(states, residual, self._packed, self._bias, "add")
        normed: torch.Tensor = self._norm(summed)
        return normed


def _fuse_activation(module: Any) -> None:
    module.dense, module.intermediate_act_fn = FusedLinear(module.dense, "gelu"), nn.Identity()


def can_fuse() -> bool:
    """Say whether torch has the operators, and oneDNN the instructions they need."""
    names = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    there = torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in names)
    return there and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _pack(linear: nn.Linear) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
    return packed


def _is_intermediate(module: nn.Module) -> bool:
    """Recognise the first half of a BERT layer's feed-forward part, with the exact GELU."""
    activation = getattr(module, "intermediate_act_fn", None)
    exact = isinstance(activation, nn.GELU) and activation.approximate == "none"
    return isinstance(getattr(module, "dense", None), nn.Linear) and (exact or type(activation).__name__ == "GELUActivation")


def _is_residual(module: nn.Module) -> bool:
    """Recognise `LayerNorm(dropout(dense(x)) + residual)` by its class, as BERT and those made after it have it."""
    known = {f"{family}{half}Output" for family in ("Bert", "Roberta", "XLMRoberta") for half in ("Self", "")}
    return type(module).__name__ in known and {name for name, _ in module.named_children()} == {"dense", "LayerNorm", "dropout"}
