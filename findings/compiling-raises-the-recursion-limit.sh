#!/usr/bin/env bash
# `torch.compile` raises the interpreter's recursion limit from 1,000 to 2,000 and leaves it there.
#
# torch 2.13.0, the inductor backend: compiling one function on a CPU changes `sys.getrecursionlimit()` for the whole process, for good.
# Code that counts on a RecursionError to refuse values that are nested too deeply takes twice the depth afterwards, and a test of it
# passes or fails by what ran before it in the same process. A limit of one's own on the depth does not move. Needs a C++ compiler.
# Seen 27 November 2026, Python 3.11.7:
#   before compiling: 1000
#   after compiling: 2000
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'torch==2.13.0' 'setuptools==80.10.2' 'numpy==2.3.5'
cat >"$folder/compile.py" <<'PYTHON'
import sys

import torch

print("before compiling:", sys.getrecursionlimit())
torch.compile(lambda x: x.sin() + 1)(torch.zeros(4))
print("after compiling:", sys.getrecursionlimit())
PYTHON
seen=$(TORCHINDUCTOR_CACHE_DIR="$folder/cache" "$folder/env/bin/python" "$folder/compile.py")
echo "$seen"
[[ "$seen" == $'before compiling: 1000\nafter compiling: 2000' ]]
