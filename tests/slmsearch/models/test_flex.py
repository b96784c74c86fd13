"""Attention over trees in one kernel: its mask, and the same results and gradients as call by call.

On a CPU torch's flex attention compiles its forward pass alone and refuses gradients; its uncompiled form, which knows the formula and no
blocks, gives both once that check is lifted. Triton's kernels are for a card.
"""

import logging

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention as torch_flex

from slmsearch.models import flex
from slmsearch.models.attention import _TreeAttention
from slmsearch.training.tree import build_trees
from tests.slmsearch.sampling.kernels import take_cpu

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=40), min_size=1, max_size=12)
SAME_PATCH = [HealthCheck.function_scoped_fixture]


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    take_cpu(monkeypatch)


def tree_of(rows, multiple=1):
    [(_, tree)] = build_trees(rows, 1 << 30, 64, multiple=multiple)
    return tree


def random_rows(seed, count, longest):
    chance, rows = np.random.default_rng(seed), [[1]]
    for _ in range(count):
        base = rows[chance.integers(len(rows))]
        rows.append(base[: chance.integers(1, len(base) + 1)] + chance.integers(0, 9, chance.integers(1, longest)).tolist())
    return rows


def heads(nodes, dtype=torch.float32, size=16, counts=(6, 2, 2)):
    return [torch.randn(count, nodes, size).to(dtype).requires_grad_() for count in counts]


def both_ways(tree, dtype=torch.float32):
    """What attends and the gradients of what it attends with, call by call and in one kernel."""
    inputs = heads(len(tree.ids), dtype)
    back = torch.randn(6, len(tree.ids), 16).to(dtype)
    return attend_by_calls(tree, inputs, back), with_gradients(flex.attend_flex(*inputs, tree.ancestry.mask, 0.25), inputs, back)


def attend_by_calls(tree, inputs, back):
    return with_gradients(_TreeAttention.apply(*inputs, tree.ancestry.calls, 0.25, False), inputs, back)


def with_gradients(found, inputs, back):
    return (found, *torch.autograd.grad(found, inputs, back))


@given(ROWS, st.integers(1, 9))
@settings(deadline=None, max_examples=30, suppress_health_check=SAME_PATCH)
def test_results_and_gradients_are_those_of_the_calls(on_cpu, rows, multiple):
    tree = tree_of(rows, multiple)
    real = tree.ancestry.runs[-1].end  # what a tree is filled up with attends otherwise, and nobody to it
    for one, other in zip(*both_ways(tree), strict=True):
        torch.testing.assert_close(one[:, :real], other[:, :real], atol=1e-5, rtol=1e-5)


def test_so_are_those_of_large_trees(on_cpu):
    for seed in range(3):
        for one, other in zip(*both_ways(tree_of(random_rows(seed, 14, 90))), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_in_bfloat16_neither_way_is_further_from_float32_than_rounding(on_cpu, seed):
    """A gradient of a key sums what its branches send, so single numbers may differ by much of their size: the whole must not."""
    tree = tree_of(random_rows(seed, 14, 90))
    inputs, back = heads(len(tree.ids), torch.bfloat16), torch.randn(6, len(tree.ids), 16).bfloat16()
    exact = attend_by_calls(tree, [states.detach().float().requires_grad_() for states in inputs], back.float())
    whole = with_gradients(flex.attend_flex(*inputs, tree.ancestry.mask, 0.25), inputs, back)
    for found in (attend_by_calls(tree, inputs, back), whole):
        for one, wanted in zip(found, exact, strict=True):
            assert torch.linalg.vector_norm(one.float() - wanted) <= 2**-7 * torch.linalg.vector_norm(wanted)
            assert (one.float() - wanted).abs().max() <= 2**-6 * wanted.abs().max()


def test_trees_of_other_sizes_and_shapes_need_no_other_kernel(on_cpu):
    both_ways(tree_of(random_rows(0, 10, 80)))
    before = counters["stats"]["unique_graphs"]
    for seed in range(1, 5):
        both_ways(tree_of(random_rows(seed, 3 * seed, 80)))
    assert counters["stats"]["unique_graphs"] == before
    assert [flex.filled_up(nodes) for nodes in (1, 1024, 1025, 2048, 4096, 5000)] == [1024, 1024, 2048, 2048, 4096, 8192]


@given(st.integers(0, 1 << 20), st.integers(2, 200))
@settings(max_examples=10, deadline=None)
def test_blocks_left_out_and_taken_whole_are_those_of_the_mask(seed, longest):
    mask = tree_of(random_rows(seed, 20, longest)).ancestry.mask
    nodes = mask.seq_lengths[0]
    made = torch_flex.create_block_mask(mask.mask_mod, None, None, nodes, nodes, device="cpu")
    for ours, theirs in (
        ((mask.kv_num_blocks, mask.kv_indices), (made.kv_num_blocks, made.kv_indices)),
        ((mask.full_kv_num_blocks, mask.full_kv_indices), (made.full_kv_num_blocks, made.full_kv_indices)),
        ((mask.q_num_blocks, mask.q_indices), (made.q_num_blocks, made.q_indices)),
        ((mask.full_q_num_blocks, mask.full_q_indices), (made.full_q_num_blocks, made.full_q_indices)),
    ):
        assert listed(*ours) == listed(*theirs)


def listed(counts, indices):
    return [sorted(row[:count].tolist()) for count, row in zip(counts[0, 0].tolist(), indices[0, 0], strict=True)]


def test_the_compiled_forward_pass_of_a_cpu_gives_the_same():
    tree = tree_of(random_rows(5, 40, 90))
    assert len(tree.ids) > flex.FEWEST  # several blocks each way
    inputs = [tensor.detach() for tensor in heads(len(tree.ids))]
    calls = _TreeAttention.apply(*inputs, tree.ancestry.calls, 0.25, False)
    torch.testing.assert_close(flex.attend_flex(*inputs, tree.ancestry.mask, 0.25), calls, atol=1e-5, rtol=1e-5)


def test_a_device_whose_kernel_fails_attends_call_by_call_and_says_why_once(monkeypatch, caplog):
    flex._why_not.cache_clear()
    inputs = heads(3)
    assert not flex.takes_flex(*inputs) and not caplog.records  # a CPU is not asked
    monkeypatch.setattr(flex, "COMPILED_ON", {"cpu"})
    with caplog.at_level(logging.WARNING):
        assert [flex.takes_flex(*inputs) for _ in range(3)] == [False] * 3  # there is no backward pass on a CPU
    assert len(caplog.records) == 1
    assert "6 heads of 16 (2 of keys) in torch.float32" in caplog.text and "call of attention a branch" in caplog.text
    flex._why_not.cache_clear()


def test_autocast_decides_the_dtype(on_cpu):
    query, key, value = heads(3)
    assert flex.takes_flex(query, key, value)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        attended = flex.attend_flex(query, key, value.bfloat16(), tree_of([[1, 2, 3]]).ancestry.mask, 0.25)
    assert attended.dtype == torch.bfloat16
