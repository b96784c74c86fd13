#!/usr/bin/env bash
# text2num 3.1.0: alpha2digit turns indefinite plurals into exact numbers.
#
# "hundreds of people", "thousands of years ago" and "millions" become "100 of people", "1000 of years ago" and "1000000", although the
# documentation speaks of spelled numbers and "a dozen", which is exact, stays as it is. The threshold for isolated numbers does not help:
# these values lie above any that is useful. Whoever compares texts after the conversion takes "millions" for "one million".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet "text2num==3.1.0"
"$folder/env/bin/python" - <<'PYTHON'
from text_to_num import alpha2digit

seen = {text: alpha2digit(text, "en") for text in ("hundreds of people", "thousands of years ago", "millions", "a dozen eggs")}
expected = {
    "hundreds of people": "100 of people",
    "thousands of years ago": "1000 of years ago",
    "millions": "1000000",
    "a dozen eggs": "a dozen eggs",
}
for text, found in seen.items():
    print(f"{text!r} -> {found!r}")
raise SystemExit(seen != expected)
PYTHON
