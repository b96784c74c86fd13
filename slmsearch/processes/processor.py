"""CPU settings for a small model.

Three defaults of the platform slow a small model down. OpenMP's threads wait for each other by spinning for a millisecond: as soon as
another process wants a core, two threads are many times slower than one. glibc returns every freed megabyte to the kernel, to fetch it
again page by page. Python looks for cycles of dead objects after every 700 new ones: 8 % of the time of a short evaluation.
"""

import ctypes
import gc
import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

SPIN_COUNT = 10_000
"""Rounds (some ten microseconds) an OpenMP thread spins before it sleeps; sleeping at once cost a quarter of the speed."""
GC_THRESHOLD = 10_000
"""New objects between two garbage collections."""
CPUINFO = Path("/proc/cpuinfo")
FAST_FLAGS = frozenset({"amx_bf16", "avx512_bf16"})
"""Names in Linux of the instructions that multiply bfloat16; torch's kernels use both."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20
_KEEP_FREED = 2**31 - 1


def settle(environment: MutableMapping[str, str] = os.environ) -> None:
    """Configure OpenMP, the garbage collector, and on Linux the allocator for small models; call it before torch is imported.

    Settings of OpenMP and JAX go into `environment`, which child processes inherit, unless it names a waiting policy already.
    """
    gc.set_threshold(GC_THRESHOLD)
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))
    # Libraries import an installed JAX, which reserves three quarters of a GPU as soon as one of them computes with it.
    environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):  # not there with musl
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP_FREED)
        libc.mallopt(_M_TOP_PAD, 2 * _LARGEST_MMAP_THRESHOLD)


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def multiplies_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16 in hardware, without loading torch; False if the system does not report it."""
    try:
        with CPUINFO.open(encoding="utf-8", errors="replace") as lines:
            flags = next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
    except OSError:  # macOS, Windows
        return False
    return bool(flags & FAST_FLAGS)


def trim_heap(kept: bool = False) -> None:
    """Return unused memory of the heap to the kernel, on Linux; fast if there is little; `kept`: also what a loaded tcmalloc keeps."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # not there with musl
        libc.malloc_trim(0)
        if kept and hasattr(libc, "MallocExtension_ReleaseFreeMemory"):
            libc.MallocExtension_ReleaseFreeMemory()
