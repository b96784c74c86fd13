#!/usr/bin/env bash
# datasets.Dataset.from_list keeps the keys of the first row alone; what only later rows have is dropped without a word.
#
# datasets 5.2.0: a reward, a tool call or a label that the first row lacks is gone from all rows, and no warning says so. Inside
# of nested messages it is the other way round: there the keys of all are joined, and rows that lack one get None.
# Seen 27 November 2026, Python 3.11:
#   [{'role': 'user'}, {'role': 'assistant'}]
#   [{'role': 'user', 'tool': None}, {'role': 'assistant', 'tool': 'search'}]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'datasets==5.2.0'
"$folder/env/bin/python" - <<'EOF'
from datasets import Dataset

rows = Dataset.from_list([{"role": "user"}, {"role": "assistant", "reward": 1.0}]).to_list()
nested = Dataset.from_list([{"messages": [{"role": "user"}, {"role": "assistant", "tool": "search"}]}])[0]["messages"]
print(rows, nested, sep="\n")
assert rows == [{"role": "user"}, {"role": "assistant"}]
assert nested == [{"role": "user", "tool": None}, {"role": "assistant", "tool": "search"}]
EOF
