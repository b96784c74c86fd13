"""Foreign text as it is shown: nothing in it steers a terminal or hides."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.errors import ModelError
from slmsearch.foreign import one_line, visible, without_credentials


@given(st.text())
def test_nothing_steers_or_hides(text: str) -> None:
    shown = visible(text)
    joiners = {c for c in shown if unicodedata.category(c) == "Cf"}
    assert not set("\u115f\u1160\u3164\uffa0\u2800\u034f") & set(shown) and not any(0xE0000 <= ord(c) <= 0xE0FFF for c in shown)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} and c not in "\n\t"]
    assert all(c in "\u200c\u200d" or unicodedata.name(c).find("SIGN") >= 0 or unicodedata.name(c).find("MARK") >= 0 or c == "\u06dd"
               for c in joiners), joiners  # fmt: skip
    assert visible(shown) == shown
    assert "\n" not in one_line(text)


@pytest.mark.parametrize(
    "character",
    "\ufe00\ufe0f\U000e0100\U000e01ef\u3164\uffa0\u115f\u1160\u2800\u034f\u180b\u17b4\U000e0fff\u200c\u200d\x1b\x07\x9b\u200b\u200f\u061c\u202e\u2066\ufeff\u2060\U000e0041",
)
def test_hidden_characters_stand_as_their_number(character: str) -> None:
    assert visible(f"a{character}b") == f"a⟨U+{ord(character):04X}⟩b"


def test_scripts_keep_their_joiners() -> None:
    plain = "\u0645\u06cc\u200c\u062e क्\u200dष 👩\u200d💻 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 👍🏽\u200d \u0601"
    assert visible(plain) == plain


@pytest.mark.parametrize("carried", ["\U000e0101\U000e0178", "\ufe0f" * 8, "\u200d\u200c\u200c\u200d", "\ufe0e\u200d\ufe0f\u200d"])
@pytest.mark.parametrize("base", "a❤क1")
def test_no_message_hides_behind_a_sign(base: str, carried: str) -> None:
    """At most one style and one joiner stay unseen, as a script or an emoji needs them."""
    shown = visible(base + carried + "b")
    assert sum(c in shown for c in "\U000e0101\U000e0178") == 0
    assert sum(shown.count(c) for c in "\ufe0e\ufe0f\u200c\u200d") <= 2


def test_an_address_loses_its_password_also_in_an_error() -> None:
    text = "openai:m@http://u:PW@h:1/v1@2 and s3://k:PW@b, http://h/a@b"
    assert without_credentials(text) == "openai:m@http://h:1/v1@2 and s3://b, http://h/a@b"
    assert "PW" not in repr(ModelError(f"no answer from {text}"))
