"""Text that this project did not write, made safe to show: nothing steers a terminal, nothing hides, no address holds a password."""

import re
import unicodedata

_UNSURE = re.compile("[^\\n\\t -~]")
_SHOWN = frozenset("\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Characters of category Cf that scripts need: the joiners of Persian, of Indic scripts and of emoji, and number signs, which are seen."""
_HIDDEN = frozenset({"Cc", "Cf", "Zl", "Zp"})
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")


def visible(text: str) -> str:
    """Write characters that steer, hide or turn text by their number, `⟨U+202E⟩`, and lone surrogates as U+FFFD.

    New line and tab stay.
    """
    return _UNSURE.sub(_show, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Bring a text to one line, as `visible` writes it."""
    return visible(" ".join(text.split()))


def _show(found: re.Match[str]) -> str:
    character = found[0]
    category = unicodedata.category(character)
    if category == "Cs":
        return "\ufffd"
    return f"⟨U+{ord(character):04X}⟩" if category in _HIDDEN and character not in _SHOWN else character


def without_credentials(text: str, key: str | None = None) -> str:
    """Drop `user:password@` from every address in a text, and a key that a server has sent back."""
    return _CREDENTIALS.sub("", text.replace(key, "**********") if key else text)
