#!/usr/bin/env bash
# A repetition penalty makes a chat model less likely to end its turn, because the end-of-turn token stands in every chat prompt.
#
# transformers 5.23.0 (torch 2.13.0): generate(repetition_penalty=1.3) penalises all tokens of the prompt, the end-of-turn tokens of the
# template included; nothing exempts eos_token_id. Here a model that ends its turn at once (random weights, end token made the
# likeliest) runs on to max_new_tokens as soon as an end-of-turn token stands in the prompt.
# Seen 27 November 2026, Python 3.11, tokens written until the end:
#   penalty 1.0: 1 without and 1 with an end token in the prompt; penalty 1.3: 1 without, 8 (all) with
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'torch==2.13.0' 'transformers==5.23.0'
"$folder/env/bin/python" - <<'EOF'
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

END, OTHERS = 2, slice(11, 19)
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32}
model = LlamaForCausalLM(LlamaConfig(**sizes, eos_token_id=END, bos_token_id=1, pad_token_id=0)).eval()
model.lm_head = torch.nn.Linear(32, 32)  # a bias decides: the end is the likeliest token, eight others come close
torch.nn.init.zeros_(model.lm_head.weight)
torch.nn.init.zeros_(model.lm_head.bias)
model.lm_head.bias.data[OTHERS], model.lm_head.bias.data[END] = 4.5, 5.0


def written(prompt, penalty):
    settings = GenerationConfig(max_new_tokens=8, do_sample=False, repetition_penalty=penalty, eos_token_id=END, pad_token_id=0)
    ids = torch.tensor([prompt])
    return model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings).shape[1] - len(prompt)


CHAT, PLAIN = [1, 5, 6, END, 8, 9, END, 10], [1, 5, 6, 8, 9, 10]
found = {penalty: (written(PLAIN, penalty), written(CHAT, penalty)) for penalty in (1.0, 1.3)}
print("tokens until the end, without and with an end token in the prompt:", found)
assert found == {1.0: (1, 1), 1.3: (1, 8)}
EOF
