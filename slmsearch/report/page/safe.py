"""Text of models and corpora made safe to look at: nothing hidden, nothing endless, nothing that ends a script."""

import json
import re
from typing import Any

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Control characters, line separators, and the marks that turn the direction of what follows; new line and tab stay."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_ENDS_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def visible(text: str) -> str:
    """Write characters that hide or turn text by their number, `⟨U+202E⟩`, and lone surrogates as `�`."""
    marked = _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text.replace("\r\n", "\n"))
    return _SURROGATE.sub("\ufffd", marked)


def shorten(text: str, limit: int) -> str:
    """Cut a text to so many characters and say how many were cut."""
    return text if len(text) <= limit else f"{text[:limit]} … {len(text) - limit:,} characters more"


def to_script_json(value: Any) -> str:
    """Write JSON for a script element of type application/json: no text in it can end the element or begin another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda found: _ENDS_SCRIPT[found[0]], text)
