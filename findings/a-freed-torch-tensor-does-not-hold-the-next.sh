#!/usr/bin/env bash
# A tensor of torch on the CPU cannot take the place that a tensor of the same size has just left, with glibc 2.36 (Debian 12): torch asks
# for memory aligned to 64 bytes (posix_memalign), and glibc looks for a piece that is larger than the tensor by the alignment, cuts it, and
# puts the ends back. So many a place is a little too small for the next tensor, the heap grows, and its lists of free pieces get long. An
# array of numpy, which asks for unaligned memory, takes the place. Guessed: tensors of equal sizes are the best case of an allocator.
# Versions: torch 2.13.0, numpy 2.3.5, glibc 2.36. Arrays lie between small ones that stay, as activations do between what a step keeps.
# Seen:
#   numpy: 40 of 40 arrays lie where one lay before
#   torch: 1 of 40 tensors lie where one lay before (in a larger environment 22)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cat > "$folder/places.py" <<'PYTHON'
import ctypes
import platform

import numpy
import torch

COUNT, SIZE = 40, 1 << 20
ctypes.CDLL(None).mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD: from the heap, not each from the kernel


def count_reused(make, address):
    large, small = [], []
    for _ in range(COUNT):
        large.append(make(SIZE))
        small.append(make(4096))
    before = {address(one) for one in large}
    large.clear()
    again = [make(SIZE) for _ in range(COUNT)]
    return len(before & {address(one) for one in again})


of_numpy = count_reused(lambda size: numpy.empty(size, numpy.uint8), lambda array: array.ctypes.data)
of_torch = count_reused(lambda size: torch.empty(size, dtype=torch.uint8), lambda tensor: tensor.data_ptr())
print(f"{' '.join(platform.libc_ver())}, torch {torch.__version__}, numpy {numpy.__version__}")
print(f"numpy: {of_numpy} of {COUNT} arrays lie where one lay before")
print(f"torch: {of_torch} of {COUNT} tensors lie where one lay before")
raise SystemExit(not (of_numpy == COUNT and of_torch < COUNT * 3 / 4))
PYTHON
LD_PRELOAD='' "$folder/venv/bin/python" "$folder/places.py"
