"""The precision a local model encodes passages in, and how it stands in the embedder's revision.

In bfloat16 a processor with the hardware for it encodes passages several times faster, at a cosine above .999 to float32. The
choice follows from the configuration and what the processor says of itself, never from a timing, so one machine always
decides alike. It decides about speed only:

- Queries are always encoded in float32 and fit passages of either precision.
- A build in bfloat16 has other bits than one in float32, so it must have another index key: the precision is part of
  the revision, which goes into the key and the manifest.
- An index says nothing less on a machine without the hardware: to open one, only the weights must be the same (`same_space`).
  To get the very same key there, set `retrieval.embedder.precision` to what the first machine chose.
"""

from pathlib import Path
from typing import Literal

from slmsearch.config import EmbedderConfig

Precision = Literal["float32", "bfloat16"]

CPUINFO = Path("/proc/cpuinfo")
FAST_FLAGS = frozenset({"amx_bf16", "avx512_bf16"})
"""What Linux calls the instructions that multiply bfloat16; torch's kernels use both."""
CUDA_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
"""One of them is there where torch could find a GPU: NVIDIA's driver, WSL's, AMD's."""

_SUFFIX = "+bfloat16"


def choose_precision(config: EmbedderConfig, cpuinfo: Path = CPUINFO) -> Precision:
    """Return the precision of passages: the one configured, or for `auto` bfloat16 where the device multiplies it in hardware."""
    if config.precision != "auto":
        return config.precision
    if config.device == "cuda" or (config.device == "auto" and any(device.exists() for device in CUDA_DEVICES)):
        on_gpu = _gpu_multiplies_bfloat16()
        if on_gpu is not None:
            return "bfloat16" if on_gpu else "float32"
    return "bfloat16" if _processor_flags(cpuinfo) & FAST_FLAGS else "float32"


def mark_revision(weights: str, precision: Precision) -> str:
    """Name the weights as used in a precision; float32, the older way, has the bare name."""
    return weights + _SUFFIX if precision == "bfloat16" else weights


def same_space(revision: str, other: str) -> bool:
    """Say whether vectors of two revisions can be compared: the weights are the same, whatever the precision."""
    return revision.removesuffix(_SUFFIX) == other.removesuffix(_SUFFIX)


def _processor_flags(cpuinfo: Path) -> set[str]:
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as lines:
            return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
    except OSError:  # macOS, Windows
        return set()


def _gpu_multiplies_bfloat16() -> bool | None:
    """Ask torch, which takes a second to import; None where it finds no GPU after all."""
    import torch

    return torch.cuda.is_bf16_supported(including_emulation=False) if torch.cuda.is_available() else None
