"""A CPU that is taken for a device with a kernel for trees."""

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

from slmsearch.models import flex

UNCOMPILED = torch.compile(torch_flex.flex_attention, backend="eager", dynamic=False, fullgraph=True)


def take_cpu(patch: pytest.MonkeyPatch) -> None:
    """Let trees attend on the CPU as on a card, by flex attention's uncompiled form, gradients and all, which torch refuses there."""
    patch.setattr(flex, "COMPILED_ON", {"cpu"})
    patch.setattr(flex, "_kernel", lambda kind: UNCOMPILED)
    patch.setattr(flex, "_why_not", lambda *_: None)
    patch.setattr(torch_flex, "_validate_device", lambda *_: None)
