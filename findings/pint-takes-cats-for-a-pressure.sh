#!/usr/bin/env bash
# pint 0.25.3: ordinary plural nouns are units, because prefixes and the plural s are tried on every name.
#
# "5 cats" is 5 centi-technical-atmospheres, 4,903 Pa ("c" + "at" + "s"); "3 pins" are lengths (pico-inches), "2 acts" masses (atto-carats,
# "a" + "ct"). "5 dogs" and "5 people" raise UndefinedUnitError as one expects. So UndefinedUnitError does not tell words from units in
# text that people wrote: what it does not raise for may still be no quantity.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet "pint==0.25.3"
"$folder/env/bin/python" - <<'PYTHON'
import pint

units = pint.UnitRegistry()
seen = {}
for text in ("5 cats", "3 pins", "2 acts", "5 dogs", "5 people"):
    try:
        seen[text] = str(units.Quantity(text).dimensionality)
    except pint.UndefinedUnitError:
        seen[text] = "undefined"
    print(f"{text!r} -> {seen[text]}")
pressure = "[mass] / [length] / [time] ** 2"
raise SystemExit(seen != {"5 cats": pressure, "3 pins": "[length]", "2 acts": "[mass]", "5 dogs": "undefined", "5 people": "undefined"})
PYTHON
