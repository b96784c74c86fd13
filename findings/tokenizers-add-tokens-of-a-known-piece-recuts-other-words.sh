#!/usr/bin/env bash
# Adding a token that the vocabulary holds already changes how other words are cut, and says that one token was added.
#
# tokenizers 0.23.3: add_tokens(["search"]) of a piece that BPE has learnt returns 1 and adds no id. From then on the text is split at
# every "search" before BPE sees it: "research" and "searching", single tokens until then, fall into pieces that the model never saw.
# Seen 27 November 2026, Python 3.11:
#   before: ['searching'] ['research']    after: ['search', 'ing'] ['r', 'e', 'search']    size of the vocabulary 27 and 27
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'tokenizers==0.23.3'
"$folder/env/bin/python" - <<'EOF'
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
corpus = ["search searching research researching the engine"] * 50
tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=60, show_progress=False))
assert "search" in tokenizer.get_vocab()


def cuts():
    return [tokenizer.encode(word).tokens for word in ("searching", "research")], tokenizer.get_vocab_size()


before, said, after = cuts(), tokenizer.add_tokens(["search"]), cuts()
print(before, said, after)
assert before[0] == [["searching"], ["research"]]
assert after[0] == [["search", "ing"], ["r", "e", "search"]]
assert said == 1 and before[1] == after[1]
EOF
