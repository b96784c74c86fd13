#!/usr/bin/env bash
# transformers' top_k=2 keeps four tokens where four are equally likely, and top_p of equal tokens keeps the last, not the first.
#
# transformers 5.23.0 (torch 2.13.0): TopKLogitsWarper removes what is smaller than the k-th largest logit, so all that equal it stay.
# TopPLogitsWarper sorts ascending and removes from the front: of equal tokens those with the highest ids stay, and the one that
# greedy search takes (the lowest id) is removed. Ties are common in float16 and bfloat16.
# Seen 27 November 2026, Python 3.11:
#   top_k=2 of [1, 1, 1, 1, 0] keeps [0, 1, 2, 3]
#   top_p=0.5 of [0, 0, 0, 0] keeps [2, 3]; argmax 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'torch==2.13.0' 'transformers==5.23.0'
"$folder/env/bin/python" - <<'EOF'
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

scores, equal = torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0]]), torch.zeros(1, 4)
by_k = TopKLogitsWarper(top_k=2)(None, scores).isfinite()[0].nonzero()[:, 0].tolist()
by_p = TopPLogitsWarper(top_p=0.5)(None, equal).isfinite()[0].nonzero()[:, 0].tolist()
print("top_k=2 keeps", by_k, "- top_p=0.5 keeps", by_p, "- argmax", int(equal.argmax()))
assert by_k == [0, 1, 2, 3]
assert by_p == [2, 3] and int(equal.argmax()) == 0
EOF
