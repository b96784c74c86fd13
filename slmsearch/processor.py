"""The CPU, set up for a small model.

Two defaults of the platform cost a small model dearly. OpenMP's threads wait for each other by spinning for a millisecond: as soon
as anything else wants a core, two threads are many times slower than one. And glibc hands every freed megabyte back to the
kernel, to fetch it again a moment later, page fault by page fault.
"""

import ctypes
import os
import sys
from collections.abc import MutableMapping

SPIN_COUNT = 10_000
"""Rounds (some ten microseconds) an OpenMP thread spins before it sleeps; going to sleep at once cost a quarter of the speed."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20
_KEEP_FREED = 2**31 - 1


def settle(environment: MutableMapping[str, str] = os.environ) -> None:
    """Tell OpenMP, and on Linux the allocator, to go easy; call it before torch is imported.

    OpenMP's setting goes into `environment`, which child processes inherit, unless it names a waiting policy already.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):  # not there with musl
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP_FREED)
        libc.mallopt(_M_TOP_PAD, 2 * _LARGEST_MMAP_THRESHOLD)
