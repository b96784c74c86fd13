"""Classes of characters by script, for use between the brackets of a regular expression."""

import unicodedata

_BY_CATEGORY: dict[str, list[str]] = {}
for _char in map(chr, (*range(0x3100), *range(0xA000, 0xAC00))):  # skips Chinese characters, Korean syllables, compatibility forms
    _BY_CATEGORY.setdefault(unicodedata.category(_char), []).append(_char)

CAPITALS = "".join(_BY_CATEGORY["Lu"] + _BY_CATEGORY["Lt"])
"""Capitals of Latin, Greek, Cyrillic, Armenian and the other scripts with case."""
SMALL = "".join(char for char in _BY_CATEGORY["Ll"] if not "\u10d0" <= char <= "\u10ff")
"""Small letters, without those of Georgian, in which names are not capitalised."""
MARKS = "".join(_BY_CATEGORY["Mn"] + _BY_CATEGORY["Mc"])
"""Vowels, tones and accents that follow a letter; regular expressions do not count them as part of a word."""
ACCENTS = "".join(char for char in MARKS if unicodedata.combining(char) and (char < "\u0900" or "\u1dbf" < char < "\u2100"))
"""Marks without which a word is still the same: of Latin, Greek, Cyrillic, Hebrew and Arabic, not of Indian scripts and Kana."""
THAI = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece"
"""Letters of Thai and Lao, where a space between two letters ends a clause."""
SPACELESS = f"{THAI}\u1000-\u103f\u1050-\u108f\u1780-\u17d3\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u312f\u31f0-\u31ff"
SPACELESS += "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003fffd"
"""Characters of scripts without spaces between words."""
GLUED = f"{SPACELESS}\uac00-\ud7a3"
"""Those and Korean, in which the text after a number or a name follows without a space."""
