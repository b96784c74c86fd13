#!/usr/bin/env bash
# transformers: a model with a sliding window that is given a mask of four dimensions attends to everything the mask allows, without a word.
#
# transformers 5.24.0 (torch 2.13.0): the window is part of the mask that the model would make. A mask of shape (1, 1, T, T), as code with a
# cache of its own, packed rows or trees passes it, is taken as it is, and `sliding_window` is only a number for kernels that read it: with
# the causal mask of T tokens, logits are those of the same model without a window, from the first token beyond it on. Nothing warns, and
# below the window (4,096 for Mistral 7B v0.1, 512 for Gemma 3 1B) nothing differs, so short tests pass.
# Seen 30 November 2026, Python 3.11, a Mistral of two layers with a window of 8, 24 tokens:
#   2-d mask: equals the model with a window; 4-d causal mask: equals the model WITHOUT a window, first difference at token 8
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'torch==2.13.0' 'transformers==5.24.0'
HF_HUB_OFFLINE=1 "$folder/env/bin/python" - <<'EOF'
import torch
from transformers import MistralConfig, MistralForCausalLM

sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
torch.manual_seed(0)
windowed = MistralForCausalLM(MistralConfig(vocab_size=50, sliding_window=8, **sizes)).eval()
plain = MistralForCausalLM(MistralConfig(vocab_size=50, sliding_window=None, **sizes)).eval()
plain.load_state_dict(windowed.state_dict())
ids, causal = torch.randint(50, (1, 24)), torch.ones(24, 24, dtype=torch.bool).tril()[None, None]
with torch.no_grad():
    own = windowed(ids, attention_mask=torch.ones_like(ids)).logits
    given = windowed(ids, attention_mask=causal).logits
    without = plain(ids).logits
differs = [(a - b).abs().amax(-1)[0].gt(1e-4).nonzero()[:, 0].tolist() for a, b in ((given, own), (given, without))]
print("4-d causal mask against the model's own: first difference at token", differs[0][:1], "- against the model without a window:", differs[1])
assert differs[0] and differs[0][0] == 8 and not differs[1]
EOF
