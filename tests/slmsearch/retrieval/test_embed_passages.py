"""Passages are encoded together by their number of tokens, and come out the same whatever is beside them."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slmsearch.config import EmbedderConfig
from slmsearch.retrieval import embed_passages
from slmsearch.retrieval.embed import valid_text
from slmsearch.retrieval.embed_passages import (
    LEAST_TOKENS,
    OFTEN,
    QUERY_ROWS_GPU,
    PassageEncoder,
    fill_batch,
    group_queries,
    group_queries_on_cpu,
    group_rows,
    padded_length,
)
from slmsearch.retrieval.embedders import LocalEmbedder

TEXTS = [
    "Port Quiltalick", "", "the mountain", "\ud800", "Which stone forms the cliffs where the River Mireth rises?", "a b c " * 40,
    "word " * 400, "the mountain", "Selsparn — History: The town was founded in 1641 by Ida Vell.",
]  # fmt: skip


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def minilm(request: pytest.FixtureRequest) -> Iterator[LocalEmbedder]:
    # 256 tokens together: the same code in shapes that take a test less time.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(embed_passages, "TOKENS_TOGETHER", 256)
        yield LocalEmbedder(EmbedderConfig(device="cpu", precision=request.param))


def test_a_passage_is_encoded_to_the_same_bits_in_any_company(minilm: LocalEmbedder, monkeypatch: pytest.MonkeyPatch):
    together = minilm.encode(TEXTS)
    assert together.dtype == np.float32 and together.shape == (len(TEXTS), 384)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    assert np.array_equal(together[2], together[7])
    for row, text in enumerate(TEXTS):
        assert np.array_equal(minilm.encode([text])[0], together[row]), text
    monkeypatch.setattr(embed_passages, "MAX_CHUNK", 4)
    monkeypatch.setattr(embed_passages, "TOKENIZED_TOGETHER", 3)
    assert np.array_equal(minilm.encode(TEXTS[::-1])[::-1], together)


def test_passages_are_what_queries_look_for(minilm: LocalEmbedder):
    exact = minilm.encode_queries(TEXTS)
    cosines = np.vecdot(minilm.encode(TEXTS), exact)
    assert cosines.min() > (0.999 if minilm.precision == "bfloat16" else 0.999999)
    assert minilm.revision.endswith("+bfloat16") == (minilm.precision == "bfloat16")


def test_vectors_go_where_the_caller_wants_them(minilm: LocalEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embed_passages, "MAX_CHUNK", 4)
    seen: list[tuple[int, int]] = []
    out = np.lib.format.open_memmap(tmp_path / "vectors.npy", "w+", np.float32, (len(TEXTS) + 2, 384))
    minilm.encode([])
    minilm._passage_encoder().encode([valid_text(text) for text in TEXTS], out[1:-1], lambda done, total: seen.append((done, total)))
    out.flush()
    assert np.array_equal(np.load(tmp_path / "vectors.npy")[1:-1], minilm.encode(TEXTS))
    assert not out[0].any() and not out[-1].any()
    assert seen[-1] == (9, 9) and [done for done, _ in seen] == sorted({done for done, _ in seen}) and len(seen) > 3
    assert minilm.encode([]).shape == (0, 384)


def test_a_model_with_prompts_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embed_passages, "TEXTS_TOGETHER", 2)
    asked: list[Any] = []

    def encode_document(texts: list[str], **settings: Any) -> Any:
        asked.append(texts)
        return np.array([[float(len(text)), 1.0] for text in texts], dtype=np.float32)

    model = SimpleNamespace(
        prompts={"query": "", "document": "passage: "}, tokenizer=None, device=SimpleNamespace(type="cpu"), encode_document=encode_document
    )
    out = np.zeros((3, 2), dtype=np.float32)
    PassageEncoder(model, "float32").encode(["a", "ccc", "bb"], out)
    assert asked == [["ccc", "bb"], ["a"]]
    assert out[:, 0].tolist() == [1, 3, 2]


@given(st.integers(0, 600))
def test_padding_is_an_eighth_or_three_tokens_at_most(tokens: int):
    length = padded_length(tokens)
    assert max(1, tokens) <= length <= tokens + max(4, tokens / 8)
    assert padded_length(length) == length
    assert padded_length(tokens + 1) >= length


@given(st.lists(st.integers(0, 600), max_size=200), st.sampled_from([16, 512, 1024]))
def test_every_text_is_in_one_batch_of_its_length(lengths: list[int], together: int):
    batches = group_rows(lengths, together)
    assert sorted(row for rows, _, _ in batches for row in rows) == list(range(len(lengths)))
    for rows, height, length in batches:
        assert {padded_length(lengths[row]) for row in rows} == {length}
        assert len(rows) <= height and (height * length <= together or height == 1)
        assert height * length >= min(LEAST_TOKENS, together) - length
    assert [length for _, _, length in batches] == sorted((length for _, _, length in batches), reverse=True)


@given(st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=4), st.integers(0, 3), st.booleans())
def test_a_batch_is_padded_and_filled_up(texts: list[list[int]], extra: int, left: bool):
    ids, mask = fill_batch([np.array(text, dtype=np.int32) for text in texts], len(texts) + extra, 6, 0, left)
    assert ids.shape == mask.shape == (len(texts) + extra, 6)
    for row, text in enumerate([*texts, *[texts[-1]] * extra]):
        assert ids[row][mask[row] == 1].tolist() == text
        padding = [0] * (6 - len(text))
        assert ids[row].tolist() == (padding + text if left else text + padding)


@given(st.lists(st.integers(0, 256), max_size=300))
def test_on_a_card_a_querys_own_length_decides_the_shape_in_which_it_is_encoded(lengths: list[int]):
    batches = group_queries(lengths, 256)
    assert sorted(row for rows, _, _ in batches for row in rows) == list(range(len(lengths)))
    for rows, height, length in batches:
        assert 0 < len(rows) <= height and max(lengths[row] for row in rows) <= length <= 256
        for row in rows:
            assert group_queries([lengths[row]], 256) == [([0], height, length)], "as alone"


COSTS = st.dictionaries(st.tuples(st.integers(1, 600), st.integers(0, 40)), st.floats(0.5, 40) | st.just(math.inf))


@example([10, 10, 10, 10], {(3, 10): 2.5}, math.inf)
@given(st.lists(st.integers(1, 40), max_size=300), COSTS, st.floats(0.5, 40) | st.just(math.inf))
def test_a_cpu_encodes_queries_without_padding_in_the_batches_that_are_quicker(
    lengths: list[int], costs: dict[tuple[int, int], float], other: float
):
    def cost(height: int, length: int) -> float:
        return costs.get((height, length), other) if height > 1 else 1.0

    batches = group_queries_on_cpu(lengths, cost)
    assert sorted(row for rows, _, _ in batches for row in rows) == list(range(len(lengths)))
    for rows, height, length in batches:
        assert {lengths[row] for row in rows} == {length} and 0 < len(rows) <= height
        assert cost(height, length) < math.inf
    assert sum(cost(height, length) for _, height, length in batches) <= len(lengths) + 1e-6, "than one by one"


def test_a_card_encodes_a_batch_of_queries_in_few_passes():
    lengths = [6 + n % 35 for n in range(256)]
    assert len(group_queries(lengths, 256)) <= 6
    assert {height for _, height, _ in group_queries(lengths, 256)} == {QUERY_ROWS_GPU}
    assert group_queries([300], 384) == [([0], QUERY_ROWS_GPU, 384)], "no longer than the model takes"


def test_many_queries_have_the_bits_of_each_by_itself(minilm: LocalEmbedder, monkeypatch: pytest.MonkeyPatch):
    texts = [f"Who founded {word} {' '.join(['near the mill'] * (n % 3 * 6))} {n}?" for n in range(60) for word in ("Norwick", "Selsparn")]
    encoder = PassageEncoder(minilm._loaded(), minilm.precision)
    encoder._costs = dict.fromkeys(((height, length) for height in range(2, 600) for length in range(100)), math.inf)
    alone = encoder.encode_queries(texts)
    encoder._costs.clear()
    assert np.array_equal(encoder.encode_queries(texts), alone)
    assert any(cost < height for (height, _), cost in encoder._costs.items()), "some batch pays, on any processor"
    assert min(encoder._asked[length] for _, length in encoder._costs) >= OFTEN
    for row, text in enumerate(texts):
        assert np.array_equal(encoder.encode_queries([text])[0], alone[row]), text


def test_a_batch_is_used_only_where_all_texts_have_the_bits_that_they_have_alone(minilm: LocalEmbedder, monkeypatch: pytest.MonkeyPatch):
    """Of 24 texts of 40 tokens four had the same bits in bfloat16, by chance."""
    encoder = PassageEncoder(minilm._loaded(), minilm.precision)
    encoder._asked.update({8: OFTEN, 20: OFTEN})
    forward = encoder._forward

    def change_one_bit(ids: Any, rows: int, length: int) -> Any:
        vectors = forward(ids, rows, length)
        if rows > 1:
            vectors[-1, 0] = np.nextafter(vectors[-1, 0], np.float32(2))
        return vectors

    assert encoder._cost(64, 8) < math.inf if minilm.precision == "bfloat16" else encoder._cost(26, 20) < math.inf
    encoder._costs.clear()
    monkeypatch.setattr(encoder, "_forward", change_one_bit)
    assert encoder._cost(64, 8) == encoder._cost(26, 20) == math.inf


def test_the_batches_of_a_card_give_a_query_the_same_bits_in_any_company(minilm: LocalEmbedder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embed_passages, "QUERY_ROWS_GPU", 8)
    encoder = PassageEncoder(minilm._loaded(), minilm.precision, on_cpu=False)
    texts = [valid_text(text) for text in TEXTS]
    together = encoder.encode_queries(texts)
    assert np.array_equal(encoder.encode_queries(texts[::-1])[::-1], together)
    for row, text in enumerate(texts):
        assert np.array_equal(encoder.encode_queries([text])[0], together[row]), text
    alone = minilm.encode_queries(texts)
    assert (together * alone).sum(axis=1).min() > (0.9999 if minilm.precision == "float32" else 0.998)
