"""Attention in bfloat16, where query heads that share a key head are laid out as tokens: the same as torch's own in float32."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from slmsearch.generate.attention import attend


@pytest.mark.parametrize(("heads", "shared", "tokens"), [(9, 3, 1), (9, 3, 5), (8, 1, 2), (4, 4, 3)])
def test_folded_heads_attend_as_torch_does(heads, shared, tokens):
    torch.manual_seed(0)
    lines, columns, size = 3, 17, 16
    query = torch.randn(lines, heads, tokens, size)
    key, value = (torch.randn(lines, heads // shared, columns, size) for _ in range(2))
    mask = torch.rand(lines, 1, tokens, columns) > 0.4
    mask[..., 0] = True
    repeated = [states.bfloat16().float().repeat_interleave(shared, dim=1) for states in (key, value)]
    wanted = scaled_dot_product_attention(query.bfloat16().float(), *repeated, mask).transpose(1, 2)
    found, _ = attend(SimpleNamespace(), query.bfloat16(), key.bfloat16(), value.bfloat16(), mask)
    assert found.dtype == torch.bfloat16 and found.shape == wanted.shape
    torch.testing.assert_close(found.float(), wanted, atol=0.02, rtol=0.02)
