#!/usr/bin/env bash
# Asking a tag of Beautiful Soup whether it was decomposed searches everything inside it, unless it was.
#
# beautifulsoup4 4.15.0: `Tag.decomposed` asks for an attribute `_decomposed` that a tag gets only once it is decomposed; until then the
# look-up falls through to `Tag.__getattr__`, which searches for an element of that name. The usual loop "for each tag: if not tag.decomposed"
# takes quadratic time on nested pages: it was 49 of 78 s of a conversion of 25 pages of Python's documentation.
# Seen 27 November 2026, Python 3.11, a tag with 2,000 others inside it:
#   elements looked at to answer decomposed: 2000 before, 0 after decompose()
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'beautifulsoup4==4.15.0'
"$folder/env/bin/python" - <<'EOF'
from bs4 import BeautifulSoup
from bs4.filter import SoupStrainer

looked = 0
matches = SoupStrainer.match


def counting(self, *arguments, **options):
    global looked
    looked += 1
    return matches(self, *arguments, **options)


SoupStrainer.match = counting
tag = BeautifulSoup("<div>" + "<p>word</p>" * 2000 + "</div>", "html.parser").div
assert tag.decomposed is False
before, looked = looked, 0
tag.decompose()
assert tag.decomposed is True
print(f"elements looked at to answer decomposed: {before} before, {looked} after decompose()")
assert before >= 2000 and looked == 0, "asking no longer searches"
EOF
