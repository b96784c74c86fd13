"""Text of models and corpora made fit for a page: nothing endless, nothing that ends a script."""

import json
import re
from typing import Any

_ENDS_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def shorten(text: str, limit: int) -> str:
    """Cut a text to so many characters and say how many were cut."""
    return text if len(text) <= limit else f"{text[:limit]} … {len(text) - limit:,} characters more"


def to_script_json(value: Any) -> str:
    """Write JSON for a script element of type application/json: no text in it can end the element or begin another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda found: _ENDS_SCRIPT[found[0]], text)
