#!/usr/bin/env bash
# llama.cpp's server gives the ids of a stop text among the tokens of a turn, but not their probabilities.
#
# xllamacpp 2026.10.11549 (llama.cpp's own server as a package): POST /completion with `return_tokens` and `n_probs` returns `tokens` with
# all ids that were sampled, those of the stop text included, and `completion_probabilities` without the ones that the stop text covers.
# Both read as one entry a token, and zipped they shift or lose the end; where they are added up, a turn that was ended by a stop text is
# likelier than it was. Without `stop` the two have the same length, the end-of-turn token included.
# Seen 28 November 2026, Python 3.11, a model of 28 tokens with random weights:
#   without a stop text: 12 tokens, 12 probabilities; with one of 3 letters: 4 tokens, 1 probabilities
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'xllamacpp==2026.10.11549' 'gguf==0.19.0'
"$folder/env/bin/python" - "$folder/model.gguf" <<'EOF'
import json
import os
import sys
import urllib.request

import gguf
import numpy as np
import xllamacpp

letters, width, inner = "abcdefghijklmnopqrstuvwxyz", 64, 96
writer = gguf.GGUFWriter(sys.argv[1], "qwen2")
numbers = {"context_length": 256, "embedding_length": width, "block_count": 1, "feed_forward_length": inner, "head_count": 4}
for name, value in {**numbers, "head_count_kv": 4, "layer_norm_rms_eps": 1e-6}.items():
    getattr(writer, f"add_{name}")(value)
writer.add_tokenizer_model("gpt2")
writer.add_tokenizer_pre("gpt-2")
writer.add_token_list([*letters, "ab", "<end>"])
writer.add_token_types([1] * 27 + [3])
writer.add_token_merges(["a b"])
writer.add_eos_token_id(27)
writer.add_add_bos_token(False)
draw = np.random.default_rng(2)
shapes = {
    **{f"{name}.weight": (28, width) for name in ("token_embd", "output")},
    **{f"{name}.weight": (width,) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")},
    **{f"blk.0.attn_{name}.weight": (width, width) for name in ("q", "k", "v", "output")},
    **{f"blk.0.attn_{name}.bias": (width,) for name in ("q", "k", "v")},
    **{f"blk.0.ffn_{name}.weight": (inner, width) for name in ("up", "gate")},
    "blk.0.ffn_down.weight": (width, inner),
}
for name, shape in shapes.items():
    writer.add_tensor(name, draw.standard_normal(shape).astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

settings = xllamacpp.CommonParams()
settings.model.path, settings.verbosity, settings.n_ctx, settings.n_parallel = sys.argv[1], 0, 256, 1
server = xllamacpp.Server(settings)


def write(**more):
    body = {"prompt": [0, 1, 2], "n_predict": 12, "temperature": 0.0, "ignore_eos": True, "return_tokens": True, "n_probs": 1, **more}
    request = urllib.request.Request(f"{server.listening_address}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


try:
    whole = write()
    text = whole["content"]
    place = next(n for n in range(1, 10) if text.index(text[n : n + 3]) == n)
    cut = write(stop=[text[place : place + 3]])
    counts = [len(one[name]) for one in (whole, cut) for name in ("tokens", "completion_probabilities")]
    print("without a stop text: {} tokens, {} probabilities; with one of 3 letters: {} tokens, {} probabilities".format(*counts))
    assert counts[0] == counts[1] == 12
    assert cut["stop_type"] == "word" and counts[2] == place + 3 and counts[3] == place, "both lists cover the stop text now, or neither"
except BaseException as error:
    print(f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    os._exit(1)
sys.stdout.flush()
os._exit(0)
EOF
