#!/usr/bin/env bash
# rouge-score drops every letter that is not ASCII: an answer equal to the right one in Greek or Russian scores 0, without a word.
#
# rouge-score 0.1.2, the package behind most published ROUGE figures (Hugging Face's `evaluate` calls it): its tokenizer lowers the text and
# replaces all but a to z and 0 to 9 by spaces. Texts in other scripts have no words left, so ROUGE of two equal texts is 0 instead of 1; in
# German or French words come apart at their accents, so that "für" and "f r" are equal. Nothing warns. It takes another tokenizer as
# `RougeScorer(..., tokenizer=...)`, which a longest common subsequence over words of any script makes unnecessary (RapidFuzz has one).
# Seen 28 November 2026, Python 3.11.7:
#   equal texts, English: 1.0
#   equal texts, Greek: 0
#   equal texts, Russian: 0
#   'für' against 'f r': 1.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'rouge-score==0.1.2' 'setuptools==80.10.2'
cat >"$folder/score.py" <<'PYTHON'
from rouge_score.rouge_scorer import RougeScorer

scorer = RougeScorer(["rougeL"])
GREEK = "\u03b1\u03bd\u03bf\u03af\u03be\u03c4\u03b5 \u03c4\u03b9\u03c2 \u03c1\u03c5\u03b8\u03bc\u03af\u03c3\u03b5\u03b9\u03c2"
RUSSIAN = "\u043e\u0442\u043a\u0440\u043e\u0439\u0442\u0435 \u043d\u0430\u0441\u0442\u0440\u043e\u0439\u043a\u0438"
for name, text in (("English", "open the settings"), ("Greek", GREEK), ("Russian", RUSSIAN)):
    print(f"equal texts, {name}:", scorer.score(text, text)["rougeL"].fmeasure)
print("'f\u00fcr' against 'f r':", scorer.score("f\u00fcr", "f r")["rougeL"].fmeasure)
PYTHON
seen=$("$folder/env/bin/python" "$folder/score.py")
echo "$seen"
[[ "$seen" == $'equal texts, English: 1.0\nequal texts, Greek: 0\nequal texts, Russian: 0\n\'für\' against \'f r\': 1.0' ]]
