#!/usr/bin/env bash
# transformers does not read the size of an attention head from a GGUF: where it is not the one it expects, a whole file cannot be loaded.
#
# transformers 5.23.0: `attention.key_length` of a GGUF is left unread. A Qwen3 gets 128 for each head whatever the file says, a Llama and a
# Qwen2 the hidden size divided by the number of heads. llama.cpp reads the field. The error speaks of `ignore_mismatched_sizes`, and with
# that set the attention's weights are random.
# Seen 28 November 2026, Python 3.11, one layer, hidden size 64, 4 heads of 32:
#   qwen3 with key_length 32: RuntimeError, head_dim of its settings 128
#   llama with key_length 32: RuntimeError, head_dim of its settings 16
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'transformers==5.23.0' 'gguf==0.19.0' 'torch==2.13.0' accelerate==1.15.0
"$folder/env/bin/python" - "$folder" 2>"$folder/log" <<'EOF'
import sys
from pathlib import Path

import gguf
import numpy as np
from transformers import AutoConfig, AutoModelForCausalLM

WIDTH, HEADS, SIZE, INNER, WORDS = 64, 4, 32, 96, 8


def write(kind):
    writer = gguf.GGUFWriter(Path(sys.argv[1]) / f"{kind}.gguf", kind)
    for add, value in (
        (writer.add_context_length, 64),
        (writer.add_embedding_length, WIDTH),
        (writer.add_block_count, 1),
        (writer.add_feed_forward_length, INNER),
        (writer.add_head_count, HEADS),
        (writer.add_head_count_kv, HEADS),
        (writer.add_key_length, SIZE),
        (writer.add_value_length, SIZE),
        (writer.add_layer_norm_rms_eps, 1e-6),
        (writer.add_vocab_size, WORDS),
    ):
        add(value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(list("abcdefgh"))
    shapes = {"token_embd": (WORDS, WIDTH), "output_norm": (WIDTH,), "blk.0.attn_norm": (WIDTH,), "blk.0.ffn_norm": (WIDTH,)}
    shapes |= {f"blk.0.attn_{name}": (HEADS * SIZE, WIDTH) for name in ("q", "k", "v")}
    shapes |= {"blk.0.attn_output": (WIDTH, HEADS * SIZE), "blk.0.ffn_down": (WIDTH, INNER)}
    shapes |= {f"blk.0.ffn_{name}": (INNER, WIDTH) for name in ("up", "gate")}
    if kind == "qwen3":
        shapes |= {"blk.0.attn_q_norm": (SIZE,), "blk.0.attn_k_norm": (SIZE,)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.ones(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


for kind, expected in (("qwen3", 128), ("llama", WIDTH // HEADS)):
    write(kind)
    found = AutoConfig.from_pretrained(sys.argv[1], gguf_file=f"{kind}.gguf").head_dim
    try:
        AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file=f"{kind}.gguf")
        how = "loaded"
    except RuntimeError as error:
        how = type(error).__name__
        assert "ignore_mismatched_sizes" in str(error), error
    print(f"{kind} with key_length {SIZE}: {how}, head_dim of its settings {found}")
    assert (how, found) == ("RuntimeError", expected), "the size of a head is read now"
EOF
