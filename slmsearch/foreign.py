"""Text from outside this project, made safe to show: it steers no terminal, hides no characters and holds no passwords of addresses."""

import re
import unicodedata

_UNSURE = re.compile("[^\\n\\t -~]")
_SHOWN = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Characters of category Cf that are visible: number signs."""
_JOINERS = frozenset("\u200c\u200d")
_JOINED = frozenset({"Lo", "Lm", "Mn", "Mc", "So", "Sk"})
"""Categories of characters that a joiner may follow: letters and marks of scripts that join, emoji."""
_STYLES = frozenset("\ufe0e\ufe0f")
"""Characters that choose between the two looks of a symbol, as text and as emoji."""
_STYLED = frozenset({"So", "Sm", "Sk", "Po", "Nd"})
_HIDDEN = frozenset({"Cc", "Cf", "Zl", "Zp"})
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U0001d159\U000e0000-\U000e0fff]"
)
"""Characters of other categories that are invisible: variation selectors, fillers, the empty Braille pattern."""
MAX_CAUSE_CHARS = 300
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")


def visible(text: str) -> str:
    """Replace characters that steer, hide or turn text by their number, `⟨U+202E⟩`, and lone surrogates by U+FFFD.

    Newline and tab stay.
    """
    return _UNSURE.sub(_show, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Join a text to one line, as `visible` writes it."""
    return visible(" ".join(text.split()))


def encodable(text: str) -> str:
    """Replace lone surrogates, which a served model may write and UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def cause_of(error: object) -> str:
    """Describe in one line why an outside service failed: the start of its message, else the type of the error."""
    return without_credentials(" ".join(str(error).split()))[:MAX_CAUSE_CHARS] or type(error).__name__


def _show(found: re.Match[str]) -> str:
    character = found[0]
    if unicodedata.category(character) == "Cs":
        return "\ufffd"
    return f"⟨U+{ord(character):04X}⟩" if _is_hidden(found.string, found.start()) else character


def _is_hidden(text: str, position: int) -> bool:
    """Return True for an invisible character. One joiner or style is part of the sign before it; several in a row could hide a message."""
    character = text[position]
    if character in _JOINERS or character in _STYLES:
        bases = _JOINED if character in _JOINERS else _STYLED
        return position == 0 or unicodedata.category(text[position - 1]) not in bases or _is_hidden(text, position - 1)
    return (unicodedata.category(character) in _HIDDEN and character not in _SHOWN) or _BLANK.match(character) is not None


def without_credentials(text: str, key: str | None = None) -> str:
    """Remove `user:password@` from every address in a text, and a key that a server has returned."""
    return _CREDENTIALS.sub("", text.replace(key, "**********") if key else text)
