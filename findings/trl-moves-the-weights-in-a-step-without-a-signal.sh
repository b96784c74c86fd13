#!/usr/bin/env bash
# TRL's GRPOTrainer moves the weights in a step in which all rewards are equal, though loss and gradient are exactly 0.
#
# trl 1.16.0 (transformers 5.23.0, torch 2.13.0): the advantages of such a step are 0 and so is every gradient, but the optimiser steps
# all the same, and AdamW goes on along its momentum, about as far as in a step that has a signal. Where groups are often all right
# or all wrong that is a step along old gradients each time. A callback can leave it out: in on_pre_optimizer_step, where all
# gradients are 0, model.zero_grad(set_to_none=True).
# Seen 27 November 2026, Python 3.11, two CPU cores, distance moved in steps 1 to 5; rewards differ in steps 1 and 2, are equal after:
#   moved 0.1497, 0.1066, 0.0824, 0.0675, 0.0570; gradient norms 1.04, 1.05, 0, 0, 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'torch==2.13.0' 'transformers==5.23.0' 'trl==1.16.0'
cd "$folder"
"$folder/env/bin/python" - <<'EOF'
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

vocabulary = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", *(f"w{k}" for k in range(29))])}
plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left")
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 32}
model = LlamaForCausalLM(LlamaConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2))
moved, norms = [], []


class Watch(TrainerCallback):
    def on_step_begin(self, args, state, control, model=None, **_):
        self.before = [weight.detach().clone() for weight in model.parameters()]

    def on_step_end(self, args, state, control, model=None, **_):
        pairs = zip(self.before, model.parameters(), strict=True)
        moved.append(sum(float((new - old).pow(2).sum()) for old, new in pairs) ** 0.5)

    def on_log(self, args, state, control, logs=None, **_):
        norms.extend([logs["grad_norm"]] if "grad_norm" in logs else [])


def reward(completions, trainer_state, **_):
    return [float(i % 2) if trainer_state.global_step < 2 else 1.0 for i in range(len(completions))]


settings = {"max_steps": 5, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 8, "learning_rate": 1e-3}
quiet = {"disable_tqdm": True, "report_to": "none", "save_strategy": "no"}
arguments = GRPOConfig("out", **settings, **quiet, lr_scheduler_type="constant", logging_steps=1, use_cpu=True, seed=0, bf16=False)
questions = Dataset.from_dict({"prompt": [f"w{k} w1" for k in range(16)]})
trainer = GRPOTrainer(model, reward, arguments, questions, processing_class=tokenizer, callbacks=[Watch()])
trainer.train()
print("moved", [round(way, 4) for way in moved], "gradient norms", [round(float(norm), 4) for norm in norms])
assert min(norms[:2]) > 0 and norms[2:] == [0, 0, 0]
assert all(way > 0.2 * moved[1] for way in moved[2:4])
EOF
