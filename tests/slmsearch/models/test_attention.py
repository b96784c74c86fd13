"""Attention in bfloat16, where query heads that share a key head are laid out as tokens: the same as torch's own in float32."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from slmsearch.models import attention
from slmsearch.models.attention import attend


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


@pytest.mark.parametrize(("tokens", "copies"), [(1, False), (2, True)])
def test_beside_the_cpu_a_token_attends_to_the_key_heads_as_they_are(monkeypatch, tokens, copies):
    """On the device `meta`, where nothing is computed."""
    copied = []
    monkeypatch.setattr(
        attention, "sdpa_attention_forward", lambda module, query, *args, **kwargs: copied.append(query.shape) or (query, None)
    )
    query, key = torch.empty(3, 6, tokens, 8, device="meta"), torch.empty(3, 2, 64, 8, device="meta")
    mask = torch.empty(3, 1, tokens, 64, dtype=torch.bool, device="meta")
    attended, _ = attend(torch.nn.Module(), query, key, key, mask)
    assert bool(copied) is copies and (copies or attended.shape == (3, tokens, 6, 8))
